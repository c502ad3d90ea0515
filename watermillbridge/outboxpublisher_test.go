package watermillbridge_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	bridge "github.com/ormoutbox/ormoutbox/watermillbridge"
)

// fakeOutbox keeps the events that are published to it.
type fakeOutbox struct {
	calls  int
	tx     core.Tx
	ctx    context.Context
	events []core.Event
	err    error
}

func (f *fakeOutbox) Publish(ctx context.Context, tx core.Tx, events ...core.Event) ([]string, error) {
	f.calls++
	f.ctx, f.tx, f.events = ctx, tx, append(f.events, events...)
	return nil, f.err
}

// fakeTx is a transaction that is only passed on.
type fakeTx struct {
	core.Tx
	name string
}

func newOutboxPublisher(t *testing.T, ob bridge.Outbox, cfg bridge.OutboxConfig) *bridge.OutboxPublisher {
	t.Helper()
	p, err := bridge.NewOutboxPublisher(ob, cfg)
	must(t, err)
	return p
}

var _ bridge.Outbox = (*core.Outbox)(nil)

func TestOutboxPublisherWritesInTheTransactionOfTheContext(t *testing.T) {
	t.Parallel()
	ob := &fakeOutbox{}
	p := newOutboxPublisher(t, ob, bridge.OutboxConfig{})
	tx := &fakeTx{name: "one"}
	ctx := core.ContextWithTx(t.Context(), tx)

	const id = "018f2d3e-4c5b-7000-8000-000000000001"
	err := p.Publish("orders", message.NewMessageWithContext(ctx, id, []byte("a")),
		message.NewMessageWithContext(ctx, "not-an-id", []byte("b")))
	must(t, err)
	if ob.calls != 1 || len(ob.events) != 2 || ob.tx != core.Tx(tx) || ob.ctx != ctx {
		t.Fatalf("calls %d, events %d, tx %v", ob.calls, len(ob.events), ob.tx)
	}
	first, second := ob.events[0], ob.events[1]
	if first.ID != id || first.Topic != "orders" || first.Type != "orders" || string(first.Payload) != "a" {
		t.Errorf("first = %+v", first)
	}
	equal(t, second.ID, core.DeriveEventID("not-an-id"), "the id of the second")
	noError(t, p.Close())
}

func TestOutboxPublisherNeedsOneTransaction(t *testing.T) {
	t.Parallel()
	ob := &fakeOutbox{}
	p := newOutboxPublisher(t, ob, bridge.OutboxConfig{})
	one := core.ContextWithTx(t.Context(), &fakeTx{name: "one"})
	two := core.ContextWithTx(t.Context(), &fakeTx{name: "two"})

	wantErr(t, p.Publish("orders", message.NewMessage("", nil)), core.ErrNoTransaction, "err")
	err := p.Publish("orders", message.NewMessageWithContext(one, "", nil), message.NewMessage("", nil))
	wantErr(t, err, core.ErrNoTransaction, "err")
	err = p.Publish("orders", message.NewMessageWithContext(one, "", nil), message.NewMessageWithContext(two, "", nil))
	if err == nil || !strings.Contains(err.Error(), "another transaction") {
		t.Errorf("err = %v, want it to say that the transactions differ", err)
	}
	equal(t, ob.calls, 0, "calls of the outbox")

	tx := &fakeTx{name: "three"}
	if err := p.InTx(tx).Publish("orders", message.NewMessage("", nil)); err != nil || ob.tx != core.Tx(tx) {
		t.Errorf("InTx: err %v, tx %v", err, ob.tx)
	}
}

// A Router publishes what a handler returns when the handler's transaction is over. The error names
// the way out, and the handler does not run in a tight loop.
func TestOutboxPublisherOfARouterHandler(t *testing.T) {
	t.Parallel()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	must(t, err)
	broker := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	p := newOutboxPublisher(t, &fakeOutbox{}, bridge.OutboxConfig{})
	runs, says, ended := make(chan time.Time, 100), make(chan error, 100), make(chan error, 1)
	router.AddHandler("invoice", "orders", broker, "invoices", publisherFunc(func(topic string,
		messages ...*message.Message,
	) error {
		err := p.Publish(topic, messages...)
		says <- err
		return err
	}), func(*message.Message) ([]*message.Message, error) {
		runs <- time.Now()
		return []*message.Message{message.NewMessage(watermill.NewUUID(), nil)}, nil
	})
	go func() { ended <- router.Run(t.Context()) }()
	<-router.Running()
	must(t, broker.Publish("orders", message.NewMessage(watermill.NewUUID(), nil)))
	<-runs
	second := <-runs
	if took := (<-runs).Sub(second); took < 900*time.Millisecond {
		t.Errorf("the handler ran again after %s", took)
	}
	if err := <-says; !errors.Is(err, core.ErrNoTransaction) || !strings.Contains(err.Error(), `handler "invoice"`) ||
		!strings.Contains(err.Error(), "inbox.Middleware") {
		t.Errorf("err = %v", err)
	}
	must(t, router.Close())
	must(t, <-ended)
	must(t, broker.Close())
}

// Only messages without a transaction need inbox.Middleware. Other errors of a handler's messages say
// what is wrong with them, at once.
func TestOutboxPublisherOfAHandlerWithTwoTransactions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
		must(t, err)
		broker := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
		p := newOutboxPublisher(t, &fakeOutbox{}, bridge.OutboxConfig{})
		said := make(chan error, 1)
		router.AddConsumerHandler("invoice", "orders", broker, func(in *message.Message) error {
			for range 2 { // the first error is told, and later ones wait
				one := core.ContextWithTx(in.Context(), &fakeTx{name: "one"})
				two := core.ContextWithTx(in.Context(), &fakeTx{name: "two"})
				began := time.Now()
				err := p.Publish("invoices", message.NewMessageWithContext(one, "", nil),
					message.NewMessageWithContext(two, "", nil))
				if time.Since(began) > 0 {
					t.Errorf("it took %s", time.Since(began))
				}
				said <- err
			}
			return nil
		})
		ended := make(chan error, 1)
		go func() { ended <- router.Run(t.Context()) }()
		<-router.Running()
		must(t, broker.Publish("orders", message.NewMessage(watermill.NewUUID(), nil)))
		for range 2 {
			err := <-said
			if err == nil || !strings.Contains(err.Error(), "another transaction") ||
				strings.Contains(err.Error(), "inbox.Middleware") {
				t.Errorf("err = %v", err)
			}
		}
		must(t, router.Close())
		must(t, <-ended)
		must(t, broker.Close())
	})
}

// publisherFunc is a message.Publisher.
type publisherFunc func(topic string, messages ...*message.Message) error

func (f publisherFunc) Publish(topic string, messages ...*message.Message) error {
	return f(topic, messages...)
}

func (publisherFunc) Close() error { return nil }

func TestOutboxPublisherTakesWhatTheBridgeSends(t *testing.T) {
	t.Parallel()
	ob := &fakeOutbox{}
	p := newOutboxPublisher(t, ob, bridge.OutboxConfig{})
	d := fullDelivery(t)
	msg := bridge.NewMessage(core.ContextWithTx(t.Context(), &fakeTx{}), d)
	must(t, p.Publish("elsewhere", msg))
	e := ob.events[0]
	if !maps.Equal(e.Headers, d.Headers) {
		t.Errorf("headers = %v, want %v", e.Headers, d.Headers)
	}
	if e.ID != d.ID || e.Type != d.Type || e.AggregateType != d.AggregateType || e.AggregateID != d.AggregateID ||
		e.AggregateVersion != d.AggregateVersion || e.TenantID != d.TenantID || e.SchemaVersion != d.SchemaVersion ||
		e.Key != d.Key || !e.OccurredAt.Equal(d.OccurredAt) || e.ContentType != d.ContentType ||
		e.Topic != "elsewhere" {
		t.Errorf("event = %+v\nwant the fields of %+v", e, d.Event)
	}
}

func TestOutboxPublisherRefuses(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	ctx := core.ContextWithTx(t.Context(), &fakeTx{})
	with := func(name, value string) *message.Message {
		msg := message.NewMessageWithContext(ctx, "", nil)
		msg.Metadata.Set(name, value)
		return msg
	}
	for name, tc := range map[string]struct {
		topic string
		msgs  []*message.Message
		cfg   bridge.OutboxConfig
		is    error
		names string
	}{
		"no topic": {topic: "", msgs: []*message.Message{with("a", "b")}, is: core.ErrInvalidEvent, names: "topic"},
		"nil message": {
			topic: "orders", msgs: []*message.Message{with("a", "b"), nil}, is: core.ErrInvalidEvent,
			names: "message 1",
		},
		"bad version": {
			topic: "orders", msgs: []*message.Message{with("aggregate_version", "x")},
			is: core.ErrInvalidEvent, names: "aggregate_version",
		},
		"bad time": {
			topic: "orders", msgs: []*message.Message{with("occurred_at", "x")}, is: core.ErrInvalidEvent,
			names: "occurred_at",
		},
		"hook refuses": {
			topic: "orders", msgs: []*message.Message{with("a", "b")}, is: refused, names: "message 0",
			cfg: bridge.OutboxConfig{
				Event: func(string, *message.Message, *core.Event) error { return refused },
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ob := &fakeOutbox{}
			err := newOutboxPublisher(t, ob, tc.cfg).Publish(tc.topic, tc.msgs...)
			if !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.names) {
				t.Errorf("err = %v, want %v naming %q", err, tc.is, tc.names)
			}
			equal(t, ob.calls, 0, "something was written")
		})
	}
}

func TestOutboxPublisherPassesErrorsOn(t *testing.T) {
	t.Parallel()
	ob := &fakeOutbox{err: core.ErrDuplicateEvent}
	p := newOutboxPublisher(t, ob, bridge.OutboxConfig{}).InTx(&fakeTx{})
	wantErr(t, p.Publish("orders", message.NewMessage("", nil)), core.ErrDuplicateEvent, "err")
	if err := p.Publish("orders"); err != nil || ob.calls != 1 {
		t.Errorf("no messages: err %v, %d calls; want nothing to happen", err, ob.calls)
	}
	for name, ob := range map[string]bridge.Outbox{"nil": nil, "nil pointer": (*core.Outbox)(nil)} {
		if _, err := bridge.NewOutboxPublisher(ob, bridge.OutboxConfig{}); err == nil {
			t.Errorf("%s accepted", name)
		}
	}
}

func TestOutboxPublisherHook(t *testing.T) {
	t.Parallel()
	ob := &fakeOutbox{}
	p := newOutboxPublisher(t, ob,
		bridge.OutboxConfig{Event: func(topic string, msg *message.Message, e *core.Event) error {
			e.Key, e.Unordered = msg.Metadata.Get("customer"), topic == "mail"
			return nil
		}}).InTx(&fakeTx{})
	msg := message.NewMessage("", nil)
	msg.Metadata.Set("customer", "c-1")
	must(t, p.Publish("mail", msg))
	if e := ob.events[0]; e.Key != "c-1" || !e.Unordered || e.Headers["customer"] != "c-1" {
		t.Errorf("event = %+v", e)
	}
}

// An outbox accepts a message of the bridge again. It never replaces an identity without the
// sender's knowledge.
func TestOutboxPublisherWithAnOutbox(t *testing.T) {
	t.Parallel()
	ob := outboxtest.NewOutbox(t, core.Config{})
	p := newOutboxPublisher(t, ob, bridge.OutboxConfig{})
	publish := func(msg *message.Message) error {
		return ob.Transactor.RunInTx(t.Context(), func(ctx context.Context, _ core.Tx) error {
			msg.SetContext(ctx)
			return p.Publish("elsewhere", msg)
		})
	}

	d := fullDelivery(t)
	must(t, publish(bridge.NewMessage(t.Context(), d)))
	wantErr(t, publish(bridge.NewMessage(t.Context(), d)), core.ErrDuplicateEvent, "the same event again")
	bad := message.NewMessage("018f2d3e-4c5b-7000-8000-000000000001", nil)
	bad.Metadata.Set("event_id", "order-42")
	if err := publish(bad); !errors.Is(err, core.ErrInvalidEvent) || !strings.Contains(err.Error(), "order-42") {
		t.Errorf("err = %v, want ErrInvalidEvent naming the id", err)
	}
	for _, uuid := range []string{"01J5ZK7Q8W9X0Y1Z2A3B4C5D6E", "short", ""} {
		if err := publish(message.NewMessage(uuid, nil)); err != nil {
			t.Errorf("UUID %q: %v", uuid, err)
		}
	}

	must(t, ob.Drain(t.Context()))
	outboxtest.RequirePublished(t, ob.Publisher, outboxtest.Match{
		Topic: "elsewhere", Type: d.Type,
		AggregateID: d.AggregateID,
	})
}
