package inbox_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/inbox"
)

var errHandler = errors.New("the handler failed")

// times returns a handler that fails with err the first n times and then applies.
func (w *world) times(n int, err error) (message.HandlerFunc, *atomic.Int64) {
	var calls atomic.Int64
	return func(msg *message.Message) ([]*message.Message, error) {
		call := calls.Add(1)
		if aerr := w.apply(msg.Context(), msg.Metadata.Get(core.HeaderEventID)); aerr != nil {
			return nil, aerr
		}
		if call <= int64(n) {
			return nil, err
		}
		return nil, nil
	}, &calls
}

func TestDuplicatesAreAcknowledgedWithoutTheHandler(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		if err := w.deliver(w.handler, event(t.Context(), "e", "event_type", "order.placed")); err != nil {
			t.Fatal(err)
		}
	}
	w.effect("e", 1)
	w.hears("processed", 1)
	w.hears("duplicate", 2)
	if i := w.infos[0]; i.Attempt != 1 || i.Event.Type != "order.placed" || i.Duration <= 0 || i.Err != nil {
		t.Errorf("told %+v", i)
	}
}

// Keys differ in every part, and by every byte.
func TestDifferentKeysAreDifferentEvents(t *testing.T) {
	w := newWorld(t)
	ids := []string{"e", "E", "e ", "é", "e\u0301", "ß", "ss"}
	for _, id := range ids {
		for _, tenant := range []string{"", "a", "A"} {
			if err := w.deliver(w.handler, event(t.Context(), id, "tenant_id", tenant)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, id := range ids {
		w.effect(id, 3)
	}
}

func TestTwoHandlersOfOneTopicBothRun(t *testing.T) {
	w := newWorld(t)
	var one, two atomic.Int64
	count := func(n *atomic.Int64) message.NoPublishHandlerFunc {
		return func(*message.Message) error { n.Add(1); return nil }
	}
	pubsub := routed(t, func(r *message.Router, ps *gochannel.GoChannel) {
		r.AddMiddleware(w.in.Middleware)
		r.AddConsumerHandler("one", "orders", ps, count(&one))
		r.AddConsumerHandler("two", "orders", ps, count(&two))
	})
	for range 2 {
		if err := pubsub.Publish("orders", event(t.Context(), "e")); err != nil {
			t.Fatal(err)
		}
	}
	if one.Load() != 1 || two.Load() != 1 {
		t.Errorf("ran %d and %d times, want 1 and 1", one.Load(), two.Load())
	}
	w.hears("duplicate", 2)
}

// A failure leaves nothing behind but its record, and the next delivery works.
func TestAFailureIsRolledBackAndDeliveredAgain(t *testing.T) {
	w := newWorld(t)
	h, calls := w.times(2, errHandler)
	pubsub := routed(t, func(r *message.Router, ps *gochannel.GoChannel) {
		r.AddMiddleware(w.in.Middleware)
		r.AddConsumerHandler("h", "orders", ps, func(msg *message.Message) error { _, err := h(msg); return err })
	})
	if err := pubsub.Publish("orders", event(t.Context(), "e")); err != nil { // returns when it was acknowledged
		t.Fatal(err)
	}
	if calls.Load() != 3 {
		t.Errorf("%d calls, want 3", calls.Load())
	}
	w.effect("e", 1)
	w.hears("failed", 2)
	w.hears("processed", 1)
	if last := w.infos[len(w.infos)-1]; last.Attempt != 3 {
		t.Errorf("processed in attempt %d, want 3", last.Attempt)
	}
}

func TestAPanicRollsBackAndGoesOn(t *testing.T) {
	w := newWorld(t, func(c *inbox.Config) { c.MaxAttempts = 2 })
	h := func(msg *message.Message) ([]*message.Message, error) {
		_ = w.apply(msg.Context(), "e")
		panic("boom")
	}
	for range 2 {
		msg := event(t.Context(), "e")
		func() {
			defer func() {
				if r := recover(); r != "boom" {
					t.Errorf("recovered %v", r)
				}
			}()
			_ = w.deliver(h, msg)
		}()
		if _, in := core.TxFromContext(msg.Context()); in {
			t.Error("the message still carries the transaction")
		}
	}
	w.effect("e", 0)
	if err := w.deliver(w.handler, event(t.Context(), "e")); !errors.Is(err, inbox.ErrParked) {
		t.Errorf("after two panics: %v, want ErrParked", err)
	}
}

// What failed because of others is run again as a whole, in a new transaction.
func TestRetryableFailuresRunTheTransactionAgain(t *testing.T) {
	w := newWorld(t)
	h, calls := w.times(3, core.ErrTxAborted)
	if err := w.deliver(h, event(t.Context(), "e")); err != nil {
		t.Fatal(err)
	}
	if calls.Load() != 4 {
		t.Errorf("%d calls", calls.Load())
	}
	w.effect("e", 1)
	w.hears("failed", 0)

	h, calls = w.times(1000, core.ErrTxAborted)
	if err := w.deliver(h, event(t.Context(), "bounded")); !errors.Is(err, core.ErrTxAborted) {
		t.Errorf("%v", err)
	}
	if calls.Load() != 10 {
		t.Errorf("%d calls, want 10", calls.Load())
	}
}

// The message is acknowledged after the commit only: a commit that others made fail is run again, one without an answer is an error.
func TestTheCommitDecides(t *testing.T) {
	for name, tt := range map[string]struct {
		fault outboxtest.CommitFault
		want  error
	}{"refused": {outboxtest.CommitRefused, nil}, "without an answer": {outboxtest.CommitNotSent, core.ErrCommitUnknown}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			calls := 0
			h := func(msg *message.Message) ([]*message.Message, error) {
				if calls++; calls == 1 {
					tx, _ := core.TxFromContext(msg.Context())
					tx.(*outboxtest.Tx).FailCommit(tt.fault)
				}
				return w.handler(msg)
			}
			if err := w.deliver(h, event(t.Context(), "e")); !errors.Is(err, tt.want) {
				t.Fatalf("%v, want %v", err, tt.want)
			}
			if err := w.deliver(h, event(t.Context(), "e")); err != nil {
				t.Fatal(err)
			}
			w.effect("e", 1)
			if calls != 2 {
				t.Errorf("%d calls", calls)
			}
		})
	}
}

// publisher keeps what is published in transactions.
type publisher struct {
	mu     sync.Mutex
	topics []string
	inTx   int
	err    error
}

func (p *publisher) Publish(topic string, msgs ...*message.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range msgs {
		p.topics = append(p.topics, topic)
		if _, ok := core.TxFromContext(m.Context()); ok {
			p.inTx++
		}
	}
	return p.err
}

func (*publisher) Close() error { return nil }

func TestProducedMessagesGoToTheOutboxInTheTransaction(t *testing.T) {
	var outbox publisher
	w := newWorld(t, func(c *inbox.Config) { c.Publisher = &outbox })
	published := atomic.Int64{}
	pubsub := routed(t, func(r *message.Router, ps *gochannel.GoChannel) {
		r.AddMiddleware(w.in.Middleware)
		r.AddHandler("h", "orders", ps, "invoices", countingPublisher{&published}, func(msg *message.Message) ([]*message.Message, error) {
			_, err := w.handler(msg)
			return []*message.Message{event(context.Background(), "i1"), event(context.Background(), "i2")}, err
		})
	})
	for range 2 {
		if err := pubsub.Publish("orders", event(t.Context(), "e")); err != nil {
			t.Fatal(err)
		}
	}
	if len(outbox.topics) != 2 || outbox.topics[0] != "invoices" || outbox.inTx != 2 {
		t.Errorf("the outbox got %+v", outbox.topics)
	}
	if published.Load() != 0 {
		t.Error("the Router published too")
	}
	w.hears("produced", 2)
}

type countingPublisher struct{ n *atomic.Int64 }

func (p countingPublisher) Publish(_ string, msgs ...*message.Message) error {
	p.n.Add(int64(len(msgs)))
	return nil
}
func (countingPublisher) Close() error { return nil }

func TestProducedMessagesAreRefusedWithoutAnOutbox(t *testing.T) {
	produce := func(w *world) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			_, err := w.handler(msg)
			return []*message.Message{event(context.Background(), "i")}, err
		}
	}
	w := newWorld(t)
	if err := w.deliver(produce(w), event(t.Context(), "e")); !errors.Is(err, inbox.ErrProducedNeedsOutbox) || !strings.Contains(err.Error(), "inbox.Publisher") {
		t.Errorf("without a publisher: %v", err)
	}
	w.effect("e", 0)

	var outbox publisher
	w = newWorld(t, func(c *inbox.Config) { c.Publisher = &outbox })
	if err := w.deliver(produce(w), event(t.Context(), "e")); err == nil || len(outbox.topics) != 0 {
		t.Errorf("without a topic: %v", err)
	}
	w.effect("e", 0)
}

func TestAPoisonQueueInsideIsNoticed(t *testing.T) {
	w := newWorld(t)
	h := func(msg *message.Message) ([]*message.Message, error) { // what Watermill's does
		_ = w.apply(msg.Context(), "e")
		msg.Metadata.Set("reason_poisoned", errHandler.Error())
		return nil, nil
	}
	if err := w.deliver(h, event(t.Context(), "e")); !errors.Is(err, inbox.ErrPoisonInside) {
		t.Errorf("%v", err)
	}
	w.effect("e", 0)

	// A message that comes back from a poison queue still says why it was there.
	if err := w.deliver(w.handler, event(t.Context(), "e", "reason_poisoned", "last week")); err != nil {
		t.Errorf("%v", err)
	}
	w.effect("e", 1)
}

// Effects in a transaction of somebody else would commit after the acknowledgement, or the second of two inboxes find the row of the first.
func TestATransactionInTheContextIsRefused(t *testing.T) {
	w := newWorld(t)
	twice := w.in.Middleware(w.in.Middleware(w.handler))
	if _, err := twice(event(t.Context(), "e")); !errors.Is(err, inbox.ErrInTransaction) {
		t.Errorf("twice: %v", err)
	}
	w.effect("e", 0)
	tx, err := w.repo.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for _, err := range w.in.ProcessBatch(core.ContextWithTx(t.Context(), tx), []*message.Message{event(t.Context(), "e")}, nil) {
		if !errors.Is(err, inbox.ErrInTransaction) {
			t.Errorf("batch: %v", err)
		}
	}
}

func TestEventsAreParked(t *testing.T) {
	w := newWorld(t, func(c *inbox.Config) { c.MaxAttempts = 3 })
	h, calls := w.times(100, errHandler)
	for attempt := range 5 {
		err := w.deliver(h, event(t.Context(), "e"))
		if want := attempt >= 2; errors.Is(err, inbox.ErrParked) != want || inbox.Final(err) != want {
			t.Errorf("attempt %d: %v", attempt+1, err)
		}
		if attempt < 3 && !errors.Is(err, errHandler) || !strings.Contains(err.Error(), errHandler.Error()) {
			t.Errorf("attempt %d does not say why: %v", attempt+1, err)
		}
		if again := attempt >= 3; strings.Contains(err.Error(), "Release") != again || again && !strings.Contains(err.Error(), "attempts: 3") {
			t.Errorf("attempt %d: %v", attempt+1, err)
		}
	}
	if calls.Load() != 3 {
		t.Errorf("%d calls: a parked event was processed", calls.Load())
	}
	w.hears("failed", 2)
	w.hears("parked", 3)

	h, calls = w.times(100, core.Permanent(errHandler))
	for range 2 {
		if err := w.deliver(h, event(t.Context(), "permanent")); !errors.Is(err, inbox.ErrParked) {
			t.Errorf("%v", err)
		}
	}
	if calls.Load() != 1 {
		t.Errorf("%d calls after core.Permanent", calls.Load())
	}

	list, err := w.in.ListParked(t.Context(), inbox.ParkedQuery{})
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	if p := list[0]; p.EventID != "e" || p.Attempts != 3 || p.Code != "handler_error" || p.Text != errHandler.Error() {
		t.Errorf("listed %+v", p)
	}
	n, err := w.in.Release(t.Context(), inbox.ReleaseRequest{Keys: []inbox.Key{list[0].InboxKey}, Actor: "ada", Reason: "fixed"})
	if n != 1 || err != nil {
		t.Fatalf("released %d, %v", n, err)
	}
	if err := w.deliver(w.handler, event(t.Context(), "e")); err != nil {
		t.Errorf("released: %v", err)
	}
	w.effect("e", 1)
	if err := w.deliver(w.handler, event(t.Context(), "permanent")); !errors.Is(err, inbox.ErrParked) {
		t.Errorf("the other is %v", err)
	}
}

func TestReleaseRefusesIncompleteRequests(t *testing.T) {
	w := newWorld(t)
	key := inbox.Key{Consumer: "billing", Handler: "h", EventID: "e"}
	for name, req := range map[string]inbox.ReleaseRequest{
		"nothing":          {},
		"no actor":         {Keys: []inbox.Key{key}, Reason: "r"},
		"no reason":        {Keys: []inbox.Key{key}, Actor: "a"},
		"another consumer": {Keys: []inbox.Key{{Consumer: "c", Handler: "h", EventID: "e"}}, Actor: "a", Reason: "r"},
	} {
		if _, err := w.in.Release(t.Context(), req); !errors.Is(err, core.ErrInvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParkAndAck(t *testing.T) {
	w := newWorld(t, func(c *inbox.Config) { c.Park, c.MaxAttempts = inbox.ParkAndAck, 1 })
	h, calls := w.times(100, errHandler)
	for range 3 {
		if err := w.deliver(h, event(t.Context(), "e")); err != nil {
			t.Errorf("not acknowledged: %v", err)
		}
	}
	if calls.Load() != 1 {
		t.Errorf("%d calls", calls.Load())
	}
	w.hears("parked", 3)
	if err := w.deliver(h, message.NewMessage("", nil)); !errors.Is(err, inbox.ErrInvalidMessage) {
		t.Errorf("what has no key cannot be parked: %v", err)
	}
}

// sqlState is an error of PostgreSQL, as its drivers have it.
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
			w := newWorld(t, func(c *inbox.Config) { c.MaxAttempts = 1 })
			h, _ := w.times(1000, tt.err)
			if err := w.deliver(h, event(t.Context(), "e")); errors.Is(err, inbox.ErrParked) != tt.spent || !errors.Is(err, tt.err) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("the process is shutting down", func(t *testing.T) {
		w := newWorld(t, func(c *inbox.Config) { c.MaxAttempts = 1 })
		ctx, cancel := context.WithCancel(t.Context())
		h := func(*message.Message) ([]*message.Message, error) { cancel(); return nil, ctx.Err() }
		if err := w.deliver(h, event(ctx, "e")); !errors.Is(err, context.Canceled) || errors.Is(err, inbox.ErrParked) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a handler that is always too slow is not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { // so that the time passes in the handler, not before it
			w := newWorld(t, func(c *inbox.Config) { c.MaxAttempts = 1 })
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			h := func(msg *message.Message) ([]*message.Message, error) {
				<-msg.Context().Done()
				return nil, msg.Context().Err()
			}
			if err := w.deliver(h, event(ctx, "e")); !errors.Is(err, inbox.ErrParked) {
				t.Errorf("%v", err)
			}
		})
	})
}

func TestOnlyNewer(t *testing.T) {
	w := newWorld(t, func(c *inbox.Config) { c.OnlyNewer = []string{"handler"} })
	deliver := func(id, seq, tenant, key string) {
		t.Helper()
		if err := w.deliver(w.handler, event(t.Context(), id, "key_seq", seq, "tenant_id", tenant, "partition_key", key)); err != nil {
			t.Fatal(err)
		}
	}
	deliver("new", "7", "a", "k")
	deliver("old", "6", "a", "k") // stale
	deliver("old", "6", "a", "k") // and now a duplicate
	deliver("other tenant", "1", "b", "k")
	deliver("other key", "1", "a", "l")
	deliver("newer", "8", "a", "k")
	deliver("no seq", "", "a", "k")
	deliver("no key", "1", "a", "")
	for id, n := range map[string]int{"new": 1, "old": 0, "other tenant": 1, "other key": 1, "newer": 1, "no seq": 1, "no key": 1} {
		w.effect(id, n)
	}
	w.hears("stale", 1)
	w.hears("duplicate", 1)

	// A newer event that failed is none.
	h, _ := w.times(1, errHandler)
	_ = w.deliver(h, event(t.Context(), "fails", "key_seq", "10", "tenant_id", "a", "partition_key", "k"))
	deliver("between", "9", "a", "k")
	w.effect("between", 1)
}

// 8 copies at once: one effect, and nobody is told of an error.
func TestConcurrentCopies(t *testing.T) {
	w := newWorld(t)
	h, calls := w.times(1, errHandler) // the first one rolls back, and another goes on
	var wg sync.WaitGroup
	var failures atomic.Int64
	for range 8 {
		wg.Go(func() {
			if _, err := w.in.Middleware(h)(event(context.Background(), "e")); err != nil {
				failures.Add(1)
			}
		})
	}
	wg.Wait()
	w.effect("e", 1)
	// When another copy has succeeded before the failure was recorded, the one that failed is a duplicate.
	if calls.Load() != 2 || failures.Load() > 1 {
		t.Errorf("%d calls and %d failures, want 2 and at most 1", calls.Load(), failures.Load())
	}
}

// cache is a Cache that can fail.
type cache struct {
	mu   sync.Mutex
	keys map[string]bool
	err  error
}

func (c *cache) Seen(_ context.Context, key string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys[key], c.err
}

func (c *cache) Remember(_ context.Context, key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys[key] = true
	return c.err
}

// A cache saves work, and decides nothing: what it has forgotten is still a duplicate.
func TestCache(t *testing.T) {
	c := &cache{keys: map[string]bool{}}
	hits, misses := 0, 0
	w := newWorld(t, func(cfg *inbox.Config) {
		cfg.Cache = c
		cfg.Observer.Cached = func(_ inbox.Info, hit bool) {
			if hit {
				hits++
			} else {
				misses++
			}
		}
	})
	h, _ := w.times(1, errHandler)
	for n, want := range []struct{ hits, misses int }{{0, 1}, {0, 2}, {1, 2}} {
		_ = w.deliver(h, event(t.Context(), "e"))
		if hits != want.hits || misses != want.misses {
			t.Errorf("delivery %d: %d hits, %d misses, want %+v", n, hits, misses, want)
		}
	}
	clear(c.keys)
	if err := w.deliver(h, event(t.Context(), "e")); err != nil || !c.keys["inbox/billing/handler||e"] {
		t.Errorf("%v, cache %v", err, c.keys)
	}
	c.err = errors.New("redis is away")
	for range 2 {
		if err := w.deliver(w.handler, event(t.Context(), "f")); err != nil {
			t.Error(err)
		}
	}
	w.effect("e", 1)
	w.effect("f", 1)
	w.hears("duplicate", 3)
}

func TestProcessWithoutWatermill(t *testing.T) {
	w := newWorld(t)
	e := inbox.Event{InboxKey: inbox.Key{Handler: "indexer", EventID: "e"}}
	for range 2 {
		if err := w.in.Process(t.Context(), e, func(ctx context.Context, tx core.Tx) error { return w.apply(ctx, "e") }); err != nil {
			t.Fatal(err)
		}
	}
	w.effect("e", 1)
	if err := w.in.Process(t.Context(), inbox.Event{}, nil); !errors.Is(err, inbox.ErrInvalidMessage) {
		t.Errorf("%v", err)
	}
}

// An event that was redriven after newer ones had passed it comes with a new number: it is as old as it was.
func TestOnlyNewerAfterARedrive(t *testing.T) {
	w := newWorld(t, func(c *inbox.Config) { c.OnlyNewer = []string{"handler"} })
	lane := func(id, seq string, more ...string) *message.Message {
		return event(t.Context(), id, append([]string{core.HeaderPartitionKey, "k", core.HeaderKeySeq, seq}, more...)...)
	}
	for _, msg := range []*message.Message{
		lane("6", "6"), lane("5 redriven", "7", core.HeaderFirstKeySeq, "5"), lane("8", "8"), lane("9 redriven, nothing had passed it", "10", core.HeaderFirstKeySeq, "9"),
	} {
		if err := w.deliver(w.handler, msg); err != nil {
			t.Fatal(err)
		}
	}
	w.effect("5 redriven", 0)
	w.effect("9 redriven, nothing had passed it", 1)
	w.hears("stale", 1)
	w.hears("processed", 3)
}
