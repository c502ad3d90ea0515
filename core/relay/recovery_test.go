package relay_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// Within two seconds after an outage of the database, publishing goes on. This holds for an outage
// of any length at any point of the relay.
func TestDatabaseIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		w := newWorld(t, core.Config{})
		w.faulty.Hook(func(context.Context, outboxtest.Method) error {
			if down.Load() {
				return errors.New("the database system is starting up")
			}
			return nil
		})
		w.run()
		for range 100 { // on the fast path, so that outcomes wait to be written
			w.publish(core.Event{Type: "a"})
		}
		down.Store(true)
		producer := join(t, w.repo, w.pub, core.Config{})
		for range 100 {
			producer.publish(core.Event{Type: "a"})
		}
		time.Sleep(10 * time.Minute)
		down.Store(false)
		time.Sleep(2100 * time.Millisecond)
		if n := len(w.pub.Accepted()); n < 200 {
			t.Errorf("%d of 200 events were published 2 s after the database was back", n)
		}
		time.Sleep(time.Second)
		w.atRest(200)
	})
}

// The first goroutine that reaches the database again tells the others, which then end their
// pauses.
func TestSuccessEndsThePausesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu atomic.Int64 // the time until which the database is away
		var back [2]atomic.Int64
		w := newWorld(t, core.Config{Relay: relay.Config{MarkDelay: time.Millisecond}})
		w.faulty.Hook(func(_ context.Context, m outboxtest.Method) error {
			if time.Now().UnixNano() < mu.Load() {
				return errors.New("away")
			}
			i := 0
			switch m {
			case outboxtest.MethodMarkDone:
				i = 1
			case outboxtest.MethodClaimUnordered, outboxtest.MethodClaimHeads:
			default: // the first call of these methods comes after the outage
				return nil
			}
			back[i].CompareAndSwap(0, time.Now().UnixNano())
			return nil
		})
		w.run()
		w.pub.Block()
		for range 5 {
			w.publish(core.Event{Type: "a"})
		}
		mu.Store(time.Now().Add(time.Minute).UnixNano())
		back[0].Store(0)
		back[1].Store(0)
		w.pub.Unblock()
		time.Sleep(2 * time.Minute)
		if d := time.Duration(back[0].Load() - back[1].Load()).Abs(); d > 50*time.Millisecond {
			t.Errorf("one of poller and writer heard %s after the other that the database is back", d)
		}
		w.atRest(5)
	})
}
