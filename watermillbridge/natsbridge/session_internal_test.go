package natsbridge

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// server is one that has no stream for the subject "nobody", and does not answer to others.
func server(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().String()
}

func serve(c net.Conn) {
	defer c.Close()
	_, _ = io.WriteString(c, `INFO {"max_payload":1048576,"headers":true,"proto":1}`+"\r\n")
	in, sid := bufio.NewReader(c), ""
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		word := strings.Fields(line)
		if len(word) == 0 {
			continue
		}
		switch word[0] {
		case "PING":
			_, _ = io.WriteString(c, "PONG\r\n")
		case "SUB":
			sid = word[len(word)-1]
		case "HPUB":
			if word[1] == "nobody" {
				fmt.Fprintf(c, "HMSG %s %s 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", word[2], sid)
			}
		}
	}
}

// lockedBuffer is the target of a log.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// No text has the user of a URL. A user without a password is a token.
func TestNoTextHasATokenOrAPassword(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"s3cret", "s3cret:s3cret", "s3cret:s3cr@s3cret"} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			address, log := server(t), &lockedBuffer{}
			cfg := Config{
				URL:    "nats://" + user + "@" + address,
				Stream: func(topic string) string { return topic },
				Bridge: watermillbridge.Config{Logger: slog.New(slog.NewTextHandler(log, nil))},
			}
			options, err := cfg.validate()
			if err != nil {
				t.Fatal(err)
			}
			inner := &publisher{cfg: cfg, streams: map[string]stream{}, link: newLink(cfg.Bridge.Logger, options)}
			p, err := watermillbridge.NewPublisher(inner, cfg.Bridge)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = p.Close(context.Background()) }()
			told := func(what, text string) {
				t.Helper()
				if !strings.Contains(text, address) || strings.Contains(text, "s3cr") {
					t.Errorf("%s: %s, want %s alone", what, text, address)
				}
			}
			publish := func(topic string, wait time.Duration) string {
				ctx, cancel := context.WithTimeout(t.Context(), wait)
				defer cancel()
				return fmt.Sprint(p.Publish(ctx, core.Delivery{Event: core.Event{ID: "1", Type: "t", Topic: topic}}))
			}
			told("refused", publish("nobody", time.Minute))
			told("waits", inner.WaitsFor().Error())
			told("no answer", publish("orders", time.Second/4))
			for p.Stuck() > 0 {
				time.Sleep(time.Millisecond)
			}
			told("silent", inner.WaitsFor().Error())
			told("log", log.String())
		})
	}
}

// What the client itself refuses is no answer of the server. An answer counts for the publishes of its
// topic that wait, and is forgotten with the last of them.
func TestWhatIsAnAnswer(t *testing.T) {
	t.Parallel()
	options, err := connectOptions(server(t), time.Minute, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	for result, answered := range map[error]bool{
		nil: true, fmt.Errorf("full: %w", &jetstream.APIError{Code: 503}): true,
		nats.ErrReconnectBufExceeded: false, nats.ErrConnectionClosed: false, context.DeadlineExceeded: false,
	} {
		s, err := connect(slog.New(slog.DiscardHandler), *options)
		if err != nil {
			t.Fatal(err)
		}
		over, cancel := context.WithDeadline(t.Context(), time.Now())
		_, late := s.begin(over, "orders")
		_, first := s.begin(t.Context(), "orders")
		bound, other := s.begin(t.Context(), "orders")
		_, elsewhere := s.begin(t.Context(), "mails")
		s.end(first, result)
		s.end(elsewhere, nil)
		s.end(late, context.DeadlineExceeded)
		if s.unusable() == answered || errors.Is(context.Cause(bound), ErrDisconnected) == answered {
			t.Errorf("%v: unusable %v, the other publish: %v", result, s.unusable(), context.Cause(bound))
		}
		s.end(other, context.Cause(bound))
		if len(s.topics) > 0 {
			t.Errorf("%v: %d topics are kept", result, len(s.topics))
		}
		cancel()
		s.conn.Close()
	}
}

// A refusal to ask for a stream is not that of a publish that has its stream.
func TestARefusalToAskForAStream(t *testing.T) {
	t.Parallel()
	s := &session{topics: map[string]*waiting{}}
	asks, _ := s.begin(t.Context(), "orders")
	knows, w := s.begin(t.Context(), "orders")
	s.knows(w)
	s.refused(fmt.Errorf(`%w: Permissions Violation for Publish to "$JS.API.STREAM.NAMES"`,
		nats.ErrPermissionViolation))
	if asks.Err() == nil || knows.Err() != nil {
		t.Errorf("who asks: %v; who has its stream: %v", context.Cause(asks), context.Cause(knows))
	}
}
