package inbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/inbox"
)

// leased is an AtLeastOnce behind a poison queue. It keeps what its observer was told.
type leased struct {
	t      *testing.T
	store  *outboxtest.OnceStore
	h      func(message.HandlerFunc) message.HandlerFunc
	heard  map[string]int
	poison []string
}

func newLeased(t *testing.T, set ...func(*coreinbox.AtLeastOnceConfig)) *leased {
	t.Helper()
	l := &leased{t: t, store: outboxtest.NewOnceStore(), heard: map[string]int{}}
	runner, err := once.New(once.Config{Store: l.store, TTL: time.Hour})
	must(t, err)
	hear := func(name string) func(coreinbox.Info) { return func(coreinbox.Info) { l.heard[name]++ } }
	a := newAtLeastOnce(t, append([]func(*coreinbox.AtLeastOnceConfig){func(c *coreinbox.AtLeastOnceConfig) {
		c.Runner, c.RetryPause = runner, 0
		c.Observer = &coreinbox.Observer{
			Failed: hear("failed"), Dead: hear("dead"), InProgress: hear("in progress"),
			Processed: hear("processed"),
		}
	}}, set...)...)
	refuses(t, func() { inbox.Wrap(a.AtLeastOnce) }, "dead messages stay at the broker")
	refuses(t, func() { inbox.Wrap(a.AtLeastOnce, inbox.AckDead()) }, "AckDead is for an Inbox")
	poison := func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			out, err := h(msg)
			if coreinbox.Final(err) {
				l.poison = append(l.poison, msg.Metadata.Get(core.HeaderEventID))
				return nil, nil
			}
			return out, err
		}
	}
	l.h = func(h message.HandlerFunc) message.HandlerFunc { return poison(a.Middleware(h)) }
	return l
}

// redeliver delivers a message until it is acknowledged. Like a broker, it does not wait between
// deliveries. A panic of the handler is a rejection.
func (l *leased) redeliver(h message.HandlerFunc, id string) (deliveries int) {
	l.t.Helper()
	for acked := false; !acked; {
		deliveries++
		func() {
			defer func() { _ = recover() }()
			_, err := l.h(h)(event(l.t.Context(), id))
			acked = err == nil
		}()
	}
	return deliveries
}

// While the lease of a process that died lasts, redeliveries of its message pause and spend no
// attempt. When the lease has ended, the handler runs.
func TestAtLeastOnceAfterACrashedHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t, func(c *coreinbox.AtLeastOnceConfig) { c.MaxAttempts, c.MinAge = 2, -1 })
		key := once.Key{Scope: once.Scope("inbox", "search", "index"), ID: "e"}
		must(t, errOf(l.store.Acquire(t.Context(), once.Request{
			Key: key, Owner: "dead", Lease: 30 * time.Second,
			TTL: time.Hour,
		})))
		start, runs := time.Now(), 0
		deliveries := l.redeliver(func(*message.Message) ([]*message.Message, error) { runs++; return nil, nil }, "e")
		if took := time.Since(start); deliveries > 4 || took < 30*time.Second || took > 31*time.Second {
			t.Errorf("%d deliveries in %s", deliveries, took)
		}
		if runs != 1 || len(l.poison) != 0 {
			t.Errorf("%d runs, poison queue %v, heard %v", runs, l.poison, l.heard)
		}
	})
}

// A message that keeps failing goes to the poison queue after MaxAttempts runs and MinAge. When it
// comes back, it has fresh attempts.
func TestAtLeastOnceGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t)
		for range 2 {
			start, runs := time.Now(), 0
			l.redeliver(func(*message.Message) ([]*message.Message, error) { runs++; return nil, errHandler }, "e")
			if took := time.Since(start); took < minAge || took > minAge+maxRetryPause ||
				runs < maxAttempts || runs > 75 {
				t.Errorf("%d runs in %s", runs, took)
			}
		}
		if len(l.poison) != 2 || l.heard["dead"] != 2 {
			t.Errorf("poison queue %v, heard %v", l.poison, l.heard)
		}
		if n := l.redeliver(func(*message.Message) ([]*message.Message, error) {
			return nil, core.Permanent(errHandler)
		}, "permanent"); n != 1 || len(l.poison) != 3 {
			t.Errorf("permanent: %d deliveries, poison queue %v", n, l.poison)
		}
		if n := l.redeliver(func(*message.Message) ([]*message.Message, error) { return nil, nil }, "e"); n != 1 ||
			l.heard["processed"] != 1 {
			t.Errorf("mended: %d deliveries, heard %v", n, l.heard)
		}
	})
}

// An outage spends no attempt, however long it takes.
func TestAtLeastOnceOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t, func(c *coreinbox.AtLeastOnceConfig) { c.MaxAttempts, c.MinAge = 2, -1 })
		end := time.Now().Add(10 * time.Minute)
		calls := 0
		deliveries := l.redeliver(func(*message.Message) ([]*message.Message, error) {
			if calls++; time.Now().Before(end) {
				return nil, core.Unavailable(errHandler)
			} else if time.Since(end) > time.Minute {
				return nil, nil
			}
			if calls%2 == 0 { // a failure of the event itself, between outages
				return nil, core.Unavailable(errHandler)
			}
			return nil, nil
		}, "e")
		if len(l.poison) != 0 || deliveries > 140 {
			t.Errorf("%d deliveries, poison queue %v", deliveries, l.poison)
		}
		for range 5 { // the consumer shuts down
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := l.h(func(*message.Message) ([]*message.Message, error) {
				cancel()
				return nil, errHandler
			})(event(ctx, "f"))
			if !errors.Is(err, errHandler) && !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		}
		equal(t, len(l.poison), 0, "shutting down: poison queue %v", l.poison)
	})
}

// A panic is reported, counts as an attempt, and pauses. A message whose handler always panics is
// given up before the handler runs once more.
func TestAtLeastOncePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t, func(c *coreinbox.AtLeastOnceConfig) { c.MaxAttempts, c.MinAge = 3, -1 })
		start, runs := time.Now(), 0
		deliveries := l.redeliver(func(*message.Message) ([]*message.Message, error) { runs++; panic("boom") }, "e")
		if runs != 3 || deliveries != 4 || l.heard["failed"] != 3 || len(l.poison) != 1 {
			t.Errorf("%d runs, %d deliveries, heard %v, poison queue %v", runs, deliveries, l.heard, l.poison)
		}
		if took := time.Since(start); took < 350*time.Millisecond {
			t.Errorf("in %s", took)
		}
	})
}
