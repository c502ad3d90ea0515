package brokers_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

const (
	kafkaWorkers = 128
	hotProducers = 64
)

// BenchmarkKafkaRelay runs the relay with a real Kafka and 128 workers. Rows are marked as done, or
// deleted. For comparison, 128 goroutines publish through the same publisher without any table. The
// difference in published/s is the cost of the outbox.
func BenchmarkKafkaRelay(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		p, topic := topics.KafkaPublisher(b, kafkabridge.Config{}), topics.Kafka(b, "", 12, nil)
		b.SetParallelism(kafkaWorkers / 2) // times the processors
		var n atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				i := n.Add(1)
				d := core.Delivery{RowID: core.RowID{1}, Event: core.Event{
					ID: core.NewEventID(), Type: "order.placed", Topic: topic, Key: fmt.Sprint(i % 10_000),
					Payload: make([]byte, 512),
				}}
				if err := p.Publish(b.Context(), d); err != nil {
					b.Error(err)
					return
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "published/s")
	})
	for _, deleted := range []bool{false, true} {
		b.Run(map[bool]string{false: "marked", true: "deleted"}[deleted], func(b *testing.B) {
			publisher := topics.KafkaPublisher(b, kafkabridge.Config{})
			outbox, tx := kafkaOutbox(
				b,
				core.Config{Publisher: publisher, Relay: relay.Config{ColdEvents: 4000}},
				deleted,
			)
			topic := topics.Kafka(b, "", 12, nil)
			for done := 0; done < b.N; { // before Run, because only the drain is measured
				events := make([]core.Event, min(500, b.N-done))
				for i := range events {
					events[i] = kafkaEvent(topic, done+i)
				}
				done += len(events)
				fixture.NoError(b, publishInTx(b.Context(), outbox, tx, events...))
			}
			b.ResetTimer()
			fixture.NoError(b, outbox.Drain(b.Context()))
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "published/s")
		})
	}
}

// BenchmarkKafkaHotPath measures the time from COMMIT to Kafka's acknowledgement. Meanwhile 64
// goroutines commit transactions of one event, as many per second as the name says, or as fast as
// they can. Rows are marked as done, or deleted. kafka-p50-ms is the time that Kafka takes, and the
// rest is the time of the outbox. The share of the fast path shows whether the relay keeps up. If
// producers are faster than the relay, the time is mostly that of waiting in a queue.
func BenchmarkKafkaHotPath(b *testing.B) {
	for _, rate := range []int{1000, 3000, 0} {
		name := "full speed"
		if rate > 0 {
			name = fmt.Sprint(rate, " a second")
		}
		b.Run(name+"/marked", func(b *testing.B) { benchmarkKafkaHotPath(b, rate, false) })
		b.Run(name+"/deleted", func(b *testing.B) { benchmarkKafkaHotPath(b, rate, true) })
	}
}

func benchmarkKafkaHotPath(b *testing.B, rate int, deleted bool) {
	b.Helper()
	type times struct{ whole, call time.Duration }
	var hot, left atomic.Int64
	took := make(chan times, b.N)
	left.Store(int64(b.N))
	done := make(chan struct{})
	topic := topics.Kafka(b, "", 12, nil)
	var committed sync.Map // id of the event -> time.Time
	publisher := topics.KafkaPublisher(b, kafkabridge.Config{})
	outbox, tx := kafkaOutbox(b, core.Config{
		Publisher: core.PublisherFunc(func(ctx context.Context, d core.Delivery) error {
			entered := time.Now()
			if err := publisher.Publish(ctx, d); err != nil {
				return err
			}
			at, _ := committed.LoadAndDelete(d.ID)
			took <- times{time.Since(at.(time.Time)), time.Since(entered)}
			if left.Add(-1) == 0 {
				close(done)
			}
			return nil
		}), Relay: relay.Config{},
		Observer: &core.Observer{Inserted: func(_ string, fast bool) {
			if fast {
				hot.Add(1)
			}
		}},
	}, deleted)
	ctx, stop := context.WithCancel(b.Context())
	ran := make(chan error, 1)
	go func() { ran <- outbox.Run(ctx) }()
	var next atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	start := time.Now()
	for range hotProducers {
		all.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if rate > 0 {
					time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))))
				}
				ev := kafkaEvent(topic, int(i))
				ev.ID = core.NewEventID()
				err := tx.RunInTx(ctx, func(ctx context.Context, otx core.Tx) error {
					otx.OnOutcome(func(core.Outcome) { committed.Store(ev.ID, time.Now()) })
					_, err := outbox.Publish(ctx, otx, ev)
					return err
				})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	<-done
	b.StopTimer()
	stop()
	fixture.NoError(b, <-ran)
	close(took)
	var whole, call []time.Duration
	for t := range took {
		whole, call = append(whole, t.whole), append(call, t.call)
	}
	slices.Sort(whole)
	slices.Sort(call)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "published/s")
	b.ReportMetric(whole[len(whole)/2].Seconds()*1000, "p50-ms")
	b.ReportMetric(whole[len(whole)*99/100].Seconds()*1000, "p99-ms")
	b.ReportMetric(call[len(call)/2].Seconds()*1000, "kafka-p50-ms")
	b.ReportMetric(100*float64(hot.Load())/float64(b.N), "%fast")
}

func kafkaEvent(topic string, i int) core.Event {
	return core.Event{
		Type: "order.placed", Topic: topic, Key: fmt.Sprint(i % 10_000), Payload: make([]byte, 512),
	}
}

// kafkaOutbox returns an Outbox with cfg and the benchmark's workers, on a new database.
func kafkaOutbox(b *testing.B, cfg core.Config, deleted bool) (*core.Outbox, core.Transactor) {
	b.Helper()
	db := testdb.PostgresForBenchmark(b)
	pool := sql.OpenDB(sqltx.Connector(db.Connector(b), db.Dialect))
	// By default, a pool keeps two idle connections. Dozens of producers would spend most of both
	// processors on new connections.
	pool.SetMaxOpenConns(hotProducers + 16)
	pool.SetMaxIdleConns(hotProducers + 16)
	b.Cleanup(func() { pool.Close() })
	table := fixture.NewRepository(b, pool, sqloutbox.Config{Dialect: db.Dialect})
	cfg.Repository = table
	fixture.ChangeRelay(&cfg, func(c *relay.Config) {
		c.Workers, c.Retention = kafkaWorkers, relay.Retention{DeleteOnSuccess: deleted}
	})
	outbox, err := core.New(cfg)
	fixture.NoError(b, err)
	return outbox, sqltx.NewTransactor(pool, db.Dialect)
}

func publishInTx(ctx context.Context, outbox *core.Outbox, tx core.Transactor, events ...core.Event) error {
	return tx.RunInTx(ctx, func(ctx context.Context, otx core.Tx) error {
		_, err := outbox.Publish(ctx, otx, events...)
		return err
	})
}
