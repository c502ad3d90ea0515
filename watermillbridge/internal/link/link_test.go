package link_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

// conn is a connection.
type conn struct{ broken, hungUp bool }

func newLink(dial func() (*conn, error)) *link.Link[*conn] {
	return &link.Link[*conn]{
		Bridge: "testbridge", Address: "there", Dial: dial, Logger: slog.New(slog.DiscardHandler),
		Broken: func(c *conn) bool { return c.broken },
		HangUp: func(c *conn) error { c.hungUp = true; return nil },
	}
}

// requireUnavailable fails the test unless err is of that class and wraps is.
func requireUnavailable(t *testing.T, err, is error) {
	t.Helper()
	if class, _ := core.ClassOf(err); class != core.ClassUnavailable || !errors.Is(err, is) {
		t.Fatalf("err = %v, class %v; want unavailable, and %v", err, class, is)
	}
}

// All who need the connection share one attempt. A connection is made anew after it broke.
func TestOneConnectionForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		l := newLink(func() (*conn, error) {
			dials++
			time.Sleep(time.Second)
			return &conn{}, nil
		})
		if _, ok := l.Last(); ok {
			t.Error("a connection that nobody has made")
		}
		if err := l.WaitsFor(); err == nil || err.Error() != "testbridge: connect to there: no answer yet" {
			t.Errorf("before it connects: %v", err)
		}
		got := make(chan *conn, 10)
		for range cap(got) {
			go func() {
				c, err := l.Connected(t.Context())
				if err != nil {
					t.Error(err)
				}
				got <- c
			}()
		}
		first := <-got
		for range cap(got) - 1 {
			if c := <-got; c != first || dials != 1 {
				t.Fatalf("another connection, after %d dials", dials)
			}
		}
		if err := l.WaitsFor(); err.Error() != "testbridge: publish to there: no answer yet" {
			t.Errorf("connected: %v", err)
		}
		first.broken = true
		again, err := l.Connected(t.Context())
		if last, ok := l.Last(); err != nil || again == first || dials != 2 || last != again || !ok {
			t.Errorf("after it broke: %v, %d dials", err, dials)
		}
		if err := l.Close(); err != nil || !again.hungUp {
			t.Errorf("closed: %v, %+v", err, again)
		}
		_, err = l.Connected(t.Context())
		requireUnavailable(t, err, watermillbridge.ErrClosed)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A function of the user's configuration may panic or end its goroutine. That is an error of this
// attempt alone.
func TestADialThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{"panic": "panic: no dialer", "goexit": "Goexit"} {
		dials := 0
		l := newLink(func() (*conn, error) {
			if dials++; dials > 1 {
				return &conn{}, nil
			}
			if name == "goexit" {
				runtime.Goexit()
			}
			panic("no dialer")
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := l.Connected(ctx)
		requireUnavailable(t, err, watermillbridge.ErrPanic)
		if !strings.HasPrefix(err.Error(), "testbridge: connect to there: ") || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: err = %v", name, err)
		}
		if c, err := l.Connected(ctx); err != nil || c == nil {
			t.Errorf("%s: the next attempt: %v", name, err)
		}
		cancel()
	}
}

// Who cannot wait any longer hears why the attempt before failed.
func TestAConnectionThatTakesTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fail := false
		l := newLink(func() (*conn, error) {
			time.Sleep(time.Minute)
			if fail {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, core.Permanent(io.ErrUnexpectedEOF)
		})
		connected := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := l.Connected(ctx)
			return err
		}
		requireUnavailable(t, connected(), context.DeadlineExceeded)
		if _, err := l.Connected(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		} else if class, _ := core.ClassOf(err); class != core.ClassPermanent {
			t.Errorf("class %v, want that of the error", class)
		}
		fail = true
		err := connected()
		requireUnavailable(t, err, context.DeadlineExceeded)
		requireUnavailable(t, err, io.ErrUnexpectedEOF)
		_, err = l.Connected(t.Context())
		requireUnavailable(t, err, io.ErrUnexpectedEOF)
	})
}

// A connection that comes after Close is closed.
func TestCloseWhileItConnects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &conn{}
		l := newLink(func() (*conn, error) {
			time.Sleep(time.Minute)
			return c, nil
		})
		failed := make(chan error, 1)
		go func() {
			_, err := l.Connected(t.Context())
			failed <- err
		}()
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		requireUnavailable(t, <-failed, watermillbridge.ErrClosed)
		synctest.Wait()
		if !c.hungUp {
			t.Error("the connection stays open")
		}
	})
}
