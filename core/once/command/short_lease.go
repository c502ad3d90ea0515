package command

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// shortLease says once that handlers may run for longer than the lease. Nobody else is let in while
// the lease is extended. But only a handler that ends before the lease is alone whatever happens to
// its process and to the store.
type shortLease struct{ once sync.Once }

func (s *shortLease) check(ctx context.Context, lease time.Duration, logger *slog.Logger) {
	end, bounded := ctx.Deadline()
	if !bounded {
		return
	}
	if limit := time.Until(end); limit > lease {
		s.once.Do(func() {
			logger.Warn("command: a handler may run for longer than the lease of its effect: after a pause of the "+
				"process or of the store that is longer than the lease, another worker executes the same effect "+
				"beside it. Make WorkerConfig.Lease longer than PublishTimeout of the outbox and SweepTimeout",
				"component", "outbox", "limit", limit.Round(time.Millisecond), "lease", lease)
		})
	}
}
