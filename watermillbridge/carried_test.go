package watermillbridge_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/components/requestreply"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	bridge "github.com/ormoutbox/ormoutbox/watermillbridge"
)

// through publishes messages to an outbox in a new transaction. It returns the messages that the
// relay would send.
func through(t *testing.T, ob *outboxtest.Outbox, topic string, msgs ...*message.Message) ([]*message.Message, error) {
	t.Helper()
	p := newOutboxPublisher(t, ob, bridge.OutboxConfig{})
	before := len(ob.Publisher.Accepted())
	if err := ob.Transactor.RunInTx(t.Context(), func(_ context.Context, tx core.Tx) error {
		return p.InTx(tx).Publish(topic, msgs...)
	}); err != nil {
		return nil, err
	}
	must(t, ob.Drain(t.Context()))
	var sent []*message.Message
	for _, d := range ob.Publisher.Accepted()[before:] {
		sent = append(sent, bridge.NewMessage(t.Context(), d))
	}
	return sent, nil
}

// The message that the relay sends has all the fields of the message that was published, even those
// that a header could not hold.
func TestAMessageArrivesAsItWas(t *testing.T) {
	t.Parallel()
	ids := map[string]string{
		"uuid": watermill.NewUUID(), "ulid": watermill.NewULID(),
		"upper case uuid": strings.ToUpper(watermill.NewUUID()), "short uuid": watermill.NewShortUUID(),
		"a number": "42", "words": "order 42: «paid»\n",
	}
	md := message.Metadata{
		"plain": "x", "traceparent": "00-abc-def-01", "a blank": "b", "cloudEvents:id": "c",
		"reason_poisoned": "line one\nline two\x7f\x00", "ünïcode": "ö", "": "no name",
		"_watermill_requestreply_op_id": "op-1", "_watermill_requeuer_retries": "3", "outbox_of_mine": "kept",
	}
	for name, uuid := range ids {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ob := outboxtest.NewOutbox(t, core.Config{})
			msg := message.NewMessage(uuid, []byte("payload"))
			msg.Metadata = maps.Clone(md)
			sent, err := through(t, ob, "orders", msg)
			if err != nil || len(sent) != 1 {
				t.Fatalf("%d messages, err %v", len(sent), err)
			}
			got := sent[0]
			if got.UUID != uuid || string(got.Payload) != "payload" {
				t.Errorf("UUID %q, payload %q; want %q and payload", got.UUID, got.Payload, uuid)
			}
			for k, want := range md {
				if v, ok := got.Metadata[k]; !ok || v != want {
					t.Errorf("metadata %q = %q, want %q", k, v, want)
				}
			}
			if got.Metadata[core.HeaderMessage] != "" {
				t.Error("the header that carried the metadata is in the message too")
			}

			// The same message again is the same event. It may be sent to another topic, as a
			// forwarder does.
			wantErr(t, errOf(through(t, ob, "orders", msg)), core.ErrDuplicateEvent, "the same message again")
			on, err := through(t, ob, "elsewhere", got)
			if err != nil || len(on) != 1 {
				t.Fatalf("forwarded: %d messages, err %v", len(on), err)
			}
			if on[0].UUID != uuid || on[0].Metadata["event_id"] != got.Metadata["event_id"] ||
				on[0].Metadata["a blank"] != "b" {
				t.Errorf("forwarded: UUID %q, metadata %v", on[0].UUID, on[0].Metadata)
			}
			if on[0].Metadata[core.HeaderRowID] == got.Metadata[core.HeaderRowID] {
				t.Error("two rows have one id: a broker that deduplicates by it would swallow the second")
			}
		})
	}
}

func TestWhatCannotBeCarriedIsRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*message.Message){
		"metadata that are not text": func(m *message.Message) { m.Metadata["k"] = "\xff" },
		"names that are not text":    func(m *message.Message) { m.Metadata["\xff"] = "v" },
		"a UUID that is not text":    func(m *message.Message) { m.UUID = "\xff" },
		"more than headers can have": func(m *message.Message) { m.Metadata["a b"] = strings.Repeat("x", 17<<10) },
		"a delay that is none":       func(m *message.Message) { m.Metadata[delay.DelayedForKey] = "soon" },
		"an instant that is none":    func(m *message.Message) { m.Metadata[delay.DelayedUntilKey] = "tomorrow" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ob := outboxtest.NewOutbox(t, core.Config{})
			msg := message.NewMessage(watermill.NewUUID(), nil)
			change(msg)
			wantErr(t, errOf(through(t, ob, "orders", msg)), core.ErrInvalidEvent, "err")
			equal(t, len(ob.Repository.Rows()), 0, "rows were written")
		})
	}
}

// A handler answers one message with several messages that copy its metadata. They are new events.
func TestMessagesDerivedFromAConsumedOne(t *testing.T) {
	t.Parallel()
	ob := outboxtest.NewOutbox(t, core.Config{})
	consumed := bridge.NewMessage(t.Context(), fullDelivery(t))
	consumed.Metadata[core.HeaderCausationID], consumed.Metadata[core.HeaderCorrelationID] = "cause", "chain"
	derive := func(name string) *message.Message {
		m := message.NewMessage(watermill.NewUUID(), nil)
		m.Metadata = maps.Clone(consumed.Metadata)
		if name != "" {
			m.Metadata["name"] = name
		}
		return m
	}
	one, two := derive("invoice.created"), derive("")
	sent, err := through(t, ob, "invoices", one, two)
	if err != nil || len(sent) != 2 {
		t.Fatalf("%d messages, err %v", len(sent), err)
	}
	for i, m := range sent {
		want := []*message.Message{one, two}[i]
		if m.UUID != want.UUID || m.Metadata[core.HeaderEventID] != want.UUID {
			t.Errorf("message %d: UUID %q, event_id %q, want %q", i, m.UUID, m.Metadata[core.HeaderEventID], want.UUID)
		}
		if m.Metadata[core.HeaderOccurredAt] == consumed.Metadata[core.HeaderOccurredAt] {
			t.Errorf("message %d happened when the consumed event did", i)
		}
		if m.Metadata[core.HeaderCausationID] != "" || m.Metadata[core.HeaderCorrelationID] != "chain" {
			t.Errorf("message %d has the cause of the consumed one: %v", i, m.Metadata)
		}
		if m.Metadata[core.HeaderReplayOf] != "" || m.Metadata["X-Custom"] != "ö" ||
			m.Metadata[core.HeaderPartitionKey] != "order/o-1" {
			t.Errorf("message %d: metadata %v", i, m.Metadata)
		}
	}
	if a, b := sent[0].Metadata[core.HeaderEventType], sent[1].Metadata[core.HeaderEventType]; a != "invoice.created" ||
		b != "order.placed" {
		t.Errorf("types %q and %q", a, b)
	}

	copied := one.Copy() // it has the same UUID: the same event
	wantErr(t, errOf(through(t, ob, "invoices", copied)), core.ErrDuplicateEvent, "a copy")
	named := message.NewMessage(watermill.NewUUID(), nil) // not derived: its event id counts
	named.Metadata[core.HeaderEventID] = consumed.UUID
	if sent, err := through(t, ob, "invoices", named); err != nil ||
		sent[0].Metadata[core.HeaderEventID] != consumed.UUID || sent[0].UUID != named.UUID {
		t.Errorf("named: %v, err %v", sent, err)
	}
}

func TestDelaysOfWatermill(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		set      func(*message.Message)
		from, to time.Duration
	}{
		"for": {
			func(m *message.Message) { delay.Message(m, delay.For(30*time.Second)) }, 30 * time.Second,
			30 * time.Second,
		},
		"until": {
			func(m *message.Message) { delay.Message(m, delay.Until(time.Now().Add(time.Hour))) },
			time.Hour - time.Minute, time.Hour,
		},
		"past": {func(m *message.Message) { delay.Message(m, delay.Until(time.Now().Add(-time.Hour))) }, 0, 0},
		"has waited": {func(m *message.Message) {
			delay.Message(m, delay.Until(time.Now().Add(time.Minute)))
			m.Metadata[delay.DelayedForKey] = "1h"
		}, 50 * time.Second, time.Minute},
		"only for": {func(m *message.Message) { m.Metadata[delay.DelayedForKey] = "1m" }, time.Minute, time.Minute},
		"none":     {func(*message.Message) {}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ob := &fakeOutbox{}
			p := newOutboxPublisher(t, ob, bridge.OutboxConfig{}).InTx(&fakeTx{})
			msg := message.NewMessage("", nil)
			tc.set(msg)
			must(t, p.Publish("later", msg))
			if d := ob.events[0].Delay; d < tc.from || d > tc.to {
				t.Errorf("delay %s, want %s to %s", d, tc.from, tc.to)
			}
		})
	}

	ob := outboxtest.NewOutbox(t, core.Config{})
	late, now := message.NewMessage("late", nil), message.NewMessage("now", nil)
	delay.Message(late, delay.For(time.Hour))
	sent, err := through(t, ob, "later", late, now)
	if err != nil || len(sent) != 1 || sent[0].UUID != "now" {
		t.Errorf("sent %v, err %v; want the one without a delay", sent, err)
	}
}

type requestKey struct{}

func TestEachMessageHasTheHeadersOfItsContext(t *testing.T) {
	t.Parallel()
	ob := outboxtest.NewOutbox(t, core.Config{Headers: func(ctx context.Context) map[string]string {
		if v, ok := ctx.Value(requestKey{}).(string); ok {
			return map[string]string{"request": v, v: v}
		}
		return nil
	}})
	msgs := []*message.Message{message.NewMessage("1", nil), message.NewMessage("2", nil), message.NewMessage("3", nil)}
	msgs[0].SetContext(context.WithValue(t.Context(), requestKey{}, "a"))
	msgs[1].SetContext(context.WithValue(t.Context(), requestKey{}, "b"))
	sent, err := through(t, ob, "orders", msgs...)
	if err != nil || len(sent) != 3 {
		t.Fatalf("%d messages, err %v", len(sent), err)
	}
	for _, m := range sent {
		want := map[string]string{"1": "a", "2": "b", "3": ""}[m.UUID]
		if m.Metadata["request"] != want || want != "a" && m.Metadata["a"] != "" {
			t.Errorf("message %s: metadata %v, want request %q", m.UUID, m.Metadata, want)
		}
	}
}

func TestRowIDUnderTheNameOfTheBroker(t *testing.T) {
	t.Parallel()
	rec := &recorder{}
	p, err := bridge.NewPublisher(rec, bridge.Config{RowIDMetadata: "Nats-Msg-Id"})
	must(t, err)
	d := delivery("orders")
	must(t, p.Publish(t.Context(), d))
	msg := rec.msgs[0]
	if msg.Metadata["Nats-Msg-Id"] != d.RowID.String() || msg.UUID != d.ID {
		t.Errorf("UUID %q, metadata %v", msg.UUID, msg.Metadata)
	}

	// When it is sent to another stream, the message gets the id of its new row.
	ob := outboxtest.NewOutbox(t, core.Config{})
	sent, err := through(t, ob, "elsewhere", msg)
	if err != nil || sent[0].Metadata["Nats-Msg-Id"] != "" {
		t.Errorf("err %v; the id for the old stream went along: %v", err, sent)
	}
}

// recorder is a message.Publisher that keeps its messages.
type recorder struct{ msgs []*message.Message }

func (r *recorder) Publish(_ string, msgs ...*message.Message) error {
	r.msgs = append(r.msgs, msgs...)
	return nil
}

func (r *recorder) Close() error { return nil }

type cancelOrder struct{ ID string }

// Watermill's request-reply works with commands that are sent through the outbox.
func TestRequestReplyThroughTheOutbox(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	logger := watermill.NopLogger{}
	channel := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 16}, logger)
	broker, err := bridge.NewPublisher(channel, bridge.Config{})
	must(t, err)
	ob := outboxtest.NewOutbox(t, core.Config{Publisher: broker, Relay: relay.Config{}})
	commands := newOutboxPublisher(t, ob, bridge.OutboxConfig{})

	patience := 20 * time.Second
	backend, err := requestreply.NewPubSubBackend(requestreply.PubSubBackendConfig{
		Publisher: channel,
		SubscriberConstructor: func(requestreply.PubSubBackendSubscribeParams) (message.Subscriber, error) {
			return channel, nil
		},
		GeneratePublishTopic: func(p requestreply.PubSubBackendPublishParams) (string, error) {
			return "reply." + string(p.OperationID), nil
		},
		GenerateSubscribeTopic: func(p requestreply.PubSubBackendSubscribeParams) (string, error) {
			return "reply." + string(p.OperationID), nil
		},
		ListenForReplyTimeout: &patience,
	}, requestreply.BackendPubsubJSONMarshaler[string]{})
	must(t, err)
	bus, err := cqrs.NewCommandBusWithConfig(commands, cqrs.CommandBusConfig{
		GeneratePublishTopic: func(cqrs.CommandBusGeneratePublishTopicParams) (string, error) {
			return "commands", nil
		},
		Marshaler: cqrs.JSONMarshaler{},
	})
	must(t, err)
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	must(t, err)
	processor, err := cqrs.NewCommandProcessorWithConfig(router, cqrs.CommandProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) {
			return "commands", nil
		},
		SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return channel, nil
		},
		Marshaler: cqrs.JSONMarshaler{},
	})
	must(t, err)
	must(t, processor.AddHandlers(requestreply.NewCommandHandlerWithResult("cancel", backend,
		func(_ context.Context, c *cancelOrder) (string, error) { return "cancelled " + c.ID, nil })))
	go func() { _ = router.Run(ctx) }()
	<-router.Running()

	var replies <-chan requestreply.Reply[string]
	must(t, ob.Transactor.RunInTx(ctx, func(txctx context.Context, _ core.Tx) error {
		var cancel func()
		replies, cancel, err = requestreply.SendWithReplies(txctx, bus, backend, &cancelOrder{ID: "42"})
		if err == nil {
			t.Cleanup(cancel)
		}
		return err
	}))
	must(t, ob.Drain(ctx))
	if r := <-replies; r.Error != nil || r.HandlerResult != "cancelled 42" {
		t.Errorf("reply %+v", r)
	}
}
