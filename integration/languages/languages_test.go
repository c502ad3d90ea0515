//go:build languages

package languages_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

const (
	source = "https://shop.example/orders"
	trace  = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)

// forms has the forms of a message: plain, or a CloudEvent in one of its modes.
var forms = map[string]*cloudevents.Mapper{
	"plain": nil, "binary": {Source: source}, "structured": {Source: source, Mode: cloudevents.ModeStructured},
}

// Each consumer reads what both bridges send: key, headers and payload, and the event by CloudEvents'
// SDK.
func TestKafka(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"consume_kafka.py", "consume_kafka.js", "ConsumeKafka.java"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			topic := topics.Kafka(t, "", 1, nil)
			sent := map[string]message{}
			for form, mapper := range forms {
				for _, p := range []core.Publisher{
					topics.KafkaPublisher(t, kafkabridge.Config{Bridge: watermillbridge.Config{CloudEvents: mapper}}),
					topics.FranzPublisher(t, franzbridge.Config{CloudEvents: mapper}),
				} {
					publish(t, p, topic, form, sent)
				}
			}
			got := run(t, program, topics.KafkaAddress(t), topic, topic+".group", strconv.Itoa(len(sent)))
			for _, m := range got {
				w, ok := sent[m.Headers[core.HeaderEventID]]
				fixture.Must(t, ok, "%v was not sent", m)
				fixture.Check(t, string(m.Key) == w.Key && (m.Key == nil) == (w.Key == ""), "%s: key %q", w, m.Key)
				w.requireSame(t, m, "ce_", m.Headers[core.HeaderContentType])
				delete(sent, w.ID)
			}
			fixture.Check(t, len(sent) == 0, "not read: %v", sent)
		})
	}
}

// Each consumer reads what the bridge sends: headers, content type and payload, and the event by
// CloudEvents' SDK.
func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"consume_rabbitmq.py", "consume_rabbitmq.js", "ConsumeRabbitMQ.java"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			queue := topics.Rabbit(t)
			sent := map[string]message{}
			for form, mapper := range forms {
				publish(t, topics.RabbitPublisher(t, amqpbridge.Config{
					AMQP: amqpbridge.QueueConfig(topics.RabbitURI(t)), DeclareQueues: true,
					Bridge: watermillbridge.Config{CloudEvents: mapper},
				}), queue, form, sent)
			}
			got := run(t, program, strings.TrimSuffix(topics.RabbitURI(t), "/"), queue, strconv.Itoa(len(sent)))
			for _, m := range got {
				w, ok := sent[m.Headers[core.HeaderEventID]]
				fixture.Must(t, ok, "%v was not sent", m)
				w.requireSame(t, m, "cloudEvents:", m.ContentType)
				delete(sent, w.ID)
			}
			fixture.Check(t, len(sent) == 0, "not read: %v", sent)
		})
	}
}

// message is what was published.
type message struct {
	core.Delivery
	form string
}

func (m message) String() string { return m.form + " " + m.Type }

// publish publishes each kind of event.
func publish(t *testing.T, p core.Publisher, topic, form string, sent map[string]message) {
	t.Helper()
	for _, e := range []core.Event{
		{
			Type: "order.placed", AggregateType: "order", AggregateID: "o-7", Key: "order/o-7", TenantID: "Käserei",
			SchemaVersion: 2, ContentType: "application/json", Payload: []byte(`{"cake":"Käsekuchen","cents":1250}`),
			Headers: map[string]string{"traceparent": trace, "note": "Grüße"},
		},
		{
			Type: "cheese.scanned", Key: "käse/8", ContentType: "application/octet-stream",
			Payload: []byte{0, 1, 0xff, 0xfe},
		},
		{Type: "order.closed", Payload: []byte{}},
		{ // the data of a person were erased
			Type: "guest.registered", ContentType: "application/json", Payload: []byte{},
			Headers: map[string]string{core.HeaderErased: "2026-05-01T10:00:00Z"},
		},
		{Type: "guest.greeted", Key: "guest/1", ContentType: "application/json", Payload: []byte(`"Grüß dich"`)},
	} {
		e.ID, e.Topic, e.OccurredAt = core.NewEventID(), topic, time.Now().UTC().Truncate(time.Microsecond)
		row, err := core.NewRowID(e.ID, topic)
		fixture.NoError(t, err)
		m := message{core.Delivery{Event: e, RowID: row, Attempt: 1}, form}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err = p.Publish(ctx, m.Delivery)
		cancel()
		fixture.NoError(t, err)
		sent[e.ID] = m
	}
}

// received is what a consumer has printed.
type received struct {
	Key         []byte            `json:"key"`
	Headers     map[string]string `json:"headers"`
	ContentType string            `json:"content_type"`
	Payload     []byte            `json:"payload"`
	Event       map[string]any    `json:"event"` // what the SDK of CloudEvents has read
	Value       any               `json:"value"` // what a deserializer has read

	precision time.Duration // of the language's times
}

// run returns what a program reads.
func run(t *testing.T, program string, args ...string) (got []received) {
	t.Helper()
	libraries := os.Getenv("OUTBOX_TEST_LANGUAGES")
	fixture.Must(t, libraries != "", "OUTBOX_TEST_LANGUAGES is empty: run `make test-languages`")
	command := map[string][]string{
		".py": {filepath.Join(libraries, "venv", "bin", "python")},
		".js": {"node"},
		".java": {
			"java", "-Xmx192m", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(libraries, "java", "*"),
		},
	}[filepath.Ext(program)]
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], append(append(command[1:], program), args...)...)
	cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(libraries, "node_modules"), "PYTHONDONTWRITEBYTECODE=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", program, err, out.String(), errs.String())
	}
	for dec := json.NewDecoder(&out); dec.More(); {
		m := received{precision: time.Microsecond}
		if filepath.Ext(program) == ".js" {
			m.precision = time.Millisecond
		}
		fixture.NoError(t, dec.Decode(&m))
		got = append(got, m)
	}
	return got
}

// requireSame compares what a consumer has read. Attributes of a CloudEvent begin with prefix.
func (m message) requireSame(t *testing.T, got received, prefix, contentType string) {
	t.Helper()
	want := maps.Clone(m.Headers)
	if want == nil {
		want = map[string]string{}
	}
	maps.Copy(want, map[string]string{
		"event_id": m.ID, "event_type": m.Type, "occurred_at": m.OccurredAt.Format(time.RFC3339Nano),
		"outbox_row_id": m.RowID.String(), "outbox_attempt": "1", "_watermill_message_uuid": m.ID,
	})
	for name, v := range map[string]string{
		"partition_key": m.Key, "aggregate_type": m.AggregateType, "aggregate_id": m.AggregateID,
		"tenant_id": m.TenantID,
	} {
		if v != "" {
			want[name] = v
		}
	}
	if m.SchemaVersion != 0 {
		want["schema_version"] = strconv.Itoa(m.SchemaVersion)
	}
	headers := maps.Clone(got.Headers)
	delete(headers, core.HeaderContentType)
	maps.DeleteFunc(headers, func(name, _ string) bool { return strings.HasPrefix(name, prefix) })
	fixture.Check(t, maps.Equal(headers, want), "%s: headers %v\nwant %v", m, headers, want)
	if m.form == "structured" {
		fixture.Check(t, strings.HasPrefix(contentType, "application/cloudevents+json"), "%s: %s", m, contentType)
	} else {
		fixture.Check(t, contentType == m.ContentType, "%s: content type %q", m, contentType)
		fixture.Check(t, got.Payload != nil && bytes.Equal(got.Payload, m.Payload), "%s: payload %q", m, got.Payload)
	}
	if m.form == "plain" {
		fixture.Check(t, got.Event == nil, "%s: read as %v", m, got.Event)
		return
	}
	m.requireEvent(t, got.Event, got.precision)
}

// requireEvent compares what an SDK has read.
func (m message) requireEvent(t *testing.T, got map[string]any, precision time.Duration) {
	t.Helper()
	want := map[string]any{"specversion": "1.0", "id": m.ID, "source": source, "type": m.Type}
	for name, v := range map[string]string{
		"datacontenttype": m.ContentType, "partitionkey": m.Key, "traceparent": m.Headers["traceparent"],
	} {
		if v != "" {
			want[name] = v
		}
	}
	if m.AggregateID != "" {
		want["subject"] = m.AggregateID
	} else if m.Key != "" {
		want["subject"] = m.Key
	}
	text, _ := got["time"].(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	fixture.Check(t, err == nil && at.Equal(m.OccurredAt.Truncate(precision)), "%s: time %q, want %s", m, text,
		m.OccurredAt)
	var data []byte
	if text, ok := got["data"].(string); ok {
		fixture.NoError(t, json.Unmarshal([]byte(strconv.Quote(text)), &data))
	}
	if m.ContentType == "application/json" && len(m.Payload) > 0 {
		var g, w any
		fixture.NoError(t, json.Unmarshal(m.Payload, &w))
		fixture.Check(t, json.Unmarshal(data, &g) == nil && reflect.DeepEqual(g, w), "%s: data %q", m, data)
	} else {
		fixture.Check(t, bytes.Equal(data, m.Payload), "%s: data %q", m, data)
	}
	attributes := maps.Clone(got)
	delete(attributes, "time")
	delete(attributes, "data")
	fixture.Check(t, reflect.DeepEqual(attributes, want), "%s: attributes %v\nwant %v", m, attributes, want)
}
