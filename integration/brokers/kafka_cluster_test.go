package brokers_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// There are three brokers, and every topic is on all of them. An acknowledgement means that two
// brokers have the event. While many events are on their way, leaders move from broker to broker
// and each broker is restarted cleanly. Afterwards Kafka has every event whose row is DONE, at the
// partition and offset that its receipt names. No two rows share a receipt. The first copies of
// each key are in order.
//
// Versions of Sarama before 1.48 fail this test: with idempotence on, they report messages as
// stored although no broker has them.
func TestKafkaClusterKeepsWhatItAcknowledged(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	c := topics.StartKafkaCluster(t)
	addresses := c.Addresses()
	pipelined := kafkabridge.SaramaConfig(0)
	pipelined.Producer.Idempotent, pipelined.Net.MaxOpenRequests = false, 5
	flows := []*clusterFlow{
		newClusterFlow(t, "idempotent", saramaPublisher(t, kafkabridge.Config{Brokers: addresses})),
		newClusterFlow(t, "pipelined", saramaPublisher(t, kafkabridge.Config{Brokers: addresses, Sarama: pipelined})),
		newClusterFlow(t, "franz", franzPublisher(t, franzbridge.Config{Brokers: addresses})),
	}
	for _, f := range flows {
		f.start(t)
		// The events exist before the topic does, so its first messages come all at once.
		fixture.Await(t, "events wait for their topic",
			func() bool { return f.count("SELECT COUNT(*) FROM outbox_event") >= 200 })
		c.Topic(f.topic)
	}
	progress := func() {
		t.Helper()
		for _, f := range flows {
			before := f.done()
			fixture.AwaitIn(t, time.Minute, f.name+": events are published",
				func() bool { return f.done() > before+20 })
		}
	}
	progress()
	for range 10 {
		c.MoveLeaders()
		progress()
	}
	for _, b := range c.Brokers {
		c.AwaitReplicas()
		b.Run(t, "down")
		progress()
		b.Up(t)
		c.AwaitReplicas()
		c.MoveLeaders()
		progress()
	}
	for _, f := range flows {
		f.stop()
	}
	for _, f := range flows {
		f.compare(t, addresses)
	}
}

// clusterFlow is a service that writes events and relays them to a topic of its own.
type clusterFlow struct {
	*fixture.Process
	name, topic string
	stop        func() // ends the producers and waits until all events are published
}

func saramaPublisher(t *testing.T, cfg kafkabridge.Config) core.Publisher {
	t.Helper()
	pub, err := kafkabridge.NewPublisher(cfg)
	fixture.NoError(t, err)
	topics.CloseAtEnd(t, pub)
	return pub
}

func franzPublisher(t *testing.T, cfg franzbridge.Config) core.Publisher {
	t.Helper()
	pub, err := franzbridge.NewPublisher(cfg)
	fixture.NoError(t, err)
	topics.CloseAtEnd(t, pub)
	return pub
}

func newClusterFlow(t *testing.T, name string, pub core.Publisher) *clusterFlow {
	t.Helper()
	return &clusterFlow{
		name: name, topic: fixture.UniqueTopic(name),
		Process: fixture.NewProcess(t, testdb.Postgres(t), core.Config{
			Publisher: pub, Relay: relay.Config{
				Workers: 64, PollInterval: 200 * time.Millisecond, MaxPollInterval: time.Second,
				Breaker: relay.BreakerPolicy{ProbeInterval: 200 * time.Millisecond, MaxProbeInterval: time.Second},
			},
		}),
	}
}

// start runs the relay and three producers.
func (f *clusterFlow) start(t *testing.T) {
	t.Helper()
	f.Run()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for n := range 3 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				events := make([]core.Event, 20)
				for k := range events {
					events[k] = core.Event{
						Type: "moved", Topic: f.topic, Key: fmt.Sprintf("%d-%d", n, (i*7+k)%200),
						Payload: []byte(`{}`),
					}
				}
				if err := f.Tx.RunInTx(context.Background(), func(ctx context.Context, tx core.Tx) error {
					_, err := f.Outbox.Publish(ctx, tx, events...)
					return err
				}); err != nil {
					t.Errorf("%s: %v", f.name, err)
					return
				}
				for open := 400; open >= 400 && ctx.Err() == nil; { // not faster than the relay
					text := "SELECT COUNT(*) FROM outbox_event WHERE status <> 1"
					if err := f.Pool.QueryRowContext(context.Background(), text).Scan(&open); err != nil {
						t.Errorf("%s: %v", f.name, err)
						return
					}
				}
			}
		})
	}
	f.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		fixture.AwaitIn(t, time.Minute, f.name+": everything is published", func() bool {
			return f.count("SELECT COUNT(*) FROM outbox_event WHERE status <> 1") == 0
		})
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

func (f *clusterFlow) count(text string) int {
	f.T.Helper()
	return fixture.Query(f.T, f.Pool, text, func(r *sql.Rows) (n int, err error) { return n, r.Scan(&n) })[0]
}

func (f *clusterFlow) done() int {
	return f.count("SELECT COUNT(*) FROM outbox_event WHERE status = 1")
}

type clusterRow struct {
	eventID, key, receipt string
	keySeq                int64
}

// compare compares the table with the messages that Kafka has.
func (f *clusterFlow) compare(t *testing.T, addresses []string) {
	t.Helper()
	held, positions := f.held(t, addresses)
	rows := fixture.Query(t, f.Pool, `SELECT event_id, partition_key, COALESCE(receipt, ''), key_seq FROM `+
		`outbox_event WHERE status = 1`,
		func(r *sql.Rows) (x clusterRow, err error) {
			return x, r.Scan(&x.eventID, &x.key, &x.receipt, &x.keySeq)
		})
	receipts, lost, misplaced := map[string]string{}, 0, 0
	told := map[string]clusterRow{}
	for _, row := range rows {
		told[row.eventID] = row
		switch found, ok := positions[row.receipt]; {
		case len(held[row.eventID]) == 0:
			lost++
			t.Logf("%s is DONE with receipt %s and not in Kafka", row.eventID, row.receipt)
		case !ok || found != row.eventID:
			misplaced++
			t.Logf("%s is at %v; its receipt says %s, where %q is", row.eventID, held[row.eventID], row.receipt, found)
		}
		if other, ok := receipts[row.receipt]; ok {
			t.Errorf("%s and %s share the receipt %s", row.eventID, other, row.receipt)
		}
		receipts[row.receipt] = row.eventID
	}
	t.Logf("%s: %d rows, %d messages", f.name, len(rows), len(positions))
	if lost > 0 || misplaced > 0 {
		t.Errorf("%s: of %d DONE events %d are lost, %d receipts name another place", f.name, len(rows), lost,
			misplaced)
	}
	last := map[string]clusterRow{} // by key: the row whose first copy came last
	for _, receipt := range sortedPositions(positions) {
		row, ok := told[positions[receipt]]
		if !ok {
			t.Fatalf("at %s is event %q, which has no row", receipt, positions[receipt])
		}
		if held[row.eventID][0] != receipt {
			continue // a further copy
		}
		if before, ok := last[row.key]; ok && row.keySeq != before.keySeq+1 {
			t.Errorf("key %s: %d follows %d at %s", row.key, row.keySeq, before.keySeq, receipt)
		}
		last[row.key] = row
	}
}

// held reads the whole topic. It returns the places of each event, in the order of their offsets,
// and the event at each place.
func (f *clusterFlow) held(t *testing.T, addresses []string) (held map[string][]string, positions map[string]string) {
	t.Helper()
	client, err := sarama.NewClient(addresses, kafkabridge.SaramaConfig(0))
	fixture.NoError(t, err)
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	fixture.NoError(t, err)
	defer consumer.Close()
	held, positions = map[string][]string{}, map[string]string{}
	for p := range int32(topics.ClusterPartitions) {
		end, err := client.GetOffset(f.topic, p, sarama.OffsetNewest)
		fixture.NoError(t, err)
		pc, err := consumer.ConsumePartition(f.topic, p, sarama.OffsetOldest)
		fixture.NoError(t, err)
		for next := int64(0); next < end; {
			select {
			case m := <-pc.Messages():
				at, id := place(f.topic, p, m.Offset), eventIDOf(m)
				held[id] = append(held[id], at)
				positions[at] = id
				next = m.Offset + 1
			case <-time.After(30 * time.Second):
				t.Fatalf("partition %d: no message at offset %d, the end is %d", p, next, end)
			}
		}
		_ = pc.Close()
	}
	return held, positions
}

func place(topic string, partition int32, offset int64) string {
	return fmt.Sprintf("%s/%d@%d", topic, partition, offset)
}

func eventIDOf(m *sarama.ConsumerMessage) string {
	for _, h := range m.Headers {
		if string(h.Key) == core.HeaderEventID {
			return string(h.Value)
		}
	}
	return ""
}

// sortedPositions returns the places of one topic by partition and offset.
func sortedPositions(positions map[string]string) []string {
	type at struct {
		partition, offset int64
		text              string
	}
	var all []at
	for text := range positions {
		a := at{text: text}
		_, _ = fmt.Sscanf(text[strings.LastIndexByte(text, '/'):], "/%d@%d", &a.partition, &a.offset)
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b at) int { return int(a.partition-b.partition)<<40 + int(a.offset-b.offset) })
	sorted := make([]string, len(all))
	for i := range all {
		sorted[i] = all[i].text
	}
	return sorted
}
