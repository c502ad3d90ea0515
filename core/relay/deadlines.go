package relay

import (
	"context"
	"sync"
	"time"
)

// sharedPart is the part of Config.PublishTimeout within which publishes begin that share a
// context: a context of its own would cost each event a timer.
const sharedPart = 64

// deadlines make the contexts of the events that are handed over. The zero value is ready.
type deadlines struct {
	mu    sync.Mutex
	ctx   context.Context //nolint:containedctx // shared by the publishes that begin now
	since time.Time
}

// context returns a context that ends with parent, or timeout after now, at most a sharedPart of
// timeout earlier.
func (d *deadlines) context(parent context.Context, now time.Time, timeout time.Duration) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx == nil || now.Sub(d.since) >= timeout/sharedPart {
		ctx, cancel := context.WithDeadline(parent, now.Add(timeout))
		context.AfterFunc(ctx, cancel) // not before: publishes end later than the next context begins
		d.ctx, d.since = ctx, now
	}
	return d.ctx
}
