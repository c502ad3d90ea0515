package brokers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// kafkaRecords reads the topic, partition by partition, until there are at least n
// messages and nothing more comes.
func kafkaRecords(t *testing.T, topic string, n int) []*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(topics.KafkaAddress(t)), kgo.ConsumeTopics(topic),
		kgo.FetchMaxWait(250*time.Millisecond))
	fixture.NoError(t, err)
	defer client.Close()
	var records []*kgo.Record
	for limit := time.Now().Add(time.Minute); ; {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		fetched := client.PollFetches(ctx)
		cancel()
		records = append(records, fetched.Records()...)
		if len(records) >= n && fetched.NumRecords() == 0 {
			break
		}
		fixture.Must(t, !time.Now().After(limit), "%d messages of %d within a minute", len(records), n)
	}
	slices.SortFunc(records, func(a, b *kgo.Record) int {
		return int(a.Partition-b.Partition)<<40 + int(a.Offset-b.Offset)
	})
	return records
}

// franzbridge and kafkabridge send the same message: key, payload and headers.
func TestFranzSendsWhatKafkabridgeSends(t *testing.T) {
	t.Parallel()
	carried := `{"uuid":"u-1","metadata":{"with blank":"x\u0001","event_id":"no"}}`
	for name, mapper := range map[string]*cloudevents.Mapper{
		"plain": nil, "binary": {Source: "/orders"},
		"structured": {Source: "/orders", Mode: cloudevents.ModeStructured},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := topics.Kafka(t, "", 1, nil)
			full := brokerDelivery(t, topic, "order/o-2")
			message := brokerDelivery(t, topic, "")
			message.Headers = map[string]string{
				core.HeaderMessage: carried, "a": "b", "ce_id": "not ours", "ce-type": "x",
				"Content-Type": "x",
			}
			other := brokerDelivery(t, topic, "k")
			other.Headers, other.Payload = map[string]string{core.HeaderMessage: "not JSON"}, nil
			other.ContentType = ""
			deliveries := []core.Delivery{full, message, other}
			for _, p := range []core.Publisher{
				topics.KafkaPublisher(t, kafkabridge.Config{Bridge: watermillbridge.Config{CloudEvents: mapper}}),
				topics.FranzPublisher(t, franzbridge.Config{CloudEvents: mapper}),
			} {
				for _, d := range deliveries {
					fixture.NoError(t, publishWithin(t, p, d, time.Minute))
				}
			}
			records := kafkaRecords(t, topic, 2*len(deliveries))
			fixture.Must(t, len(records) == 2*len(deliveries), "%d messages", len(records))
			for i := range deliveries {
				want, got := records[i], records[i+len(deliveries)]
				fixture.Check(t, bytes.Equal(got.Key, want.Key) && (got.Key == nil) == (want.Key == nil),
					"key %q, kafkabridge sends %q", got.Key, want.Key)
				fixture.Check(t, bytes.Equal(got.Value, want.Value) && (got.Value == nil) == (want.Value == nil),
					"value %q, kafkabridge sends %q", got.Value, want.Value)
				if g, w := headerMap(got), headerMap(want); !maps.Equal(g, w) || len(got.Headers) != len(want.Headers) {
					t.Errorf("headers %v\nkafkabridge sends %v", g, w)
				}
			}
		})
	}
}

func headerMap(r *kgo.Record) map[string]string {
	m := map[string]string{}
	for _, h := range r.Headers {
		m[h.Key] = string(h.Value)
	}
	return m
}

// The partitions are those of the Java client and of kafkabridge, for a topic of 3 partitions.
func TestFranzPartitionsLikeJava(t *testing.T) {
	t.Parallel()
	topic := topics.Kafka(t, "", 3, nil)
	p := topics.FranzPublisher(t, franzbridge.Config{})
	for key, want := range map[string]int32{
		"a": 1, "ab": 2, "abc": 0, "abcd": 2, "21": 0, "foobar": 0, "a-little-bit-longer-string": 2,
		"order/o-1": 0, "order/o-2": 1, "order/o-3": 1, "Grüße/ß": 1, "kunde-7": 1,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		receipt, err := p.PublishWithReceipt(ctx, brokerDelivery(t, topic, key))
		cancel()
		fixture.Check(t, err == nil && strings.HasPrefix(receipt, fmt.Sprintf("%s/%d@", topic, want)),
			"key %q: receipt %q, err %v, the Java client puts it on %d", key, receipt, err, want)
	}
}

func TestFranzRefusesPermanently(t *testing.T) {
	t.Parallel()
	limit := "1024"
	topic := topics.Kafka(t, "", 1, map[string]*string{"max.message.bytes": &limit})
	p := topics.FranzPublisher(t, franzbridge.Config{})
	d := brokerDelivery(t, topic, "k")
	d.Payload = make([]byte, 4096)
	err := publishWithin(t, p, d, time.Minute)
	requireClass(t, err, core.ClassPermanent)
	fixture.Check(t, errors.Is(err, kerr.MessageTooLarge), "err = %v, want MESSAGE_TOO_LARGE", err)
	requireClass(t, publishWithin(t, p, brokerDelivery(t, "no/topic name", "k"), time.Minute), core.ClassPermanent)
	if err := publishWithin(t, p, brokerDelivery(t, topic, "k"), time.Minute); err != nil {
		t.Errorf("the next message: %v", err)
	}
}

func TestFranzTopicIsCreatedLater(t *testing.T) {
	t.Parallel()
	p := topics.FranzPublisher(t, franzbridge.Config{})
	topic := topics.KafkaName()
	err := publishWithin(t, p, brokerDelivery(t, topic, "k"), time.Minute)
	requireClass(t, err, core.ClassUnavailable)
	fixture.Check(t, errors.Is(err, kerr.UnknownTopicOrPartition), "err = %v, want UNKNOWN_TOPIC_OR_PARTITION", err)
	topics.Kafka(t, topic, 1, nil)
	fixture.Await(t, "a publish to the new topic", func() bool {
		return publishWithin(t, p, brokerDelivery(t, topic, "k"), time.Minute) == nil
	})
}

// A relay hands over many events at once. The broker never takes some of them, and some are for a
// topic that does not exist. Afterwards Kafka has every event whose row is DONE, once, at the place
// that its receipt names. The events of each key are in order, up to the refused one.
func TestFranzRelayUnderLoad(t *testing.T) {
	t.Parallel()
	limit := "20000"
	topic := topics.Kafka(t, "", 4, map[string]*string{"max.message.bytes": &limit})
	missing := topics.KafkaName()
	const timeout = 25 * time.Second // an event that is given up because the machine is slow arrives twice
	p := topics.FranzPublisher(t, franzbridge.Config{PublishTimeout: timeout})
	o := newOutage(
		t,
		core.Config{Publisher: p, Relay: relay.Config{InFlight: 300, PublishTimeout: timeout, HotLease: 2 * timeout}},
	)
	const events, keys, badKeys = 4000, 200, 5
	for n := 0; n < events; {
		batch := make([]core.Event, 50)
		for i := range batch {
			e := core.Event{Type: "placed", Topic: topic, Key: fmt.Sprint(n % keys), Payload: []byte(`{}`)}
			if n%keys < badKeys && n/keys == 10 {
				e.Payload = make([]byte, 30_000) // the topic takes less than the client
			}
			if n%97 == 0 {
				e.Topic = missing
			}
			batch[i] = e
			n++
		}
		o.publish(batch...)
	}
	fixture.AwaitIn(t, time.Minute, "everything is published or dead", func() bool {
		rows := o.repo.Rows()
		return !slices.ContainsFunc(rows, func(r outboxtest.Row) bool {
			return r.Event.Topic == topic && (r.Status == outboxtest.StatusNew || r.Status == outboxtest.StatusRetry) &&
				!behindDead(rows, r)
		})
	})

	rows, done := map[string]outboxtest.Row{}, 0
	for _, r := range o.repo.Rows() {
		rows[r.Event.ID] = r
		switch {
		case r.Event.Topic == missing && (r.Status == outboxtest.StatusDone || r.Status == outboxtest.StatusDead ||
			r.Attempts > 0):
			t.Errorf("an event of a missing topic is %s after %d attempts", r.Status, r.Attempts)
		case r.Status == outboxtest.StatusDone:
			done++
		case r.Status == outboxtest.StatusDead && len(r.Event.Payload) < 30_000:
			t.Errorf("a small event is dead: %s", r.Error)
		}
	}
	fixture.Check(t, done >= events/2, "only %d events are done: too little happened", done)
	last := map[string]int64{}
	records := kafkaRecords(t, topic, done)
	for _, m := range records {
		r, ok := rows[headerMap(m)[core.HeaderEventID]]
		place := fmt.Sprintf("%s/%d@%d", m.Topic, m.Partition, m.Offset)
		fixture.Must(t, ok && r.Status == outboxtest.StatusDone && r.Receipt == place, "at %s: row %+v", place, r)
		if r.KeySeq <= last[r.Event.Key] {
			t.Errorf("key %s: %d follows %d", r.Event.Key, r.KeySeq, last[r.Event.Key])
		}
		last[r.Event.Key] = r.KeySeq
	}
	fixture.Check(t, len(records) == done, "Kafka has %d messages of %d events that are done", len(records), done)
}

// behindDead reports whether an event waits behind a dead one of its key.
func behindDead(rows []outboxtest.Row, of outboxtest.Row) bool {
	return slices.ContainsFunc(rows, func(r outboxtest.Row) bool {
		return r.KeyID == of.KeyID && r.KeySeq < of.KeySeq && r.Status == outboxtest.StatusDead
	})
}
