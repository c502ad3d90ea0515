package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/crash"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Processes that publish to Apache Kafka and to RabbitMQ are killed at one point after the other, on every database. What the broker has
// in the end is compared with what was committed.
func TestCrashThroughBrokers(t *testing.T) {
	for sink, open := range map[crash.Sink]func(*testing.T) (addr, topic string, read func(*testing.T) []crash.Message){
		crash.ToKafka: crashKafka, crash.ToRabbit: crashRabbit,
	} {
		t.Run(string(sink), func(t *testing.T) {
			testdb.Each(t, func(t *testing.T, db testdb.DB) {
				t.Parallel()
				addr, topic, read := open(t)
				c := newCell(t, db, crash.Never, 0)
				c.spec.Sink, c.spec.SinkAddr, c.spec.Topic = sink, addr, topic
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				r := rand.New(rand.NewPCG(c.seed, 0))
				points := []crash.Point{crash.AfterAck, crash.BeforeMark, crash.InsideCommit, crash.AfterClaim, crash.BeforeEnqueue}
				for n, p := range points {
					s := c.spec
					s.Name, s.Seed, s.Point, s.After, s.Warm = fmt.Sprintf("life-%d", n), r.Uint64(), p, 1+r.IntN(8), 5
					if err := c.life(ctx, s, 0); err != nil {
						t.Fatalf("seed %d: %v", c.seed, err)
					}
				}
				pub, err := crash.NewSink(c.spec)
				if err != nil {
					t.Fatal(err)
				}
				if err := drainTo(ctx, c.db, core.PublisherFunc(pub.Publish)); err != nil {
					t.Fatal(err)
				}
				v, err := judge(ctx, fmt.Sprintf("%s to %s", db.Name, sink), c.db, read(t))
				if err != nil {
					t.Fatal(err)
				}
				v.Kills = len(points)
				// A publish that ended without an answer may be there all the same. The relay says so in attempts; each is at most one copy.
				v.Limit(v.Kills*crash.DuplicatesPerKill+c.ledger.Note("", "unanswered"), nil)
				if err := v.Err(); err != nil {
					t.Errorf("seed %d: %v", c.seed, err)
				}
				t.Log(crash.Table([]crash.Verdict{v}))
			})
		})
	}
}

// brokerRecord makes a record of what a broker has of an event. Its numbers are those of the lane.
func brokerRecord(event, key, seq string) (crash.Message, error) {
	m := crash.Message{From: "broker", EventID: event}
	if seq == "" || seq == "0" {
		return m, nil
	}
	n, err := strconv.ParseInt(seq, 10, 64)
	m.Key, m.KeySeq = key, n
	return m, err
}

func crashKafka(t *testing.T) (addr, topic string, read func(*testing.T) []crash.Message) {
	t.Helper()
	addr, topic = realKafka(t), kafkaTopic(t, "", 3, nil)
	return addr, topic, func(t *testing.T) (records []crash.Message) {
		t.Helper()
		client, err := sarama.NewClient([]string{addr}, sarama.NewConfig())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		consumer, err := sarama.NewConsumerFromClient(client)
		if err != nil {
			t.Fatal(err)
		}
		defer consumer.Close()
		for p := range int32(3) { // a key is in one partition
			end, err := client.GetOffset(topic, p, sarama.OffsetNewest)
			if err != nil {
				t.Fatal(err)
			}
			if end == 0 {
				continue
			}
			pc, err := consumer.ConsumePartition(topic, p, 0)
			if err != nil {
				t.Fatal(err)
			}
			for last := int64(-1); last < end-1; {
				select {
				case m := <-pc.Messages():
					last = m.Offset
					h := map[string]string{}
					for _, x := range m.Headers {
						h[string(x.Key)] = string(x.Value)
					}
					rec, err := brokerRecord(h[core.HeaderEventID], string(m.Key), h[core.HeaderKeySeq])
					if err != nil {
						t.Fatal(err)
					}
					records = append(records, rec)
				case <-time.After(20 * time.Second):
					t.Fatalf("Kafka shows %d of %d records of partition %d", last+1, end, p)
				}
			}
			_ = pc.Close()
		}
		return records
	}
}

func crashRabbit(t *testing.T) (addr, topic string, read func(*testing.T) []crash.Message) {
	t.Helper()
	addr, topic = rabbitURI(t), rabbitTopic(t)
	return addr, topic, func(t *testing.T) (records []crash.Message) {
		t.Helper()
		ch := rabbitChannel(t)
		for {
			m, ok, err := ch.Get(topic, true)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return records
			}
			text := func(name string) string { s, _ := m.Headers[name].(string); return s }
			rec, err := brokerRecord(text(core.HeaderEventID), text(core.HeaderPartitionKey), text(core.HeaderKeySeq))
			if err != nil {
				t.Fatal(err)
			}
			records = append(records, rec)
		}
	}
}
