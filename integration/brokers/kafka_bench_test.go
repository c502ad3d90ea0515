package brokers_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// BenchmarkKafkaRelay is the relay on its way to a real Kafka with 128 workers: rows are marked as
// done, or deleted, and for comparison 128 goroutines publish through the same publisher without
// any table. Published/s of the first two against the third tell what the outbox holds up.
func BenchmarkKafkaRelay(b *testing.B) {
	const workers = 128
	publisher := func(b *testing.B) *watermillbridge.Publisher {
		b.Helper()
		return topics.KafkaPublisher(b, kafkabridge.Config{})
	}
	b.Run("bare", func(b *testing.B) {
		p, topic := publisher(b), topics.Kafka(b, "", 12, nil)
		b.SetParallelism(workers / 2) // times the processors
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
			db := testdb.PostgresForBenchmark(b)
			pool := sql.OpenDB(sqltx.Connector(db.Connector(b), db.Dialect))
			b.Cleanup(func() { pool.Close() })
			table, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: db.Dialect})
			if err != nil {
				b.Fatal(err)
			}
			if err := table.Migrate(b.Context()); err != nil {
				b.Fatal(err)
			}
			topic := topics.Kafka(b, "", 12, nil)
			outbox, err := core.New(core.Config{
				Repository: table, Publisher: publisher(b), Workers: workers, ColdEvents: 4000,
				Retention: core.Retention{DeleteOnSuccess: deleted},
			})
			if err != nil {
				b.Fatal(err)
			}
			tx := sqltx.NewTransactor(pool, db.Dialect)
			for done := 0; done < b.N; { // before Run: what is measured is the drain
				err := tx.RunInTx(b.Context(), func(ctx context.Context, otx core.Tx) error {
					events := make([]core.Event, min(500, b.N-done))
					for i := range events {
						events[i] = core.Event{
							Type: "order.placed", Topic: topic, Key: fmt.Sprint((done + i) % 10_000),
							Payload: make([]byte, 512),
						}
					}
					done += len(events)
					_, err := outbox.Publish(ctx, otx, events...)
					return err
				})
				if err != nil {
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
