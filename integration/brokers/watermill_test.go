package brokers_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// brokerDelivery is a delivery with everything that metadata can carry.
func brokerDelivery(t testing.TB, topic, key string) core.Delivery {
	t.Helper()
	e := core.Event{
		ID: core.NewEventID(), Type: "order.placed", AggregateType: "order", AggregateID: "o-1", AggregateVersion: 3,
		TenantID: "acme", SchemaVersion: 2, Topic: topic, Key: key,
		OccurredAt: time.Now().UTC().Truncate(time.Microsecond), ContentType: "application/json",
		Headers: map[string]string{
			"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			"note":        "grün",
		},
		Payload: []byte(`{"total":7}`),
	}
	row, err := core.NewRowID(e.ID, topic)
	fixture.NoError(t, err)
	replay, err := core.FreshRowID(e.ID)
	fixture.NoError(t, err)
	return core.Delivery{Event: e, RowID: row, KeySeq: 1042, Attempt: 2, ReplayOf: replay}
}

// requireDelivery checks that a consumer reads the delivery back from msg.
func requireDelivery(t testing.TB, msg *message.Message, want core.Delivery) {
	t.Helper()
	got, err := watermillbridge.EventFromMessage(msg)
	fixture.NoError(t, err)
	if g, w := got.Metadata(), want.Metadata(); !maps.Equal(g, w) || string(got.Payload) != string(want.Payload) {
		t.Errorf("payload %q, metadata %v\nwant %q, %v", got.Payload, g, want.Payload, w)
	}
}

// subscribed subscribes to a topic until the test ends. err is the error of the call that made sub.
func subscribed(t testing.TB, sub message.Subscriber, err error, topic string) <-chan *message.Message {
	t.Helper()
	fixture.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		_ = sub.Close()
	})
	messages, err := sub.Subscribe(ctx, topic)
	fixture.NoError(t, err)
	return messages
}

// receive takes one message and acknowledges it.
func receive(t testing.TB, messages <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case msg, ok := <-messages:
		fixture.Must(t, ok, "the subscription ended")
		msg.Ack()
		return msg
	case <-time.After(time.Minute):
		t.Fatal("no message within a minute")
		return nil
	}
}

// publishWithin publishes with a timeout as the relay does.
func publishWithin(t testing.TB, p core.Publisher, d core.Delivery, timeout time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return p.Publish(ctx, d)
}

func requireClass(t testing.TB, err error, want core.Class) {
	t.Helper()
	if class, _ := core.ClassOf(err); err == nil || class != want {
		t.Errorf("err = %v, class %v; want %v", err, class, want)
	}
}

type orderPlaced struct{ ID string }

// A CQRS event bus publishes into the outbox after only its publisher was changed. The relay
// publishes through Watermill, and the CQRS processor on the other side handles the event.
func TestWatermillCQRSThroughTheOutbox(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	logger := watermill.NopLogger{}
	pubsub := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, logger)
	marshaler := cqrs.JSONMarshaler{GenerateName: cqrs.StructName}

	relayPublisher, err := watermillbridge.NewPublisher(pubsub, watermillbridge.Config{})
	fixture.NoError(t, err)
	topics.CloseAtEnd(t, relayPublisher)
	repository := outboxtest.NewRepository()
	outbox, err := core.New(core.Config{Repository: repository, Publisher: relayPublisher, Relay: relay.Config{}})
	fixture.NoError(t, err)
	toOutbox, err := watermillbridge.NewOutboxPublisher(outbox, watermillbridge.OutboxConfig{})
	fixture.NoError(t, err)
	bus, err := cqrs.NewEventBusWithConfig(toOutbox, cqrs.EventBusConfig{
		GeneratePublishTopic: func(p cqrs.GenerateEventPublishTopicParams) (string, error) {
			return "events." + p.EventName, nil
		},
		Marshaler: marshaler,
	})
	fixture.NoError(t, err)

	router, err := message.NewRouter(message.RouterConfig{}, logger)
	fixture.NoError(t, err)
	type handled struct {
		event orderPlaced
		read  core.Delivery
	}
	got := make(chan handled, 10)
	processor, err := cqrs.NewEventProcessorWithConfig(router, cqrs.EventProcessorConfig{
		GenerateSubscribeTopic: func(p cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) {
			return "events." + p.EventName, nil
		},
		SubscriberConstructor: func(cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return pubsub, nil
		},
		Marshaler: marshaler,
	})
	fixture.NoError(t, err)
	err = processor.AddHandlers(cqrs.NewEventHandler("billing", func(ctx context.Context, e *orderPlaced) error {
		d, err := watermillbridge.EventFromMessage(cqrs.OriginalMessageFromCtx(ctx))
		got <- handled{*e, d}
		return err
	}))
	fixture.NoError(t, err)
	go func() { _ = router.Run(ctx) }()
	<-router.Running()
	defer router.Close()

	if err := bus.Publish(ctx, orderPlaced{ID: "outside"}); !errors.Is(err, core.ErrNoTransaction) {
		t.Errorf("outside a transaction: err = %v, want ErrNoTransaction", err)
	}
	undo := errors.New("undo")
	err = repository.Transactor().RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
		if err := bus.Publish(ctx, orderPlaced{ID: "rolled back"}); err != nil {
			return err
		}
		return undo
	})
	if !errors.Is(err, undo) {
		t.Fatal(err)
	}
	err = repository.Transactor().RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
		return bus.Publish(ctx, orderPlaced{ID: "o-1"})
	})
	fixture.NoError(t, err)
	fixture.NoError(t, outbox.Drain(ctx))
	h := <-got
	if h.event.ID != "o-1" || h.read.Type != "orderPlaced" || h.read.Topic != "events.orderPlaced" || h.read.ID == "" {
		t.Errorf("handled %+v", h)
	}
	if len(got) != 0 {
		t.Errorf("%d more events were handled: %+v", len(got), <-got)
	}
}
