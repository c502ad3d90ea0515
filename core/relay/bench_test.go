package relay_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// BenchmarkFastPath measures the cost of the relay itself: one event from Publish to its
// acknowledgement, on a table in memory.
func BenchmarkFastPath(b *testing.B) {
	for _, key := range []string{"", "k"} {
		b.Run("key="+key, func(b *testing.B) {
			repo := outboxtest.NewRepository()
			var published sync.WaitGroup
			ob := newOutbox(b, core.Config{
				Repository: repo, Logger: slog.New(slog.DiscardHandler), Relay: relay.Config{
					HotEvents: 1 << 20, HotBytes: 1 << 40,
					Retention: relay.Retention{DeleteOnSuccess: true},
				}, Publisher: core.PublisherFunc(func(context.Context, core.Delivery) error {
					published.Done()
					return nil
				}),
			})
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- ob.Run(ctx) }()
			tr := repo.Transactor()
			publish := func() {
				published.Add(1)
				must(b, tr.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
					_, err := ob.Publish(ctx, tx, core.Event{Type: "a", Key: key, Payload: []byte("{}")})
					return err
				}))
			}
			publish()
			published.Wait()
			b.ReportAllocs()
			for b.Loop() {
				publish()
				published.Wait()
			}
			cancel()
			must(b, <-ended)
		})
	}
}
