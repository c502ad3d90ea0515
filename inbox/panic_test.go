package inbox_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
)

// chargeCard is a function of a handler whose name must be in the stack.
func chargeCard(v any) { panic(v) }

// outside runs fn on a goroutine of its own, as Watermill's Recoverer does. It returns the value of
// the panic and the stack as a caller sees it.
func outside(fn func()) (value any, stack string, returned bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if value = recover(); value != nil {
				stack = string(debug.Stack())
			}
		}()
		fn()
		returned = true
	}()
	<-done
	return value, stack, returned
}

// A panic goes on with its value and its stack. The error that is recorded, logged and reported has
// the value of the panic and its place.
func TestAPanicIsRecordedWithItsValue(t *testing.T) {
	const text = "panic: no card \"visa\" ?"
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logged := func() string { defer log.Reset(); return log.String() }
		w := newWorld(t,
			func(c *coreinbox.Config) { c.MaxAttempts, c.Logger = 1, slog.New(slog.NewTextHandler(&log, nil)) })
		var told error
		l := newLeased(t, func(c *coreinbox.AtLeastOnceConfig) {
			c.MaxAttempts, c.MinAge, c.Logger = 1, -1, slog.New(slog.NewTextHandler(&log, nil))
		},
			func(c *coreinbox.AtLeastOnceConfig) {
				c.Observer = &coreinbox.Observer{Failed: func(i coreinbox.Info) { told = i.Err }}
			})
		panics := func(*message.Message) ([]*message.Message, error) {
			chargeCard("no card \"visa\" \xff")
			return nil, nil
		}
		exits := func(*message.Message) ([]*message.Message, error) { runtime.Goexit(); return nil, nil }

		checkErr := func(what string, err error, want, stack string) {
			t.Helper()
			pe, ok := errors.AsType[*core.PanicError](err)
			if !ok || !errors.Is(err, coreinbox.ErrPanicked) || !strings.Contains(err.Error(), want) ||
				!strings.Contains(string(pe.Stack), stack) {
				t.Errorf("%s: told %v", what, err)
			}
		}
		checkOutside := func(what string, fn func()) {
			t.Helper()
			if v, stack, _ := outside(fn); v != "no card \"visa\" \xff" ||
				!strings.Contains(stack, "inbox_test.chargeCard") {
				t.Errorf("%s: %v went on, with the stack\n%s", what, v, stack)
			}
		}
		parked := func(id, code, text string) {
			t.Helper()
			list, err := w.in.ListDead(t.Context(), coreinbox.DeadQuery{})
			must(t, err)
			for _, p := range list {
				if p.EventID == id {
					if p.Code != code || !strings.Contains(p.Text, text) {
						t.Errorf("%s: recorded %s: %s", id, p.Code, p.Text)
					}
					return
				}
			}
			t.Errorf("%s: not recorded, but %v", id, list)
		}
		last := func() error { return w.infos[len(w.infos)-1].Err }

		checkOutside("transaction", func() { _ = w.deliver(panics, event(t.Context(), "e")) })
		parked("e", "panic", text)
		checkErr("transaction", last(), text, "inbox_test.chargeCard")
		if line := logged(); !strings.Contains(line, "no card") || !strings.Contains(line, "inbox_test.chargeCard") {
			t.Errorf("transaction: logged %s", line)
		}

		if v, _, returned := outside(func() { _ = w.deliver(exits, event(t.Context(), "exits")) }); v != nil ||
			returned {
			t.Errorf("runtime.Goexit: %v, returned %t", v, returned)
		}
		parked("exits", "goexit", "runtime.Goexit")
		checkErr("runtime.Goexit", last(), "runtime.Goexit", "runtime.Goexit")
		logged()

		errs := w.in.ProcessBatch(t.Context(), []*message.Message{event(t.Context(), "batch")},
			func(context.Context, []*message.Message) error {
				chargeCard("no card \"visa\" \xff")
				return nil
			})
		checkErr("batch", errs[0], text, "inbox_test.chargeCard")
		parked("batch", "panic", text)
		if line := logged(); !strings.Contains(line, "inbox_test.chargeCard") {
			t.Errorf("batch: logged %s", line)
		}
		if _, _, returned := outside(func() {
			w.in.ProcessBatch(t.Context(), []*message.Message{event(t.Context(), "batch exits")},
				func(context.Context, []*message.Message) error {
					runtime.Goexit()
					return nil
				})
		}); returned {
			t.Error("runtime.Goexit returned")
		}
		if line := logged(); !strings.Contains(line, "runtime.Goexit ended") {
			t.Errorf("runtime.Goexit in a batch: logged %s", line)
		}

		checkOutside("lease", func() { _, _ = l.h(panics)(event(t.Context(), "e")) })
		checkErr("lease", told, text, "inbox_test.chargeCard")
		if line := logged(); !strings.Contains(line, "no card") || !strings.Contains(line, "inbox_test.chargeCard") {
			t.Errorf("lease: logged %s", line)
		}
		if v, _, returned := outside(func() { _, _ = l.h(exits)(event(t.Context(), "exits")) }); v != nil || returned {
			t.Errorf("lease, runtime.Goexit: %v, returned %t", v, returned)
		}
		checkErr("lease, runtime.Goexit", told, "runtime.Goexit", "runtime.Goexit")
	})
}
