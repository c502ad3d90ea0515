package contracts_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/httpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge"
)

// delivery is an event that has every field.
func delivery(topic string) core.Delivery {
	return core.Delivery{
		RowID: core.RowID{1, 2, 3}, KeySeq: 70, Attempt: 2, ReplayOf: core.RowID{4, 5, 6},
		Event: core.Event{
			ID: "01998b8c-2f6e-7a11-9d3b-8d1c0e3b5a10", Type: "order.placed", AggregateType: "order", AggregateID: "7",
			AggregateVersion: 3, TenantID: "acme", SchemaVersion: 2, Topic: topic, Key: "order/7",
			OccurredAt:  time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC),
			ContentType: "application/json", Payload: []byte(`{"cents":4200}`),
			Headers: map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		},
	}
}

// mappers are the ways to send an event: as it is, and as a CloudEvent in both modes.
func mappers() map[string]*cloudevents.Mapper {
	return map[string]*cloudevents.Mapper{
		"as it is":                nil,
		"CloudEvents, binary":     {Source: "/orders"},
		"CloudEvents, structured": {Source: "/orders", Mode: cloudevents.ModeStructured},
	}
}

// page collects the text of a golden file.
type page struct{ strings.Builder }

func (p *page) section(title string) { fmt.Fprintf(p, "== %s\n", title) }

func (p *page) field(name string, value any) { fmt.Fprintf(p, "%s: %v\n", name, value) }

func (p *page) fields(prefix string, values map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		p.field(prefix+name, values[name])
	}
}

// The metadata of a Watermill message, which every bridge but franzbridge and httpbridge sends.
func TestWatermillMessage(t *testing.T) {
	t.Parallel()
	var p page
	for _, name := range slices.Sorted(maps.Keys(mappers())) {
		p.section(name)
		msg := watermillbridge.NewMessage(t.Context(), delivery("orders"))
		if m := mappers()[name]; m != nil {
			m.Binding = cloudevents.Kafka
			var err error
			msg, err = watermillbridge.NewCloudEvent(t.Context(), delivery("orders"), m)
			fixture.NoError(t, err)
		}
		p.field("uuid", msg.UUID)
		p.fields("metadata ", msg.Metadata)
		p.field("payload", string(msg.Payload))
	}
	compare(t, "message-watermill", p.String())
}

// The request of a webhook.
func TestWebhook(t *testing.T) {
	t.Parallel()
	var p page
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		p.field("method", r.Method)
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			switch value := strings.Join(r.Header[name], ", "); name {
			case "Webhook-Timestamp", "Content-Length": // the clock, and the size of the body
				p.field("header "+name, "(a number)")
			case "Webhook-Signature":
				p.field("header "+name, regexp.MustCompile(`,\S+`).ReplaceAllString(value, ",(base64)"))
			default:
				p.field("header "+name, value)
			}
		}
		body, _ := io.ReadAll(r.Body)
		p.field("body", string(body))
	}))
	t.Cleanup(receiver.Close)
	for _, name := range slices.Sorted(maps.Keys(mappers())) {
		p.section(name)
		publisher, err := httpbridge.NewPublisher(httpbridge.Config{
			Endpoints: map[string]httpbridge.Endpoint{
				"orders": {URL: receiver.URL, Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}},
			},
			CloudEvents: mappers()[name], AllowHTTP: true,
			AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		})
		fixture.NoError(t, err)
		topics.CloseAtEnd(t, publisher)
		fixture.NoError(t, publisher.Publish(t.Context(), delivery("orders")))
	}
	compare(t, "message-webhook", p.String())
}

// The messages of kafkabridge, which are those of franzbridge.
func TestKafkaMessage(t *testing.T) {
	t.Parallel()
	topic := topics.Kafka(t, "", 1, nil)
	client, err := kgo.NewClient(kgo.SeedBrokers(topics.KafkaAddress(t)), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	fixture.NoError(t, err)
	t.Cleanup(client.Close)
	var records []*kgo.Record
	next := func(title string) string {
		for len(records) == 0 {
			fetched := client.PollFetches(t.Context())
			fixture.NoError(t, fetched.Err())
			records = fetched.Records()
		}
		r := records[0]
		records = records[1:]
		var p page
		p.section(title)
		p.field("key", string(r.Key))
		headers := map[string]string{}
		for _, h := range r.Headers {
			headers[h.Key] = string(h.Value)
		}
		p.fields("header ", headers)
		p.field("value", string(r.Value))
		return p.String()
	}
	all := ""
	for _, name := range slices.Sorted(maps.Keys(mappers())) {
		sarama := topics.KafkaPublisher(t,
			kafkabridge.Config{Bridge: watermillbridge.Config{CloudEvents: mappers()[name]}})
		fixture.NoError(t, sarama.Publish(t.Context(), delivery(topic)))
		text := next(name)
		franz := topics.FranzPublisher(t, franzbridge.Config{CloudEvents: mappers()[name]})
		fixture.NoError(t, franz.Publish(t.Context(), delivery(topic)))
		if other := next(name); other != text {
			t.Errorf("franzbridge sends\n%skafkabridge sends\n%s", other, text)
		}
		all += text
	}
	compare(t, "message-kafka", strings.ReplaceAll(all, topic, "TOPIC"))
}

func TestRabbitMQMessage(t *testing.T) {
	t.Parallel()
	topic := topics.Rabbit(t)
	ch := topics.RabbitChannel(t)
	var p page
	for _, name := range slices.Sorted(maps.Keys(mappers())) {
		publisher := topics.RabbitPublisher(t, amqpbridge.Config{
			AMQP: amqpbridge.QueueConfig(topics.RabbitURI(t)), DeclareQueues: true,
			Bridge: watermillbridge.Config{CloudEvents: mappers()[name]},
		})
		fixture.NoError(t, publisher.Publish(t.Context(), delivery(topic)))
		m, there, err := ch.Get(topic, true)
		if err != nil || !there {
			t.Fatalf("no message: %v", err)
		}
		p.section(name)
		headers := map[string]string{}
		for name, value := range m.Headers {
			headers[name] = fmt.Sprint(value)
		}
		p.fields("property ", map[string]string{
			"content-type": m.ContentType, "delivery-mode": fmt.Sprint(m.DeliveryMode), "message-id": m.MessageId,
			"type": m.Type, "correlation-id": m.CorrelationId, "priority": fmt.Sprint(m.Priority),
		})
		p.fields("header ", headers)
		p.field("body", string(m.Body))
	}
	compare(t, "message-rabbitmq", strings.ReplaceAll(p.String(), topic, "TOPIC"))
}

func TestNATSMessage(t *testing.T) {
	t.Parallel()
	topic := topics.NATS(t, nil)
	stream, err := topics.JetStream(t, topics.NATSURL(t)).Stream(t.Context(), topic)
	fixture.NoError(t, err)
	var p page
	for n, name := range slices.Sorted(maps.Keys(mappers())) {
		publisher := topics.NATSPublisher(t, natsbridge.Config{
			URL: topics.NATSURL(t), AllowUnsafeStream: true,
			Bridge: watermillbridge.Config{CloudEvents: mappers()[name]},
		})
		d := delivery(topic)
		d.RowID[15] = byte(n) // JetStream drops a copy
		fixture.NoError(t, publisher.Publish(t.Context(), d))
		m, err := stream.GetMsg(t.Context(), uint64(n+1))
		fixture.NoError(t, err)
		p.section(name)
		headers := map[string]string{}
		for name, values := range m.Header {
			headers[name] = strings.Join(values, ", ")
		}
		p.fields("header ", headers)
		p.field("data", string(m.Data))
	}
	compare(t, "message-nats", strings.ReplaceAll(p.String(), topic, "TOPIC"))
}

// An entry of a stream of Redis has the fields of watermill-redisstream, and the metadata as
// MessagePack.
func TestRedisMessage(t *testing.T) {
	t.Parallel()
	topic := topics.Redis(t)
	client := topics.RedisAt(t, topics.RedisURL(t))
	var p page
	for n, name := range slices.Sorted(maps.Keys(mappers())) {
		publisher := topics.RedisPublisher(t, topics.RedisURL(t), redisbridge.Config{
			Bridge: watermillbridge.Config{CloudEvents: mappers()[name]},
		})
		fixture.NoError(t, publisher.Publish(t.Context(), delivery(topic)))
		entries, err := client.XRange(t.Context(), topic, "-", "+").Result()
		fixture.NoError(t, err)
		values := entries[n].Values
		p.section(name)
		p.field("fields", strings.Join(slices.Sorted(maps.Keys(values)), ", "))
		msg, err := redisstream.DefaultMarshallerUnmarshaller{}.Unmarshal(values)
		fixture.NoError(t, err)
		p.field("uuid", msg.UUID)
		p.fields("metadata ", msg.Metadata)
		p.field("payload", string(msg.Payload))
	}
	compare(t, "message-redis", strings.ReplaceAll(p.String(), topic, "TOPIC"))
}
