package inbox_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/inbox"
)

func TestEventsThatFailAreDead(t *testing.T) {
	w := newWorld(t, func(c *coreinbox.Config) { c.MaxAttempts = 3 })
	h, calls := w.times(100, errHandler)
	for attempt := range 5 {
		err := w.deliver(h, event(t.Context(), "e"))
		if want := attempt >= 2; errors.Is(err, coreinbox.ErrDead) != want || coreinbox.Final(err) != want {
			t.Errorf("attempt %d: %v", attempt+1, err)
		}
		if attempt < 3 && !errors.Is(err, errHandler) || !strings.Contains(err.Error(), errHandler.Error()) {
			t.Errorf("attempt %d does not say why: %v", attempt+1, err)
		}
		if again := attempt >= 3; strings.Contains(err.Error(), "Redrive") != again ||
			again && !strings.Contains(err.Error(), "attempts: 3") {
			t.Errorf("attempt %d: %v", attempt+1, err)
		}
	}
	equal(t, calls.Load(), 3, "calls: a dead event was processed")
	w.hears("failed", 2)
	w.hears("dead", 3)

	h, calls = w.times(100, core.Permanent(errHandler))
	for range 2 {
		wantErr(t, w.deliver(h, event(t.Context(), "permanent")), coreinbox.ErrDead, "deliver")
	}
	equal(t, calls.Load(), 1, "calls after core.Permanent")

	list, err := w.in.ListDead(t.Context(), coreinbox.DeadQuery{})
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	if p := list[0]; p.EventID != "e" || p.Attempts != 3 || p.Code != "handler_error" || p.Text != errHandler.Error() {
		t.Errorf("listed %+v", p)
	}
	n, err := w.in.Redrive(t.Context(), []coreinbox.Key{list[0].Key}, "ada", "fixed")
	if n != 1 || err != nil {
		t.Fatalf("redriven %d, %v", n, err)
	}
	if err := w.deliver(w.handler, event(t.Context(), "e")); err != nil {
		t.Errorf("redriven: %v", err)
	}
	w.effect("e", 1)
	if err := w.deliver(w.handler, event(t.Context(), "permanent")); !errors.Is(err, coreinbox.ErrDead) {
		t.Errorf("the other is %v", err)
	}
}

func TestRedriveRefusesIncompleteRequests(t *testing.T) {
	w := newWorld(t)
	key := coreinbox.Key{Consumer: "billing", Handler: "h", EventID: "e"}
	for name, req := range map[string]struct {
		keys          []coreinbox.Key
		actor, reason string
	}{
		"nothing":          {},
		"no actor":         {[]coreinbox.Key{key}, "", "r"},
		"no reason":        {[]coreinbox.Key{key}, "a", ""},
		"another consumer": {[]coreinbox.Key{{Consumer: "c", Handler: "h", EventID: "e"}}, "a", "r"},
	} {
		_, err := w.in.Redrive(t.Context(), req.keys, req.actor, req.reason)
		wantErr(t, err, coreinbox.ErrInvalidRequest, "%s", name)
	}
}

func TestAckDead(t *testing.T) {
	w := newWorld(t, func(c *coreinbox.Config) { c.MaxAttempts = 1 })
	w.in.opts = []inbox.Option{inbox.AckDead()}
	h, calls := w.times(100, errHandler)
	for range 3 {
		if err := w.deliver(h, event(t.Context(), "e")); err != nil {
			t.Errorf("not acknowledged: %v", err)
		}
	}
	equal(t, calls.Load(), 1, "calls")
	w.hears("dead", 3)
	if err := w.deliver(h, message.NewMessage("", nil)); !errors.Is(err, coreinbox.ErrInvalidMessage) {
		t.Errorf("a message without a key cannot be dead: %v", err)
	}
	w.hears("dead", 4)
	w.hears("failed", 0)
}

// AckDead acknowledges dead events only. An error about another dead event, or the cause for which
// the context ended, makes no event dead. No poison queue takes its message.
func TestAckDeadAcknowledgesNoOther(t *testing.T) {
	for _, final := range []error{
		core.Permanent(errHandler), fmt.Errorf("other: %w", coreinbox.ErrDead),
		fmt.Errorf("other: %w", coreinbox.ErrInvalidMessage),
	} {
		w := newWorld(t)
		w.in.opts = []inbox.Option{inbox.AckDead()}
		refused := func(name string, err error) {
			t.Helper()
			if err == nil || coreinbox.Final(err) {
				t.Errorf("%s, %v: %v, final: %t", name, final, err, coreinbox.Final(err))
			}
		}
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(final)
		h, calls := w.times(100, final)
		refused("ended", w.deliver(h, event(ended, "a")))
		for _, err := range w.in.ProcessBatch(ended, []*message.Message{event(ended, "b"), event(ended, "c")},
			func(context.Context, []*message.Message) error { return nil }) {
			refused("batch", err)
		}
		equal(t, calls.Load(), 0, "calls")
		if class, marked := core.ClassOf(final); !marked || class != core.ClassPermanent {
			refused("first failure", w.deliver(h, event(t.Context(), "d")))
		}
		if list, err := w.in.ListDead(t.Context(), coreinbox.DeadQuery{}); len(list) != 0 || err != nil {
			t.Errorf("%d dead events, %v", len(list), err)
		}
		w.hears("dead", 0)
	}
}

// sqlState is an error of PostgreSQL in the form in which its drivers return it.
type sqlState string

func (e sqlState) Error() string    { return "SQLSTATE " + string(e) }
func (e sqlState) SQLState() string { return string(e) }

// Failures that are not the event's fault spend no attempt.
func TestSomeFailuresSpendNoAttempt(t *testing.T) {
	for name, tt := range map[string]struct {
		err   error
		spent bool
	}{
		"an ordinary error":          {errHandler, true},
		"transient":                  {core.Transient(errHandler), true},
		"unavailable":                {core.Unavailable(errHandler), false},
		"unavailable for the key":    {core.UnavailableForKey(errHandler), false},
		"a deadlock":                 {fmt.Errorf("%w: %w", core.ErrTxAborted, sqlState("40P01")), false},
		"a lock that timed out":      {fmt.Errorf("x: %w", sqlState("55P03")), false},
		"the database is going down": {fmt.Errorf("x: %w", sqlState("57P01")), false},
		"a lost connection":          {driver.ErrBadConn, false},
		"connection refused":         {&url.Error{Op: "Post", Err: syscall.ECONNREFUSED}, false},
		"a response cut off":         {&url.Error{Op: "Post", Err: io.ErrUnexpectedEOF}, false},
		"a message cut off":          {fmt.Errorf("decode: %w", io.ErrUnexpectedEOF), true},
		"a handler that hides errors of its statements": {fmt.Errorf("x: %w", core.ErrTxAborted), true},
		"a violated constraint":                         {sqlState("23505"), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *coreinbox.Config) { c.MaxAttempts = 1 })
			h, _ := w.times(1000, tt.err)
			if err := w.deliver(h, event(t.Context(), "e")); errors.Is(err, coreinbox.ErrDead) != tt.spent ||
				!errors.Is(err, tt.err) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("the process is shutting down", func(t *testing.T) {
		w := newWorld(t, func(c *coreinbox.Config) { c.MaxAttempts = 1 })
		ctx, cancel := context.WithCancel(t.Context())
		h := func(*message.Message) ([]*message.Message, error) { cancel(); return nil, ctx.Err() }
		if err := w.deliver(h, event(ctx, "e")); !errors.Is(err, context.Canceled) ||
			errors.Is(err, coreinbox.ErrDead) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a handler that is always too slow is not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { // so that the time passes in the handler, not before it
			w := newWorld(t, func(c *coreinbox.Config) { c.MaxAttempts = 1 })
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			h := func(msg *message.Message) ([]*message.Message, error) {
				<-msg.Context().Done()
				return nil, msg.Context().Err()
			}
			wantErr(t, w.deliver(h, event(ctx, "e")), coreinbox.ErrDead, "deliver")
		})
	})
}
