package brokers_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
)

// BenchmarkKafkaAsyncRelay drains a backlog through franzbridge into a real Kafka. Two comparisons
// show the cost of each part. In one, franz-go alone sends messages of the same size, with the
// settings of franzbridge and without a table. In the other, a relay drains the same backlog into
// nothing. The benchmark calls Run, because Outbox.Drain publishes one claim after the other.
func BenchmarkKafkaAsyncRelay(b *testing.B) {
	b.Run("franz-go alone", func(b *testing.B) {
		topic := topics.Kafka(b, "", 12, nil)
		client, err := kgo.NewClient(kgo.SeedBrokers(topics.KafkaAddress(b)), kgo.ProducerLinger(0),
			kgo.ProducerBatchCompression(kgo.NoCompression()))
		fixture.NoError(b, err)
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
			var marked atomic.Int64
			finished := make(chan struct{})
			outbox, tx := kafkaOutbox(
				b,
				core.Config{Publisher: publisher, Relay: relay.Config{}, Observer: &core.Observer{
					Marked: func(rows int, _ time.Duration, err error) {
						if err == nil && marked.Add(int64(rows)) == int64(b.N) {
							close(finished)
						}
					},
				}},
				false,
			)
			for done := 0; done < b.N; { // before Run, because only the drain is measured
				events := make([]core.Event, min(500, b.N-done))
				for i := range events {
					events[i] = kafkaEvent(topic, done+i)
					events[i].Unordered = kind == "unordered"
				}
				done += len(events)
				fixture.NoError(b, publishInTx(b.Context(), outbox, tx, events...))
			}
			ctx, stop := context.WithCancel(b.Context())
			defer stop()
			ended := make(chan error, 1)
			b.ResetTimer()
			go func() { ended <- outbox.Run(ctx) }()
			<-finished
			b.StopTimer()
			stop()
			fixture.NoError(b, <-ended)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "published/s")
		})
	}
}
