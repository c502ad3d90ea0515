package crash_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/crash"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// This is TestCrashAtEachPoint with Apache Kafka and RabbitMQ as the destination, with fewer kills.
// For each database, broker and point, the messages of the broker are compared at the end with the
// committed events.
func TestCrashThroughBrokers(t *testing.T) {
	longtest.Mark(t)
	for sink, to := range map[crash.Sink]func(*testing.T, *cell){
		crash.ToKafka:  crashToKafka,
		crash.ToFranz:  crashToKafka,
		crash.ToRabbit: crashToRabbit,
	} {
		t.Run(string(sink), func(t *testing.T) {
			testdb.Each(t, func(t *testing.T, db testdb.DB) {
				cells := make([]cell, 0, len(crash.Points))
				for _, p := range crash.Points {
					c := newCell(t, db, p, killsPerSlowCell)
					c.name, c.spec.Sink = fmt.Sprintf("%s to %s: %s", db.Name, sink, p), sink
					to(t, &c)
					cells = append(cells, c)
				}
				runCells(t, cells)
			})
		})
	}
}

// brokerRecord makes a record from a message of a broker. header returns the value of one of its
// headers.
func brokerRecord(header func(name string) string) (crash.Message, error) {
	m := crash.Message{
		From: header(crash.HeaderFrom), Cold: header(crash.HeaderCold) != "", EventID: header(core.HeaderEventID),
	}
	if m.From == "" {
		return m, fmt.Errorf("event %q does not say which process published it", m.EventID)
	}
	seq := header(core.HeaderKeySeq)
	if seq == "" || seq == "0" {
		return m, nil
	}
	var err error
	m.Key = header(core.HeaderPartitionKey)
	m.KeySeq, err = strconv.ParseInt(seq, 10, 64)
	return m, err
}

// franzKills is how many processes die at random moments while Kafka has many of their events.
const franzKills = 12

// Processes that hand many events over to Kafka at once, of the fast path and of a backlog, are
// ended with SIGKILL at random moments. Each kill repeats at most InFlight + MarkBatch +
// MaxUnmarked events of the fast path and ColdEvents of the poller.
func TestCrashWithManyInFlight(t *testing.T) {
	longtest.Mark(t)
	db := testdb.Postgres(t)
	var cells []cell
	for name, hotEvents := range map[string]int{"fast path": 0, "backlog": 2} {
		c := newCell(t, db, crash.Never, franzKills)
		c.name, c.spec.Sink = "many in flight: "+name, crash.ToFranz
		c.spec.Writers, c.spec.Pause, c.spec.HotEvents = 8, 200*time.Microsecond, hotEvents
		crashToKafka(t, &c)
		cells = append(cells, c)
	}
	runCells(t, cells)
}

// This is TestCrashWithManyInFlight with a cluster of three brokers. Meanwhile the leaders of the
// partitions move from broker to broker, and one broker after the other is ended with SIGKILL.
func TestCrashThroughKafkaCluster(t *testing.T) {
	longtest.Mark(t)
	cluster := topics.StartKafkaCluster(t)
	c := newCell(t, testdb.Postgres(t), crash.Never, franzKills)
	c.name, c.spec.Sink, c.spec.SinkAddr = "cluster", crash.ToFranz, strings.Join(cluster.Addresses(), ",")
	c.spec.Topic, c.spec.PublishTimeout = fixture.UniqueTopic("crash"), 2*time.Second
	c.spec.Writers, c.spec.Pause, c.longest = 4, time.Millisecond, 3*time.Second
	cluster.Topic(c.spec.Topic)
	c.readsKafka(topics.ClusterPartitions)
	once := c.read
	c.read = func(ctx context.Context) (records []crash.Message, err error) {
		fixture.AwaitIn(t, time.Minute, "the topic is read between two kills of brokers", func() bool {
			records, err = once(ctx)
			return err == nil
		})
		return records, err
	}

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runCells(t, []cell{c})
	}()
	t.Cleanup(func() { <-ended })
	moves, kills := 0, 0
	for over := false; !over; {
		for range 2 {
			cluster.MoveLeaders()
			moves++
		}
		b := cluster.Brokers[kills%len(cluster.Brokers)]
		b.Kill(t)
		kills++
		b.Up(t)
		cluster.AwaitReplicas()
		select {
		case <-ended:
			over = true
		default:
		}
	}
	t.Logf("%d times all leaders moved, %d brokers were killed", moves, kills)
}

// crashToKafka gives the cell a topic of its own.
func crashToKafka(t *testing.T, c *cell) {
	t.Helper()
	const partitions = 3
	c.spec.SinkAddr, c.spec.Topic = topics.KafkaAddress(t), topics.Kafka(t, "", partitions, nil)
	c.readsKafka(partitions)
}

// readsKafka makes the cell read its topic at the end.
func (c *cell) readsKafka(partitions int32) {
	addresses, topic := strings.Split(c.spec.SinkAddr, ","), c.spec.Topic
	c.read = func(ctx context.Context) (records []crash.Message, err error) {
		client, err := sarama.NewClient(addresses, sarama.NewConfig())
		if err != nil {
			return nil, err
		}
		defer client.Close()
		consumer, err := sarama.NewConsumerFromClient(client)
		if err != nil {
			return nil, err
		}
		defer consumer.Close()
		for p := range partitions { // a key is in one of them
			end, err := client.GetOffset(topic, p, sarama.OffsetNewest)
			if err != nil {
				return nil, err
			}
			if end == 0 {
				continue
			}
			part, err := readPartition(ctx, consumer, topic, p, end)
			if err != nil {
				return nil, err
			}
			records = append(records, part...)
		}
		return records, nil
	}
}

// readPartition reads a partition from its beginning up to the offset end.
func readPartition(ctx context.Context, consumer sarama.Consumer, topic string, p int32,
	end int64,
) (records []crash.Message, err error) {
	pc, err := consumer.ConsumePartition(topic, p, 0)
	if err != nil {
		return nil, err
	}
	defer pc.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for last := int64(-1); last < end-1; {
		select {
		case m := <-pc.Messages():
			last = m.Offset
			rec, err := brokerRecord(func(name string) string {
				for _, h := range m.Headers {
					if string(h.Key) == name {
						return string(h.Value)
					}
				}
				return ""
			})
			if err != nil {
				return nil, err
			}
			records = append(records, rec)
		case <-ctx.Done():
			return nil, fmt.Errorf("only %d of %d records of partition %d came: %w", last+1, end, p, ctx.Err())
		}
	}
	return records, nil
}

// crashToRabbit gives the cell a queue of its own.
func crashToRabbit(t *testing.T, c *cell) {
	t.Helper()
	uri, queue := topics.RabbitURI(t), topics.Rabbit(t)
	c.spec.SinkAddr, c.spec.Topic = uri, queue
	c.read = func(context.Context) (records []crash.Message, err error) {
		conn, err := amqp091.Dial(uri)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, conn.Close()) }()
		ch, err := conn.Channel()
		if err != nil {
			return nil, err
		}
		for {
			m, ok, err := ch.Get(queue, true)
			if err != nil || !ok {
				return records, err
			}
			rec, err := brokerRecord(func(name string) string { s, _ := m.Headers[name].(string); return s })
			if err != nil {
				return nil, err
			}
			records = append(records, rec)
		}
	}
}
