package debezium_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// world is PostgreSQL with an outbox that Debezium relays to Kafka. Connector "outbox" is
// configured as the documentation says. Connector "stock" works without our transformation, and
// sends to topics that begin with the field stock.
type world struct {
	*testing.T
	db      testdb.DB
	service *fixture.Process // inserts for Debezium
	relay   *fixture.Process // relays its own events with kafkabridge
	connect *connect
	client  sarama.Client
	stock   string // the prefix of the topics of connector "stock"
	// settings has the settings of each connector.
	settings map[string]map[string]string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, stock: topics.KafkaName() + "."}
	_, w.db = fixture.StartPrivateDatabase(t, "postgres") // slots and roles end with the server
	w.service = fixture.NewProcess(t, w.db, core.Config{RelayedByLog: true, Relay: relay.Config{DisableJanitor: true}})
	w.relay = fixture.JoinProcess(t, w.db, nil, core.Config{
		Publisher: topics.KafkaPublisher(t, kafkabridge.Config{}), Relay: relay.Config{DisableJanitor: true},
	})
	fixture.MustExec(t, w.service.Pool, text(t, "stock.sql"))
	// The statement that makes a slot must be sent alone.
	for statement := range strings.SplitSeq(text(t, "postgres.sql"), ";\n") {
		fixture.MustExec(t, w.service.Pool, statement)
	}
	fixture.MustExec(t, w.service.Pool, "SELECT pg_create_logical_replication_slot('outbox_stock', 'pgoutput')")

	at, err := url.Parse(w.db.DSN)
	fixture.NoError(t, err)
	settings := properties(t, "outbox.properties")
	own := map[string]string{
		"database.hostname": at.Hostname(), "database.port": at.Port(),
		"database.dbname": strings.TrimPrefix(at.Path, "/"), "topic.prefix": topics.KafkaName(),
		"heartbeat.interval.ms": "500", // a test does not wait for the log as long as users may
	}
	w.forget("__debezium-heartbeat." + own["topic.prefix"])
	for k := range own {
		fixture.Must(t, settings[k] != "", "outbox.properties does not set %s", k)
	}
	maps.Copy(settings, own)
	w.settings = map[string]map[string]string{"outbox": settings, "stock": w.withoutOurs(settings)}
	w.connect = newConnect(t, w.settings)
	w.connect.start()

	w.client, err = sarama.NewClient([]string{topics.KafkaAddress(t)}, kafkabridge.SaramaConfig(0))
	fixture.NoError(t, err)
	t.Cleanup(func() { _ = w.client.Close() })
	return w
}

// withoutOurs changes settings as the documentation says for Debezium without our transformation.
func (w *world) withoutOurs(settings map[string]string) map[string]string {
	w.Helper()
	stock := maps.Clone(settings)
	maps.Copy(stock, map[string]string{
		"name": "stock", "slot.name": "outbox_stock", "topic.prefix": settings["topic.prefix"] + ".stock",
		"transforms": "outbox,id", "transforms.outbox.route.topic.replacement": w.stock + "${routedByValue}",
	})
	stock["transforms.outbox.table.fields.additional.placement"] += ",traceparent:header:traceparent" +
		",tracestate:header:tracestate"
	w.forget("__debezium-heartbeat." + stock["topic.prefix"])
	return stock
}

// forget deletes a topic of Connect when the test ends.
func (w *world) forget(topic string) {
	w.Cleanup(func() {
		admin, err := sarama.NewClusterAdmin([]string{topics.KafkaAddress(w)}, kafkabridge.SaramaConfig(0))
		if err != nil {
			w.Error(err)
			return
		}
		defer admin.Close()
		_ = admin.DeleteTopic(topic) // Connect may not have made the topic
	})
}

const partitions = 3

// topic makes a topic, and the one of connector "stock" for the same events.
func (w *world) topic() string {
	w.Helper()
	name := topics.Kafka(w.T, "", partitions, nil)
	topics.Kafka(w.T, w.stock+name, partitions, nil)
	return name
}

// read returns the records that a topic has now, by partition and offset.
func (w *world) read(topic string) (all []*sarama.ConsumerMessage) {
	w.Helper()
	consumer, err := sarama.NewConsumerFromClient(w.client)
	fixture.NoError(w.T, err)
	defer consumer.Close()
	for p := range int32(partitions) {
		end, err := w.client.GetOffset(topic, p, sarama.OffsetNewest)
		fixture.NoError(w.T, err)
		if end == 0 {
			continue
		}
		messages, err := consumer.ConsumePartition(topic, p, 0)
		fixture.NoError(w.T, err)
		for last := int64(-1); last < end-1; {
			m := <-messages.Messages()
			all, last = append(all, m), m.Offset
		}
		fixture.NoError(w.T, messages.Close())
	}
	return all
}

// await returns the records of a topic when it has each of the events.
func (w *world) await(topic string, ids ...string) (all []*sarama.ConsumerMessage) {
	w.Helper()
	fixture.AwaitIn(w, 3*time.Minute, fmt.Sprintf("topic %s has %d events", topic, len(ids)), func() bool {
		if w.size(topic) < int64(len(ids)) {
			return false
		}
		all = w.read(topic)
		there := map[string]bool{}
		for _, m := range all {
			there[header(m, core.HeaderEventID)] = true
		}
		return !slices.ContainsFunc(ids, func(id string) bool { return !there[id] })
	})
	return all
}

func (w *world) size(topic string) (n int64) {
	w.Helper()
	for p := range int32(partitions) {
		end, err := w.client.GetOffset(topic, p, sarama.OffsetNewest)
		fixture.NoError(w.T, err)
		n += end
	}
	return n
}

func header(m *sarama.ConsumerMessage, name string) string {
	for _, h := range m.Headers {
		if string(h.Key) == name {
			return string(h.Value)
		}
	}
	return ""
}

// headers returns the headers of a record. A name that is there twice is an error.
func (w *world) headers(m *sarama.ConsumerMessage) map[string]string {
	w.Helper()
	all := map[string]string{}
	for _, h := range m.Headers {
		if _, twice := all[string(h.Key)]; twice {
			w.Errorf("header %s is there twice", h.Key)
		}
		all[string(h.Key)] = string(h.Value)
	}
	return all
}

// delivery returns what a relay would send for the row of an event.
func (w *world) delivery(e core.Event) core.Delivery {
	w.Helper()
	id, err := core.NewRowID(e.ID, e.Topic)
	fixture.NoError(w.T, err)
	return core.Delivery{Event: e, RowID: id, KeySeq: w.keySeq(id)}
}

// keySeq returns the number of a row in its key.
func (w *world) keySeq(id core.RowID) (n int64) {
	w.Helper()
	fixture.NoError(w.T, w.service.Pool.QueryRowContext(w.Context(),
		"SELECT COALESCE(key_seq, 0) FROM outbox_event WHERE id = $1", id.String()).Scan(&n))
	return n
}

// wantRead requires that a consumer reads the event and the place of a record.
func (w *world) wantRead(m *sarama.ConsumerMessage, d core.Delivery) {
	w.Helper()
	msg, err := kafka.DefaultMarshaler{}.Unmarshal(m)
	fixture.NoError(w.T, err)
	got, err := watermillbridge.EventFromMessage(msg)
	if err != nil || msg.UUID != d.ID || got.ID != d.ID || got.Type != d.Type || got.RowID != d.RowID ||
		got.KeySeq != d.KeySeq || got.Key != d.Key || got.TenantID != d.TenantID ||
		got.AggregateID != d.AggregateID || got.AggregateVersion != d.AggregateVersion ||
		got.SchemaVersion != d.SchemaVersion || got.ContentType != d.ContentType || got.Unordered != d.Unordered ||
		!got.OccurredAt.Equal(d.OccurredAt) || !bytes.Equal(got.Payload, d.Payload) {
		w.Errorf("read as %+v, %v, want %+v", got, err, d)
	}
}

// wantRecord requires that a record is the message that kafkabridge sends for a delivery.
func (w *world) wantRecord(m *sarama.ConsumerMessage, d core.Delivery) {
	w.Helper()
	msg := watermillbridge.NewMessage(w.Context(), d)
	if string(m.Key) != d.Key || (m.Key == nil) != (d.Key == "") {
		w.Errorf("%s: key %q, want %q", d.ID, m.Key, d.Key)
	}
	if m.Value == nil || string(m.Value) != string(d.Payload) {
		w.Errorf("%s: %d bytes %.80q, want %d bytes %.80q", d.ID, len(m.Value), m.Value, len(d.Payload), d.Payload)
	}
	got, want := w.headers(m), map[string]string(msg.Metadata)
	want["_watermill_message_uuid"] = msg.UUID
	for _, name := range []string{core.HeaderSchemaVersion, core.HeaderAggregateVersion} { // 0 means that there is none
		if got[name] == "0" {
			delete(got, name)
		}
	}
	// The time is the same in another format: PostgreSQL keeps microseconds, and Debezium writes
	// all six digits.
	at, err := time.Parse(time.RFC3339Nano, got[core.HeaderOccurredAt])
	if got[core.HeaderOccurredAt] = at.Format(time.RFC3339Nano); err != nil {
		w.Error(err)
	}
	if !maps.Equal(got, want) {
		w.Errorf("%s: headers\n%v, want\n%v", d.ID, got, want)
	}
}
