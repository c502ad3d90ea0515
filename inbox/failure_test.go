package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
)

// production removes the settings of the world that make tests fast.
func production(c *coreinbox.Config) { c.MinAge, c.RetryPause = 0, 0 }

// redeliver delivers the message of an event, as a broker does, until it is acknowledged or dead.
func (w *world) redeliver(h message.HandlerFunc, id string) (deliveries int, err error) {
	for {
		deliveries++
		if err = w.deliver(h, event(w.t.Context(), id)); err == nil || coreinbox.Final(err) {
			return deliveries, err
		}
	}
}

// A service that refuses connections for ten minutes makes no event dead. It is not asked as fast
// as messages can be delivered.
func TestAnOutageGivesNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, production)
		end := time.Now().Add(10 * time.Minute)
		h := func(msg *message.Message) ([]*message.Message, error) {
			if time.Now().Before(end) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
			}
			return w.handler(msg)
		}
		for n := range 20 {
			deliveries, err := w.redeliver(h, fmt.Sprint(n))
			if err != nil {
				t.Fatalf("event %d: %v", n, err)
			}
			if deliveries > 140 { // at most one in 5 s, once the pause has grown
				t.Errorf("event %d: %d deliveries", n, deliveries)
			}
			w.effect(fmt.Sprint(n), 1)
		}
		if late := time.Since(end); late > maxRetryPause {
			t.Errorf("the first event was processed %s after the outage", late)
		}
		w.hears("dead", 0)
	})
}

// A short disturbance with an unknown error makes no event dead. An event that stays broken is dead
// after MinAge and MaxAttempts.
func TestEventsAreDeadAfterAttemptsAndAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, production)
		start := time.Now()
		h := func(msg *message.Message) ([]*message.Message, error) {
			if time.Since(start) < 4*time.Minute {
				return nil, errHandler
			}
			return w.handler(msg)
		}
		if deliveries, err := w.redeliver(h, "for a while"); err != nil || deliveries <= maxAttempts {
			t.Errorf("broken for a while: %v after %d deliveries", err, deliveries)
		}
		start = time.Now()
		deliveries, err := w.redeliver(func(*message.Message) ([]*message.Message, error) { return nil, errHandler },
			"for ever")
		took := time.Since(start)
		if !errors.Is(err, coreinbox.ErrDead) || took < minAge || took > minAge+maxRetryPause {
			t.Errorf("broken to the end: %v after %s", err, took)
		}
		if deliveries < 35 || deliveries > 75 { // 300 s, with pauses of 5 s to 10 s
			t.Errorf("%d deliveries", deliveries)
		}

		// The attempts must be spent too, even if the event is old.
		slow := newWorld(t, production, func(c *coreinbox.Config) { c.MaxAttempts = 5 })
		for n := 1; n <= 5; n++ {
			err := slow.deliver(func(*message.Message) ([]*message.Message, error) { return nil, errHandler },
				event(t.Context(), "e"))
			equal(t, errors.Is(err, coreinbox.ErrDead), (n == 5), "attempt %d: %v", n, err)
			time.Sleep(time.Hour)
		}
		// After Redrive the event has fresh attempts and a new age.
		list, err := slow.in.ListDead(t.Context(), coreinbox.DeadQuery{})
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		must(t, errOf(slow.in.Redrive(t.Context(), []coreinbox.Key{list[0].Key}, "ada", "fixed")))
		redriven := time.Now()
		if _, err := slow.redeliver(func(*message.Message) ([]*message.Message, error) { return nil, errHandler },
			"e"); !errors.Is(err, coreinbox.ErrDead) || time.Since(redriven) < minAge {
			t.Errorf("redriven: %v after %s", err, time.Since(redriven))
		}
	})
}

// The pause doubles with the attempts of an event and ends with the message's context. A dead event
// that keeps coming is held for a pause too.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t,
			func(c *coreinbox.Config) {
				c.RetryPause, c.MaxRetryPause, c.MaxAttempts = time.Second, 5*time.Second, 6
			})
		fails := func(*message.Message) ([]*message.Message, error) { return nil, errHandler }
		pause := func(ctx context.Context, h message.HandlerFunc, id string) time.Duration {
			start := time.Now()
			_ = w.deliver(h, event(ctx, id))
			return time.Since(start)
		}
		within := func(what string, got, most time.Duration) {
			t.Helper()
			if got < most/2 || got > most {
				t.Errorf("%s: %s, want %s less up to half", what, got, most)
			}
		}
		for n, most := range []time.Duration{
			time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second,
			5 * time.Second,
		} {
			within(fmt.Sprintf("attempt %d", n+1), pause(t.Context(), fails, "e"), most)
		}
		if got := pause(t.Context(), fails, "e"); got != 0 {
			t.Errorf("the poison queue had to wait for %s", got)
		}
		if got := pause(t.Context(), fails, "e"); got != 5*time.Second {
			t.Errorf("a dead event came again after %s", got)
		}
		away := func(*message.Message) ([]*message.Message, error) { return nil, core.Unavailable(errHandler) }
		within("an outage", pause(t.Context(), away, "a"), time.Second)
		within("an outage goes on", pause(t.Context(), away, "b"), 2*time.Second)
		equal(t, pause(t.Context(), w.handler, "c"), 0, "a success took")
		within("the next outage", pause(t.Context(), away, "b"), time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		equal(t, pause(ctx, fails, "f"), 10*time.Millisecond, "shutting down took")
		batch := func(context.Context, []*message.Message) error { return errHandler }
		start := time.Now()
		w.in.ProcessBatch(t.Context(), []*message.Message{
			event(t.Context(), "x"), event(t.Context(), "y"),
			event(t.Context(), "z"),
		}, batch)
		within("a batch", time.Since(start), time.Second)
	})
}

// A handler that panics is not run again as fast as a broker delivers.
func TestAPanicPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, production)
		var calls atomic.Int64
		start := time.Now()
		for time.Since(start) < time.Minute {
			func() {
				defer func() { _ = recover() }()
				_ = w.deliver(func(*message.Message) ([]*message.Message, error) { calls.Add(1); panic("boom") },
					event(t.Context(), "e"))
			}()
		}
		if calls.Load() > 25 {
			t.Errorf("%d calls in a minute", calls.Load())
		}
		w.hears("failed", int(calls.Load()))
	})
}
