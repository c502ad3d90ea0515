package brokers_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/inboxtest"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// An event is published twice, once in each mode. An inbox that knows nothing but CloudEvents
// handles it once.
func TestCloudEventsThroughKafka(t *testing.T) {
	t.Parallel()
	topic := topics.Kafka(t, "", 1, nil)
	d := brokerDelivery(t, topic, "order/o-2")
	for _, mode := range []cloudevents.Mode{cloudevents.ModeBinary, cloudevents.ModeStructured} {
		p := topics.KafkaPublisher(t, kafkabridge.Config{Bridge: watermillbridge.Config{
			CloudEvents: &cloudevents.Mapper{Source: "/orders", Mode: mode},
		}})
		fixture.NoError(t, publishWithin(t, p, d, time.Minute))
	}
	in, err := coreinbox.New(coreinbox.Config{
		Consumer: "billing", Handler: "invoice", Transactor: outboxtest.NewRepository().Transactor(),
		Store: inboxtest.NewStore(),
	})
	fixture.NoError(t, err)
	handled := 0
	messages := kafkaMessages(t, topic)
	for range 2 {
		msg := receive(t, messages)
		if key, _ := kafka.MessageKeyFromCtx(msg.Context()); string(key) != "order/o-2" {
			t.Errorf("key = %q", key)
		}
		requireCloudEvent(t, cloudevents.Kafka, cloudevents.Message{Headers: msg.Metadata, Body: msg.Payload}, d)
		delete(msg.Metadata, core.HeaderEventID) // as from any other producer
		res := in.Process(t.Context(), coreinbox.Message{Headers: msg.Metadata, Payload: msg.Payload},
			func(context.Context, core.Tx, coreinbox.Message) error {
				handled++
				return nil
			})
		if res.Err != nil {
			t.Error(res.Err)
		}
	}
	fixture.Check(t, handled == 1, "handled %d times", handled)
}

// A plain client of AMQP 0-9-1 finds the attributes among the headers and the content type in its
// property.
func TestCloudEventsThroughRabbitMQ(t *testing.T) {
	t.Parallel()
	topic := topics.Rabbit(t)
	cfg := amqpbridge.QueueConfig(topics.RabbitURI(t))
	d := brokerDelivery(t, topic, "order/o-1")
	ch := topics.RabbitChannel(t)
	for _, m := range []*cloudevents.Mapper{
		{Source: "/orders"},
		{Source: "/orders", Binding: cloudevents.AMQPUnderscore},
		{Source: "/orders", Mode: cloudevents.ModeStructured},
	} {
		p := topics.RabbitPublisher(t, amqpbridge.Config{
			AMQP: cfg, DeclareQueues: true, Bridge: watermillbridge.Config{CloudEvents: m},
		})
		fixture.NoError(t, publishWithin(t, p, d, time.Minute))
		raw, ok, err := ch.Get(topic, true)
		fixture.Must(t, err == nil && ok, "no message: %v", err)
		headers, err := textual(raw.Headers)
		fixture.NoError(t, err)
		headers["content-type"] = raw.ContentType
		requireCloudEvent(t, cloudevents.AMQP, cloudevents.Message{Headers: headers, Body: raw.Body}, d)
	}
}

// Another producer sends native values and a table among the headers, and the content type as a
// property alone. A subscriber gets the event, and the inbox its identity.
func TestCloudEventsOfOthersThroughRabbitMQ(t *testing.T) {
	t.Parallel()
	topic := topics.Rabbit(t)
	messages := rabbitMessages(t, amqpbridge.QueueConfig(topics.RabbitURI(t)), topic)
	ch := topics.RabbitChannel(t)
	at := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	want := cloudevents.Event{
		ID: "1", Source: "/orders", Type: "order.placed", Time: at, DataContentType: "application/json",
		Extensions: map[string]string{"n": "7"}, Data: []byte(`{"total":7}`),
	}
	structured, err := cloudevents.AMQP.Structured(want)
	fixture.NoError(t, err)
	for _, sent := range []amqp091.Publishing{
		{ContentType: want.DataContentType, Body: want.Data, Headers: amqp091.Table{
			"cloudEvents:specversion": "1.0", "cloudEvents:id": "1", "cloudEvents:source": "/orders",
			"cloudEvents:type": "order.placed", "cloudEvents:time": at, "cloudEvents:n": int64(7),
			"x-death": []any{amqp091.Table{"count": int64(1)}},
		}},
		{ContentType: structured.ContentType(), Body: structured.Body},
	} {
		fixture.NoError(t, ch.PublishWithContext(t.Context(), "", topic, true, false, sent))
		msg := receive(t, messages)
		got, err := cloudevents.AMQP.Decode(cloudevents.Message{Headers: msg.Metadata, Body: msg.Payload})
		fixture.Check(t, err == nil && reflect.DeepEqual(got, want), "%+v, %v, want %+v", got, err, want)
		id, err := coreinbox.MessageID(coreinbox.Message{Headers: msg.Metadata, Payload: msg.Payload})
		fixture.Check(t, err == nil && id == "/orders 1", "identity %q, %v", id, err)
	}
}

// A plain client of NATS finds the attributes among the headers.
func TestCloudEventsThroughNATS(t *testing.T) {
	t.Parallel()
	conn, err := nats.Connect(testdb.Server(t, "OUTBOX_TEST_NATS"))
	fixture.NoError(t, err)
	t.Cleanup(conn.Close)
	d := brokerDelivery(t, nats.NewInbox(), "order/ö 1")
	sub, err := conn.SubscribeSync(d.Topic)
	fixture.NoError(t, err)
	pub, err := wmnats.NewPublisherWithNatsConn(conn, wmnats.PublisherPublishConfig{
		Marshaler: &wmnats.NATSMarshaler{}, SubjectCalculator: wmnats.DefaultSubjectCalculator,
		JetStream: wmnats.JetStreamConfig{Disabled: true},
	}, watermill.NopLogger{})
	fixture.NoError(t, err)
	for _, mode := range []cloudevents.Mode{cloudevents.ModeBinary, cloudevents.ModeStructured} {
		p := bridged(t, pub, watermillbridge.Config{
			AllowUnconfirmed: true, // the test looks at the message alone
			CloudEvents:      &cloudevents.Mapper{Source: "/orders", Binding: cloudevents.NATS, Mode: mode},
		})
		fixture.NoError(t, publishWithin(t, p, d, time.Minute))
		raw, err := sub.NextMsg(time.Minute)
		fixture.NoError(t, err)
		headers, err := cloudevents.Header(raw.Header)
		fixture.NoError(t, err)
		requireCloudEvent(t, cloudevents.NATS, cloudevents.Message{Headers: headers, Body: raw.Data}, d)
	}
}

func textual(table amqp091.Table) (map[string]string, error) {
	headers := make(message.Metadata, len(table))
	for k, v := range table {
		text, ok := v.(string)
		if !ok {
			return nil, errors.New("header " + k + " is no text")
		}
		headers[k] = text
	}
	return headers, nil
}

func requireCloudEvent(t testing.TB, b cloudevents.Binding, m cloudevents.Message, d core.Delivery) {
	t.Helper()
	e, err := b.Decode(m)
	if err != nil || e.ID != d.ID || e.Source != "/orders" || e.Type != d.Type || e.Subject != d.AggregateID ||
		!e.Time.Equal(d.OccurredAt) || e.DataContentType != d.ContentType || string(e.Data) != string(d.Payload) ||
		e.Extensions["partitionkey"] != d.Key || e.Extensions["traceparent"] != d.Headers["traceparent"] {
		t.Errorf("%+v, %v of %q\nwant that of %+v", e, err, m, d)
	}
}
