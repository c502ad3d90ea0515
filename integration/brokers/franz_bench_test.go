package brokers_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
)

// BenchmarkKafkaAsyncRelay drains a backlog through franzbridge into a real Kafka. For comparison,
// franz-go alone, with the settings of franzbridge, sends messages of the same size without any
// table, and a relay drains the same backlog into nothing. So the figures show whose cost it is.
func BenchmarkKafkaAsyncRelay(b *testing.B) {
	b.Run("franz-go alone", func(b *testing.B) {
		topic := topics.Kafka(b, "", 12, nil)
		client, err := kgo.NewClient(kgo.SeedBrokers(topics.KafkaAddress(b)), kgo.ProducerLinger(0),
			kgo.ProducerBatchCompression(kgo.NoCompression()))
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		var all sync.WaitGroup
		b.ResetTimer()
		for i := range b.N {
			all.Add(1)
			client.Produce(b.Context(), &kgo.Record{
				Topic: topic, Key: fmt.Append(nil, i%10_000), Value: make([]byte, 512),
			}, func(_ *kgo.Record, err error) {
				if err != nil {
					b.Error(err)
				}
				all.Done()
			})
		}
		all.Wait()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "published/s")
	})
	nothing := core.PublisherFunc(func(context.Context, core.Delivery) error { return nil })
	for _, name := range []string{"unordered", "ordered", "unordered into nothing", "ordered into nothing"} {
		b.Run(name, func(b *testing.B) {
			topic, publisher := topics.Kafka(b, "", 12, nil), core.Publisher(nothing)
			kind, into, _ := strings.Cut(name, " ")
			if into == "" {
				publisher = topics.FranzPublisher(b, franzbridge.Config{})
			}
			outbox, tx := kafkaOutbox(b, core.Config{Publisher: publisher, ColdEvents: 4000}, false)
			for done := 0; done < b.N; { // before Run, because only the drain is measured
				events := make([]core.Event, min(500, b.N-done))
				for i := range events {
					events[i] = kafkaEvent(topic, done+i)
					events[i].Unordered = kind == "unordered"
				}
				done += len(events)
				if err := publishInTx(b.Context(), outbox, tx, events...); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			if err := outbox.Drain(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "published/s")
		})
	}
}
