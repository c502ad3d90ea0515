// Package cloudevents_test compares the events that this project sends and reads with the Go SDK of
// CloudEvents.
package brokers_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/IBM/sarama"
	sdkamqp "github.com/cloudevents/sdk-go/protocol/amqp/v2"
	sdkkafka "github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	sdknats "github.com/cloudevents/sdk-go/protocol/nats_jetstream/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	sdkhttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/nats-io/nats.go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// protocol is a binding of ours, and the SDK's way to read and write its messages.
type protocol struct {
	ours  cloudevents.Binding
	read  func(t *testing.T, m cloudevents.Message) binding.Message
	write func(ctx context.Context, t *testing.T, m binding.Message) cloudevents.Message
	// plain says that the SDK writes values of headers without percent-encoding, and does not
	// decode them.
	plain bool
}

var protocols = map[string]protocol{
	"HTTP":  {cloudevents.HTTP, readHTTP, writeHTTP, true},
	"AMQP":  {cloudevents.AMQP, readAMQP, writeAMQP, false},
	"Kafka": {cloudevents.Kafka, readKafka, writeKafka, false},
	"NATS":  {cloudevents.NATS, readNATS, writeNATS, true},
}

func readHTTP(t *testing.T, m cloudevents.Message) binding.Message {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(m.Body))
	for k, v := range m.Headers {
		r.Header.Set(k, v)
	}
	return sdkhttp.NewMessageFromHttpRequest(r)
}

func writeHTTP(ctx context.Context, t *testing.T, m binding.Message) cloudevents.Message {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	fixture.NoError(t, sdkhttp.WriteRequest(ctx, m, r))
	body, err := io.ReadAll(r.Body)
	fixture.NoError(t, err)
	return cloudevents.Message{Headers: header(t, r.Header), Body: body}
}

func readAMQP(t *testing.T, m cloudevents.Message) binding.Message {
	t.Helper()
	msg := &amqp.Message{
		Data: [][]byte{m.Body}, Properties: &amqp.MessageProperties{}, ApplicationProperties: map[string]any{},
	}
	for k, v := range m.Headers {
		if k == core.HeaderContentType {
			msg.Properties.ContentType = &v
		} else {
			msg.ApplicationProperties[k] = v
		}
	}
	return sdkamqp.NewMessage(msg, nil)
}

func writeAMQP(ctx context.Context, t *testing.T, m binding.Message) cloudevents.Message {
	t.Helper()
	var msg amqp.Message
	fixture.NoError(t, sdkamqp.WriteMessage(ctx, m, &msg))
	headers := map[string]string{}
	if msg.Properties.ContentType != nil {
		headers[core.HeaderContentType] = *msg.Properties.ContentType
	}
	for k, v := range msg.ApplicationProperties {
		switch v := v.(type) {
		case string:
			headers[k] = v
		case time.Time: // the native type of AMQP, which a client of AMQP 0-9-1 sees as a time too
			headers[k] = v.Format(time.RFC3339Nano)
		default:
			t.Fatalf("%s is a %T", k, v)
		}
	}
	return cloudevents.Message{Headers: headers, Body: bytes.Join(msg.Data, nil)}
}

func readKafka(t *testing.T, m cloudevents.Message) binding.Message {
	t.Helper()
	record := &sarama.ConsumerMessage{Value: m.Body}
	for k, v := range m.Headers {
		record.Headers = append(record.Headers, &sarama.RecordHeader{Key: []byte(k), Value: []byte(v)})
	}
	return sdkkafka.NewMessageFromConsumerMessage(record)
}

func writeKafka(ctx context.Context, t *testing.T, m binding.Message) cloudevents.Message {
	t.Helper()
	var record sarama.ProducerMessage
	fixture.NoError(t, sdkkafka.WriteProducerMessage(ctx, m, &record))
	headers := map[string]string{}
	for _, h := range record.Headers {
		headers[string(h.Key)] = string(h.Value)
	}
	body, err := record.Value.Encode()
	fixture.NoError(t, err)
	return cloudevents.Message{Headers: headers, Body: body}
}

func readNATS(t *testing.T, m cloudevents.Message) binding.Message {
	t.Helper()
	h := nats.Header{}
	for k, v := range m.Headers {
		h.Set(k, v)
	}
	return sdknats.NewMessage(&nats.Msg{Header: h, Data: m.Body})
}

func writeNATS(ctx context.Context, t *testing.T, m binding.Message) cloudevents.Message {
	t.Helper()
	var body bytes.Buffer
	h, err := sdknats.WriteMsg(ctx, m, &body)
	fixture.NoError(t, err)
	return cloudevents.Message{Headers: header(t, h), Body: body.Bytes()}
}

func header(t *testing.T, h map[string][]string) map[string]string {
	t.Helper()
	headers, err := cloudevents.Header(h)
	fixture.NoError(t, err)
	return headers
}

// placed returns an event that all tests send.
func placed(subject string) cloudevents.Event {
	return cloudevents.Event{
		ID: "018f2d3e-4c5b-7000-8000-000000000001", Source: "https://shop.example/orders", Type: "order.placed",
		Subject: subject, Time: time.Date(2026, 5, 1, 10, 0, 0, 123456000, time.UTC),
		DataContentType: "application/json", DataSchema: "https://shop.example/schemas/order/2",
		Extensions: map[string]string{
			"partitionkey": "order/o-1", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1-01",
			"tracestate": "a=b,c=d",
		},
		Data: []byte(`{"total": 4200}`),
	}
}

// subject returns a text that the SDK can carry.
func (p protocol) subject(mode string) string {
	if p.plain && mode == "binary" {
		return "o-1"
	}
	return `50% "Größe" 😀`
}

func TestSDKReadsOurEvents(t *testing.T) {
	t.Parallel()
	for name, p := range protocols {
		for mode, encode := range map[string]func(cloudevents.Event) (cloudevents.Message, error){
			"binary": p.ours.Binary, "structured": p.ours.Structured,
		} {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				for _, want := range []cloudevents.Event{
					placed(p.subject(mode)), {ID: "1", Source: "/orders", Type: "t"},
				} {
					m, err := encode(want)
					fixture.NoError(t, err)
					got, err := binding.ToEvent(t.Context(), p.read(t, m))
					fixture.NoError(t, err)
					requireSame(t, got, want)
				}
			})
		}
	}
}

// Data that is not JSON travels as base64 in structured mode.
func TestSDKReadsOurBytes(t *testing.T) {
	t.Parallel()
	want := cloudevents.Event{
		ID: "1", Source: "/orders", Type: "t", DataContentType: "image/png", Data: []byte("\x00\xff\x89"),
	}
	for name, p := range protocols {
		m, err := p.ours.Structured(want)
		fixture.NoError(t, err)
		got, err := binding.ToEvent(t.Context(), p.read(t, m))
		fixture.Must(t, err == nil, "%s: %v", name, err)
		requireSame(t, got, want)
	}
}

func requireSame(t *testing.T, got *event.Event, want cloudevents.Event) {
	t.Helper()
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
	extensions := map[string]string{}
	for k, v := range got.Extensions() {
		switch k {
		case "kafkaoffset", "kafkapartition", "kafkatopic": // added by the SDK
		default:
			extensions[k], _ = v.(string)
		}
	}
	if got.ID() != want.ID || got.Source() != want.Source || got.Type() != want.Type || got.Subject() != want.Subject ||
		!got.Time().Equal(want.Time) || got.DataContentType() != want.DataContentType ||
		got.DataSchema() != want.DataSchema || !maps.Equal(extensions, want.Extensions) ||
		!bytes.Equal(got.Data(), want.Data) {
		t.Errorf("the SDK reads\n%s\nof %+v", got, want)
	}
}

func TestWeReadEventsOfTheSDK(t *testing.T) {
	t.Parallel()
	for name, p := range protocols {
		for mode, force := range map[string]func(context.Context) context.Context{
			"binary": binding.WithForceBinary, "structured": binding.WithForceStructured,
		} {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				want := placed(p.subject(mode))
				e := event.New()
				e.SetID(want.ID)
				e.SetSource(want.Source)
				e.SetType(want.Type)
				e.SetSubject(want.Subject)
				e.SetTime(want.Time)
				e.SetDataSchema(want.DataSchema)
				for k, v := range want.Extensions {
					e.SetExtension(k, v)
				}
				fixture.NoError(t, e.SetData(want.DataContentType, want.Data))
				m := p.write(force(t.Context()), t, binding.ToMessage(&e))
				got, err := p.ours.Decode(m)
				fixture.Must(t, err == nil, "%v of %q", err, m)
				fixture.Check(t, reflect.DeepEqual(got, want), "%+v, want %+v", got, want)
			})
		}
	}
}
