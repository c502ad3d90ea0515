package httpkey

import (
	"context"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// gate lets one request of this process at a time into the transaction form with a key. Its result
// goes to the waiting requests with the same key. Without the gate they would wait in the database,
// each with a connection (on SQLite the only writer). Then they would read the same result one
// after another.
type gate struct {
	mu   sync.Mutex
	held map[once.Key]*pass
}

type pass struct {
	fingerprint once.Fingerprint
	left        chan struct{} // closed when the holder has left
	result      *once.Result  // result of the holder, if there is one; read it once left is closed
}

// enter waits until the key is free, at most for wait or until ctx ends. The caller must then call
// leave, with the committed result or nil. If another request got a result meanwhile, enter returns
// that result and no leave. Its errors are those of a Runner.
func (g *gate) enter(ctx context.Context, key once.Key, fp once.Fingerprint,
	wait time.Duration,
) (leave func(*once.Result), kept *once.Result, err error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		g.mu.Lock()
		other := g.held[key]
		if other == nil {
			p := &pass{fingerprint: fp, left: make(chan struct{})}
			if g.held == nil {
				g.held = map[once.Key]*pass{}
			}
			g.held[key] = p
			g.mu.Unlock()
			return func(res *once.Result) {
				g.mu.Lock()
				delete(g.held, key)
				g.mu.Unlock()
				p.result = res
				close(p.left)
			}, nil, nil
		}
		g.mu.Unlock()
		if other.fingerprint != fp {
			return nil, nil, once.ErrFingerprintMismatch
		}
		select {
		case <-other.left:
			if other.result != nil {
				return nil, other.result, nil
			}
		case <-timer.C:
			return nil, nil, once.ErrInProgress
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}
