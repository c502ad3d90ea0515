package httpkey

import (
	"context"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// gate lets one request of this process at a time into the transaction form with a key. The database would do so too, but each request that
// waits there occupies a connection, and on SQLite the only writer.
type gate struct {
	mu   sync.Mutex
	held map[once.Key]*pass
}

type pass struct {
	fingerprint once.Fingerprint
	left        chan struct{} // closed when the holder has left
}

// enter waits until the key is free, at most for wait or until ctx ends. Its errors are those of a runner.
func (g *gate) enter(ctx context.Context, key once.Key, fp once.Fingerprint, wait time.Duration) (leave func(), err error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		g.mu.Lock()
		other := g.held[key]
		if other == nil {
			p := &pass{fp, make(chan struct{})}
			if g.held == nil {
				g.held = map[once.Key]*pass{}
			}
			g.held[key] = p
			g.mu.Unlock()
			return func() {
				g.mu.Lock()
				delete(g.held, key)
				g.mu.Unlock()
				close(p.left)
			}, nil
		}
		g.mu.Unlock()
		if other.fingerprint != fp {
			return nil, once.ErrFingerprintMismatch
		}
		select {
		case <-other.left:
		case <-timer.C:
			return nil, once.ErrInProgress
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
