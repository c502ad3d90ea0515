package crash_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/crash"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// This is TestCrashAtEachPoint with Apache Kafka and RabbitMQ as the destination, with fewer kills.
// For each database, broker and point, the messages of the broker are compared at the end with the
// committed events.
func TestCrashThroughBrokers(t *testing.T) {
	for sink, to := range map[crash.Sink]func(*testing.T, *cell){
		crash.ToKafka:  crashToKafka,
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

// brokerRecord makes a record of the message that a broker has of an event. Its numbers are those
// of the key.
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

// crashToKafka gives the cell a topic of its own.
func crashToKafka(t *testing.T, c *cell) {
	t.Helper()
	const partitions = 3
	addr, topic := topics.KafkaAddress(t), topics.Kafka(t, "", partitions, nil)
	c.spec.SinkAddr, c.spec.Topic = addr, topic
	c.read = func(ctx context.Context) (records []crash.Message, err error) {
		client, err := sarama.NewClient([]string{addr}, sarama.NewConfig())
		if err != nil {
			return nil, err
		}
		defer client.Close()
		consumer, err := sarama.NewConsumerFromClient(client)
		if err != nil {
			return nil, err
		}
		defer consumer.Close()
		for p := range int32(partitions) { // a key is in one of them
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
