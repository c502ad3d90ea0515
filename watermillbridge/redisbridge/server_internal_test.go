package redisbridge

import (
	"bufio"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A server that has closed an idle connection with TLS is checked through another one.
func TestAConnectionThatTheServerHasClosed(t *testing.T) {
	t.Parallel()
	https := httptest.NewTLSServer(nil)
	t.Cleanup(https.Close)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: https.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	closed := make(chan struct{}, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				checkOnce(c)
				closed <- struct{}{}
			}()
		}
	}()
	client := redis.NewClient(&redis.Options{
		Addr: l.Addr().String(), ContextTimeoutEnabled: true, MaxRetries: -1,
		TLSConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the server is of the test
	})
	t.Cleanup(func() { _ = client.Close() })
	cfg := Config{Client: client}
	cfg.Bridge.Logger = slog.New(slog.DiscardHandler)
	for range 2 {
		if _, err := checkServers(t.Context(), &cfg); err != nil {
			t.Fatal(err)
		}
		<-closed
	}
}

// checkOnce answers to the commands of one check.
func checkOnce(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	number := func() int {
		line, _ := in.ReadString('\n')
		n, _ := strconv.Atoi(strings.Trim(line, "*$\r\n"))
		return n
	}
	for last := ""; last != "proto-max-bulk-len"; {
		words := number()
		if words == 0 {
			return
		}
		first := ""
		for i := range words {
			b := make([]byte, number()+2)
			if _, err := io.ReadFull(in, b); err != nil {
				return
			}
			if last = strings.TrimSpace(string(b)); i == 0 {
				first = last
			}
		}
		answer := "-ERR unknown command\r\n"
		if strings.EqualFold(first, "info") {
			answer = "$11\r\nrole:master\r\n"
		}
		_, _ = io.WriteString(c, answer)
	}
}
