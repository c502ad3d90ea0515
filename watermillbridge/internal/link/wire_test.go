package link_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

// failing tells of an error of a write.
type failing struct {
	net.Conn
	failed *atomic.Bool
}

func (f failing) Write(b []byte) (int, error) {
	n, err := f.Conn.Write(b)
	if err != nil {
		f.failed.Store(true)
	}
	return n, err
}

// A server that refuses the client's certificate says so and closes the connection. The client hears
// it also if it notices first that it cannot write any more.
func TestAServerSaysWhyItCloses(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	text, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	expired := tls.Certificate{Certificate: [][]byte{text}, PrivateKey: key}
	leaf, err := x509.ParseCertificate(text)
	must(t, err)
	authority := x509.NewCertPool()
	authority.AddCert(leaf)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{expired}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority,
	})
	must(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*tls.Conn).Handshake()
			_ = c.Close()
		}
	}()
	var failed atomic.Bool
	w := link.Wire{Dialer: func(network, address string) (net.Conn, error) {
		c, err := net.Dial(network, address)
		return failing{c, &failed}, err
	}}
	raw, err := w.Dial("tcp", l.Addr().String())
	must(t, err)
	defer raw.Close()
	client := tls.Client(raw, &tls.Config{
		Certificates: []tls.Certificate{expired}, InsecureSkipVerify: true, //nolint:gosec // only the client is refused
	})
	must(t, client.Handshake())
	for !failed.Load() {
		_, err := client.Write([]byte("hello"))
		must(t, err)
	}
	_, err = client.Read(make([]byte, 1))
	if err == nil || !strings.Contains(err.Error(), "tls: expired certificate") {
		t.Errorf("err = %v, want what the server said", err)
	}
}

// A Wire knows what went wrong last, and where.
func TestWhatWentWrongLast(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	address := l.Addr().String()
	w := link.Wire{Dialer: net.Dial}
	c, err := w.Dial("tcp", address)
	must(t, err)
	defer c.Close()
	server, err := l.Accept()
	must(t, err)
	told := func(what string, words ...string) {
		t.Helper()
		err := w.Failed()
		if (err != nil) != (words != nil) {
			t.Errorf("%s: %v", what, err)
		}
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v, want %s", what, err, word)
			}
		}
	}
	read := func() { _, _ = c.Read(make([]byte, 1)) }
	told("nothing happened")
	must(t, c.SetReadDeadline(time.Now()))
	read()
	told("no answer", address, "i/o timeout")
	must(t, c.SetReadDeadline(time.Time{}))
	_, err = io.WriteString(server, "x")
	must(t, err)
	read()
	told("an answer")
	idle, err := w.Dial("tcp", address)
	must(t, err)
	defer idle.Close()
	other, err := l.Accept()
	must(t, err)
	_, err = io.WriteString(other, "x")
	must(t, err)
	_, err = io.ReadFull(idle, make([]byte, 1))
	must(t, err)
	must(t, other.Close())
	_, err = idle.Read(make([]byte, 1))
	if !errors.Is(err, io.EOF) {
		t.Errorf("a connection that the server has closed: %v", err)
	}
	told("a connection that nobody used was closed")
	_, err = io.WriteString(c, "x")
	must(t, err)
	_, err = io.ReadFull(server, make([]byte, 1)) // else the connection is reset
	must(t, err)
	must(t, server.Close())
	read()
	told("closed", address, "the server closed the connection")
	silent, err := w.Dial("tcp", address)
	must(t, err)
	defer silent.Close()
	other, err = l.Accept()
	must(t, err)
	_ = silent.SetReadDeadline(time.Now())
	_, _ = silent.Read(make([]byte, 1))
	told("another one without an answer", address, "i/o timeout")
	_ = silent.SetReadDeadline(time.Time{})
	must(t, other.Close())
	_, _ = silent.Read(make([]byte, 1))
	told("closed before the server said anything", address, "the server closed the connection")
	must(t, l.Close())
	_, err = w.Dial("tcp", address)
	if err == nil {
		t.Fatal("dialled a port that is closed")
	}
	told("no server", address, "refused")
	must(t, c.Close())
	read()
	told("closed by the client", address, "refused")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
