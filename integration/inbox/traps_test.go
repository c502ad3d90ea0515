package inbox_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

var errOnce = errors.New("fails the first time")

// failsFirst applies each message and fails the first n times.
func (w *inboxWorld) failsFirst(n int64) message.HandlerFunc {
	var calls atomic.Int64
	return func(msg *message.Message) ([]*message.Message, error) {
		if err := w.apply(msg, "handled"); err != nil {
			return nil, err
		}
		if calls.Add(1) <= n {
			return nil, errOnce
		}
		return nil, nil
	}
}

// Watermill's Deduplicator marks a message as seen before it is handled. If the handler fails, the
// redelivery is dropped, and the message is lost. The inbox keeps it.
func TestInboxKeepsWhatWatermillsDeduplicatorLoses(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		var calls atomic.Int64
		theirs := inboxRouter(t, consume(func(msg *message.Message) ([]*message.Message, error) {
			if calls.Add(1) == 1 {
				return nil, errOnce
			}
			return nil, w.orm.transactor.RunInTx(msg.Context(), func(ctx context.Context, _ core.Tx) error {
				return w.orm.exec(ctx, "INSERT INTO effects VALUES ('theirs', 'handled')")
			})
		}, (&middleware.Deduplicator{
			KeyFactory: func(msg *message.Message) (string, error) { return msg.Metadata.Get(core.HeaderEventID), nil },
			Repository: newExpiringKeys(t), Timeout: time.Second,
		}).Middleware))
		fixture.NoError(t, theirs.Publish("orders", inboxMessage("theirs")))
		if calls.Load() != 1 {
			t.Errorf("%d calls: Watermill's Deduplicator has learned to keep messages, so say so in the documents",
				calls.Load())
		}

		ours := inboxRouter(t, consume(w.failsFirst(1), w.in.Middleware))
		fixture.NoError(t, ours.Publish("orders", inboxMessage("ours")))
		w.wantEffects(map[string]int{"ours handled": 1})
	})
}

func newExpiringKeys(t *testing.T) middleware.ExpiringKeyRepository {
	t.Helper()
	keys, err := middleware.NewMapExpiringKeyRepository(time.Minute)
	fixture.NoError(t, err)
	return keys
}

// Retry inside of the inbox runs the handler a second time in the same transaction, which has the
// writes of the first attempt. So half-done work is committed, and on PostgreSQL all attempts after
// an error of SQL fail. Chain has the order that works.
func TestInboxRetryInsideTrap(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		inside := fastRetry
		inside.ShouldRetry = nil
		_, err := w.in.Middleware(inside.Middleware(w.failsFirst(1)))(w.routed("wrong"))
		fixture.NoError(t, err)
		w.wantEffects(map[string]int{"wrong handled": 2}) // so the documents say that this order must not be used

		var inTx atomic.Int64
		bad := func(msg *message.Message) ([]*message.Message, error) {
			if inTx.Add(1) == 1 {
				return nil, w.orm.exec(msg.Context(), "INSERT INTO effects VALUES ('too', 'many', 'values')")
			}
			return nil, w.apply(msg, "handled")
		}
		fixture.MustExec(t, w.pool, "DELETE FROM effects")
		_, err = w.in.Middleware(inside.Middleware(bad))(w.routed("sql"))
		fixture.Check(t, w.db.Dialect != core.Postgres || err != nil,
			"PostgreSQL committed a transaction in which SQL had failed")

		fixture.MustExec(t, w.pool, "DELETE FROM effects")
		ps := inboxRouter(t, consume(w.failsFirst(1), w.chain(&deadLetters{})))
		fixture.NoError(t, ps.Publish("orders", inboxMessage("right")))
		w.wantEffects(map[string]int{"right handled": 1})
	})
}

// routed returns a message as the handler of a Router gets it.
func (w *inboxWorld) routed(id string, metadata ...string) *message.Message {
	w.t.Helper()
	got := make(chan *message.Message, 1)
	ps := inboxRouter(w.t, consume(func(msg *message.Message) ([]*message.Message, error) {
		c := msg.Copy()
		c.SetContext(context.WithoutCancel(msg.Context()))
		got <- c
		return nil, nil
	}))
	fixture.NoError(w.t, ps.Publish("orders", inboxMessage(id, metadata...)))
	return <-got
}

// A poison queue inside of the inbox hides the error of a handler that has written already. The
// inbox must not commit these writes.
func TestInboxPoisonInsideTrap(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		var dlt deadLetters
		poison, err := middleware.PoisonQueue(&dlt, "poison")
		fixture.NoError(t, err)
		_, err = w.in.Middleware(poison(w.failsFirst(1)))(w.routed("e"))
		fixture.Check(t, errors.Is(err, inbox.ErrPoisonInside), "%v, want ErrPoisonInside", err)
		w.wantEffects(map[string]int{})

		ps := inboxRouter(t, consume(w.failsFirst(1), w.chain(&deadLetters{})))
		fixture.NoError(t, ps.Publish("orders", inboxMessage("right")))
		w.wantEffects(map[string]int{"right handled": 1})
	})
}

// Retry gives up. Only messages that can never be processed go to the poison queue at once. The
// others are delivered again until they are dead.
func TestInboxChainGivesUpAfterMaxAttempts(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		var dlt deadLetters
		ps := inboxRouter(t, consume(w.failsFirst(1000), w.chain(&dlt)))
		fixture.NoError(t, ps.Publish("orders", inboxMessage("e")))
		if dlt.ids() != "e" {
			t.Errorf("dead letters %q", dlt.ids())
		}
		if status, attempts := w.status("e"); status != 4 || attempts != 10 {
			t.Errorf("status %d after %d attempts", status, attempts)
		}
		w.wantEffects(map[string]int{})
	})
}

// A Pub/Sub that passes on the context of the publisher passes on its transaction. The inbox
// refuses it.
func TestInboxRefusesThePublishersTransaction(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		ps := gochannel.NewGoChannel(gochannel.Config{PreserveContext: true}, watermill.NopLogger{})
		defer ps.Close()
		msgs, err := ps.Subscribe(t.Context(), "orders")
		fixture.NoError(t, err)
		fixture.NoError(t, w.orm.transactor.RunInTx(t.Context(), func(ctx context.Context, _ core.Tx) error {
			msg := inboxMessage("e")
			msg.SetContext(ctx)
			return ps.Publish("orders", msg)
		}))
		msg := <-msgs
		in := w.another(func(c *coreinbox.Config) { c.Handler = "h" })
		if _, err := in.Middleware(w.handler)(msg); !errors.Is(err, coreinbox.ErrInTransaction) {
			t.Errorf("%v", err)
		}
		msg.Ack()
	})
}

// The Timeout middleware ends the handler's context. The transaction is rolled back, the failure is
// recorded all the same, and the next attempt succeeds.
func TestInboxWithTheTimeoutMiddleware(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		var calls atomic.Int64
		var limited atomic.Bool
		h := func(msg *message.Message) ([]*message.Message, error) {
			if err := w.apply(msg, "handled"); err != nil {
				return nil, err
			}
			calls.Add(1)
			if limited.Load() {
				<-msg.Context().Done()
				return nil, msg.Context().Err()
			}
			return nil, nil
		}
		// On a slow machine the limit may end before the handler is called, and a failure may not
		// be recorded. The limit then doubles. No attempt is limited after that.
		limit := 300 * time.Millisecond
		once := func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				_, attempts := w.status("e")
				limited.Store(calls.Load() == 0 || attempts == 0)
				if !limited.Load() {
					return h(msg)
				}
				defer func() { limit *= 2 }()
				return middleware.Timeout(limit)(h)(msg)
			}
		}
		ps := inboxRouter(t, consume(h, once, w.in.Middleware))
		fixture.NoError(t, ps.Publish("orders", inboxMessage("e")))
		w.wantEffects(map[string]int{"e handled": 1})
		if status, attempts := w.status("e"); status != 2 || attempts < 2 {
			t.Errorf("status %d after %d attempts", status, attempts)
		}
	})
}

// Another name is another consumer, which processes every message again.
func TestInboxRenamedConsumerProcessesAgain(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		for _, consumer := range []string{"billing", "Billing", "billing", "invoicing"} {
			in := w.another(func(c *coreinbox.Config) { c.Consumer = consumer })
			ps := inboxRouter(t, consume(w.handler, in.Middleware))
			fixture.NoError(t, ps.Publish("orders", inboxMessage("e")))
		}
		w.wantEffects(map[string]int{"e handled": 3})
	})
}

// If the answer to COMMIT is lost, the message is not acknowledged, and its redelivery finds out
// whether it was processed.
func TestInboxCommitWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]string{"committed": commitCarriedOut, "not committed": commitNeverArrived} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db testdb.DB) {
				faulty := withCommitFaults(db)
				w := newInboxWorld(t, db, inboxSQL(faulty.Open(t), db.Dialect))
				armed := false
				h := func(msg *message.Message) ([]*message.Message, error) {
					if !armed {
						armed = true
						if err := w.orm.exec(msg.Context(), fault); err != nil {
							return nil, err
						}
					}
					return w.handler(msg)
				}
				msg := w.routed("e")
				if _, err := w.in.Middleware(h)(msg); !errors.Is(err, core.ErrCommitUnknown) {
					t.Fatalf("%v, want ErrCommitUnknown", err)
				}
				for range 2 {
					if _, err := w.in.Middleware(h)(msg); err != nil {
						t.Fatal(err)
					}
				}
				w.wantEffects(map[string]int{"e handled": 1})
			})
		})
	}
}

// Eight copies of a message come at once and have one effect, even if the first of them roll back.
// No copy fails because of deadlocks or locks.
func TestInboxConcurrentCopies(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		for round := range 6 {
			id := "e" + string(rune('0'+round))
			msg := w.routed(id)
			h := w.failsFirst(int64(round % 3))
			var wg sync.WaitGroup
			var failed atomic.Int64
			start := make(chan struct{})
			for range 8 {
				wg.Go(func() {
					c := msg.Copy()
					c.SetContext(msg.Context())
					<-start
					switch _, err := w.in.Middleware(h)(c); {
					case errors.Is(err, errOnce):
						failed.Add(1)
					case err != nil:
						t.Errorf("%s: %v", id, err)
					}
				})
			}
			close(start)
			wg.Wait()
			if n := w.effects()[id+" handled"]; n != 1 {
				t.Errorf("%s: %d effects", id, n)
			}
			// A copy that fails while another one has succeeded is a duplicate.
			if n := failed.Load(); n > int64(round%3) {
				t.Errorf("%s: %d failures", id, n)
			}
		}
	})
}

// Two batches with the same messages in opposite orders come together with single messages.
func TestInboxConcurrentBatches(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		in := w.another(func(c *coreinbox.Config) { c.Handler = "batch" })
		const events = 60
		want := map[string]int{}
		ids := make([]string, events)
		for n := range ids {
			ids[n] = "e" + strings.Repeat("x", n)
			want[ids[n]+" batch"] = 1
		}
		fn := func(_ context.Context, fresh []*message.Message) error {
			for _, msg := range fresh {
				if err := w.apply(msg, "batch"); err != nil {
					return err
				}
			}
			return nil
		}
		var wg sync.WaitGroup
		for worker := range 6 {
			wg.Go(func() {
				var msgs []*message.Message
				for n := range ids {
					if worker%2 == 1 {
						n = events - 1 - n
					}
					msgs = append(msgs, inboxMessage(ids[n]))
				}
				for _, err := range in.ProcessBatch(context.Background(), msgs[:events/2+worker], fn) {
					if err != nil {
						t.Error(err)
					}
				}
				for _, err := range in.ProcessBatch(context.Background(), msgs[events/3:], fn) {
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		w.wantEffects(want)
	})
}

// correlations is a publisher that records correlation ids.
type correlations struct{ ids []string }

func (c *correlations) Publish(_ string, msgs ...*message.Message) error {
	for _, m := range msgs {
		c.ids = append(c.ids, m.Metadata[middleware.CorrelationIDMetadataKey])
	}
	return nil
}

func (*correlations) Close() error { return nil }

// A produced message carries the correlation id of the consumed message, wherever Watermill's
// middleware for it stands.
func TestInboxKeepsTheCorrelationID(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]func(in *wired) []message.HandlerMiddleware{
		"outside": func(in *wired) []message.HandlerMiddleware {
			return []message.HandlerMiddleware{middleware.CorrelationID, in.Middleware}
		},
		"inside": func(in *wired) []message.HandlerMiddleware {
			return []message.HandlerMiddleware{in.Middleware, middleware.CorrelationID}
		},
		"nowhere": func(in *wired) []message.HandlerMiddleware {
			return []message.HandlerMiddleware{in.Middleware}
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachInbox(t, func(t *testing.T, w *inboxWorld) {
				out := &correlations{}
				in := w.another()
				in.opts = append(in.opts, inbox.Publisher(out))
				ps := inboxRouter(t, func(r *message.Router, ps *gochannel.GoChannel) {
					r.AddMiddleware(order(in)...)
					r.AddHandler("h", "orders", ps, "invoices", ps, func(*message.Message) ([]*message.Message, error) {
						own := inboxMessage("own")
						middleware.SetCorrelationID("its own", own)
						return message.Messages{
							inboxMessage("i"), own,
							&message.Message{UUID: "bare", Metadata: message.Metadata{}},
						}, nil
					})
				})
				fixture.NoError(t, ps.Publish("orders", inboxMessage("e", middleware.CorrelationIDMetadataKey, "c-1")))
				if got := strings.Join(out.ids, ", "); got != "c-1, its own, c-1" {
					t.Errorf("published with %s", got)
				}
			})
		})
	}
}

// Copies that wait for the copy that is being processed take no connection. So the handler and
// other work can go on.
func TestInboxWaitingCopiesTakeNoConnections(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		w.pool.SetMaxOpenConns(4)
		pool := w.db.Open(t)
		pool.SetMaxOpenConns(4)
		w.orm = inboxSQL(pool, w.db.Dialect)
		const copies = 64
		var arrived, runs atomic.Int64
		in := w.another(func(c *coreinbox.Config) {
			c.Handler = "h"
			c.Tenant = func(coreinbox.Message) string { arrived.Add(1); return "" }
		})
		h := in.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			runs.Add(1)
			if err := w.apply(msg, "handled"); err != nil {
				return nil, err
			}
			fixture.Eventually(t.Context(), t, "all copies are there", func() bool { return arrived.Load() == copies })
			for range 200 { // another connection of the pool, while they wait
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				var one int
				if err := pool.QueryRowContext(ctx, "SELECT 1").Scan(&one); err != nil {
					return nil, err
				}
			}
			if n := pool.Stats().InUse; n > 2 {
				t.Errorf("%d connections in use", n)
			}
			return nil, nil
		})
		var wg sync.WaitGroup
		for range copies {
			wg.Go(func() {
				if _, err := h(inboxMessage("e")); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if runs.Load() != 1 {
			t.Errorf("%d runs", runs.Load())
		}
		w.wantEffects(map[string]int{"e handled": 1})
	})
}
