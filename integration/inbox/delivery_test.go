package inbox_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// Each test of this file has a Router, a Go channel and a database. Every consumer should have such
// tests.

func TestFirstDeliveryApplies(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		ps := inboxRouter(t, consume(w.handler, w.in.Middleware))
		fixture.NoError(t, ps.Publish("orders", inboxMessage("e")))
		w.wantEffects(map[string]int{"e handled": 1})
		if status, attempts := w.status("e"); status != 2 || attempts != 1 {
			t.Errorf("status %d after %d attempts", status, attempts)
		}
	})
}

func TestRedeliveryChangesNothing(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		ps := inboxRouter(t, consume(w.handler, w.in.Middleware))
		for range 5 {
			fixture.NoError(t, ps.Publish("orders", inboxMessage("e")))
		}
		w.wantEffects(map[string]int{"e handled": 1})
		w.hears("duplicate", 4)
	})
}

// A message that comes twice has its side effect once. The second copy has another message id, as a
// relay that repeats an event may give it.
func TestDuplicateDeliveryHasItsEffectOnce(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		ps := inboxRouter(t, consume(w.handler, w.in.Middleware))
		first, second := inboxMessage("e"), inboxMessage("e")
		fixture.Must(t, first.UUID != second.UUID, "the messages are the same")
		fixture.NoError(t, ps.Publish("orders", first, second))
		w.wantEffects(map[string]int{"e handled": 1})
	})
}

// If a process dies between the commit and the acknowledgement, the broker sees a message that was
// not acknowledged.
func TestCrashBetweenCommitAndAckIsSkipped(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		var crashes atomic.Int64
		crash := func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				if _, err := h(msg); err != nil {
					return nil, err
				}
				w.wantEffects(map[string]int{"e handled": 1}) // committed
				if crashes.Add(1) <= 2 {
					return nil, errors.New("crash before the acknowledgement")
				}
				return nil, nil
			}
		}
		ps := inboxRouter(t, consume(w.handler, crash, w.in.Middleware))
		fixture.NoError(t, ps.Publish("orders", inboxMessage("e")))
		if crashes.Load() != 3 {
			t.Errorf("delivered %d times, want 3", crashes.Load())
		}
		w.wantEffects(map[string]int{"e handled": 1})
		w.hears("duplicate", 2)
	})
}

func TestInvalidSchemaIsDeadLettered(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		var dlt deadLetters
		var calls atomic.Int64
		h := inboxCounted(&calls, func(msg *message.Message) ([]*message.Message, error) {
			if err := w.apply(msg, "half"); err != nil {
				return nil, err
			}
			return nil, core.Permanent(errors.New("payload is not an order"))
		})
		ps := inboxRouter(t, consume(h, w.chain(&dlt)))
		fixture.NoError(t, ps.Publish("orders", inboxMessage("e")))
		if calls.Load() != 1 || dlt.ids() != "e" {
			t.Errorf("%d calls, dead letters %q", calls.Load(), dlt.ids())
		}
		if status, attempts := w.status("e"); status != 4 || attempts != 1 {
			t.Errorf("status %d after %d attempts, want parked", status, attempts)
		}
		w.wantEffects(map[string]int{})

		// The event is processed only after a person has redriven it.
		fixture.NoError(t, ps.Publish("orders", dlt.msgs[0].Copy()))
		fixture.Check(t, calls.Load() == 1, "a parked event was processed")
		list, err := w.in.ListDead(t.Context(), coreinbox.DeadQuery{Handler: "handler"})
		if err != nil || len(list) != 1 || list[0].Text != "payload is not an order" || list[0].Topic != "orders" ||
			list[0].Code != "permanent" {
			t.Fatalf("%+v, %v", list, err)
		}
		n, err := w.in.Redrive(t.Context(), []coreinbox.Key{list[0].Key}, "ada", "the schema is registered")
		if n != 1 || err != nil {
			t.Fatal(n, err)
		}
		repaired := inboxRouter(t, consume(w.handler, w.chain(&dlt)))
		fixture.NoError(t, repaired.Publish("orders", dlt.msgs[0].Copy()))
		w.wantEffects(map[string]int{"e handled": 1})
	})
}

// A message without an id can be neither recorded as processed nor recorded as dead, so the poison
// queue takes it.
func TestMessageWithoutAnIDIsDeadLettered(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		var dlt deadLetters
		ps := inboxRouter(t, consume(w.handler, w.chain(&dlt)))
		fixture.NoError(t, ps.Publish("orders", message.NewMessage("", []byte(`{"event_id":"not from here"}`))))
		fixture.Check(t, len(dlt.msgs) == 1, "%d dead letters", len(dlt.msgs))
		w.wantEffects(map[string]int{})
	})
}

func TestTransientDatabaseErrorIsRetried(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		var dlt deadLetters
		var calls atomic.Int64
		h := func(msg *message.Message) ([]*message.Message, error) {
			if err := w.apply(msg, "handled"); err != nil {
				return nil, err
			}
			if calls.Add(1) <= 3 {
				return nil, fmt.Errorf("update balance: %w", inboxDeadlock(w.db.Dialect))
			}
			return nil, nil
		}
		ps := inboxRouter(t, consume(h, w.chain(&dlt)))
		fixture.NoError(t, ps.Publish("orders", inboxMessage("e")))
		if calls.Load() != 4 || len(dlt.msgs) != 0 {
			t.Errorf("%d calls, dead letters %q", calls.Load(), dlt.ids())
		}
		w.wantEffects(map[string]int{"e handled": 1})
		w.hears("failed", 0)
	})
}

// A refusal by the business is an answer, not a failure: the handler changes nothing and the event
// is done.
func TestViolatedInvariantChangesNothing(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		fixture.MustExec(t, w.pool, "CREATE TABLE orders (id INTEGER PRIMARY KEY, status VARCHAR(16))")
		fixture.MustExec(t, w.pool, "INSERT INTO orders VALUES (1, 'cancelled')")
		ship := func(msg *message.Message) ([]*message.Message, error) {
			if err := w.orm.exec(msg.Context(), "UPDATE orders SET status = 'shipped' WHERE id = 1 AND status = "+
				"'placed'"); err != nil {
				return nil, err
			}
			return nil, w.orm.exec(msg.Context(), "INSERT INTO effects SELECT 'e', status FROM orders WHERE id = 1 "+
				"AND status = 'shipped'")
		}
		var dlt deadLetters
		ps := inboxRouter(t, consume(ship, w.chain(&dlt)))
		for range 2 {
			fixture.NoError(t, ps.Publish("orders", inboxMessage("e")))
		}
		w.wantEffects(map[string]int{})
		w.hears("processed", 1)
		if status, _ := w.status("e"); status != 2 || len(dlt.msgs) != 0 {
			t.Errorf("status %d, dead letters %q", status, dlt.ids())
		}
	})
}

func TestReplayFromEarliestChangesNothing(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		ps := inboxRouter(t, consume(w.handler, w.in.Middleware))
		want := map[string]int{}
		for range 2 {
			for n := range 30 {
				id := fmt.Sprintf("e%d", n)
				want[id+" handled"] = 1
				fixture.NoError(t, ps.Publish("orders",
					inboxMessage(id, "partition_key", "k", "key_seq", fmt.Sprint(n+1))))
			}
			w.wantEffects(want)
		}
		w.hears("processed", 30)
		w.hears("duplicate", 30)
	})
}

// Two processes of one consumer get the same messages at the same time. The primary key lets only
// one of them process a message.
func TestTwoInstancesAreDeduplicatedByTheConstraint(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		one := inboxRouter(t, consume(w.handler, w.in.Middleware))
		two := inboxRouter(t, consume(w.handler, w.another().Middleware))
		want := map[string]int{}
		for n := range 20 {
			id := fmt.Sprintf("e%d", n)
			want[id+" handled"] = 1
			var wg sync.WaitGroup
			for _, ps := range []message.Publisher{one, two} {
				wg.Go(func() {
					if err := ps.Publish("orders", inboxMessage(id)); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
		w.wantEffects(want)
		w.hears("processed", 20)
		w.hears("duplicate", 20)
		w.hears("failed", 0)
	})
}
