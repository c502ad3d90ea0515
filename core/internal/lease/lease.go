// Package lease keeps leases while work runs, and records how the work ended.
package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/repeat"
)

// Keeper keeps leases.
type Keeper struct {
	Lease   time.Duration // how long one is held unless it is extended
	Timeout time.Duration // of one extension, and of Record
	Lost    error         // what the errors about a lost lease wrap
	// Over reports whether an error of the store means that another holder has the lease, or has
	// ended the work.
	Over func(error) bool
}

// Keep extends a lease, which was asked for at held, at each third of it, until stop is called. It
// calls lost with an error that wraps Lost if the lease is lost, or may be lost because the store
// has not answered since held. stop waits for a running extension, and may be called again. The end
// of ctx does not end the lease: the work may need time to stop.
func (k Keeper) Keep(ctx context.Context, held time.Time, extend func(ctx context.Context) error, lost func(error),
) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := k.beat(ctx, held, extend); err != nil {
			lost(err)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// beat returns nil if ctx ends, and an error that wraps Lost if the lease is lost.
func (k Keeper) beat(ctx context.Context, held time.Time, extend func(context.Context) error) error {
	every := k.Lease / 3
	next := held.Add(every)
	last := errors.New("this process was held up") // or the error of the latest attempt
	for {
		end := held.Add(k.Lease)
		if !repeat.Sleep(ctx, min(time.Until(next), time.Until(end))) {
			return nil
		}
		if !time.Now().Before(end) {
			return errtext.Errorf("%w: it could not be extended in time: %w", k.Lost, last)
		}
		asked := time.Now()
		tryCtx, cancel := context.WithTimeout(ctx, min(k.Timeout, time.Until(end)))
		err := extend(tryCtx)
		cancel()
		switch {
		case err == nil:
			held = asked
			next = held.Add(every)
		case k.Over(err):
			return errtext.Errorf("%w: %w", k.Lost, err)
		default:
			last = err
			next = time.Now().Add(every / 8)
		}
	}
}

// Record writes the end of the work, even if ctx has ended. It may write more than once. Its error is
// of the last write that failed before the time was over.
func (k Keeper) Record(ctx context.Context, write func(context.Context) error) error {
	const first, most = 10 * time.Millisecond, 250 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.Timeout)
	defer cancel()
	var last error
	for pause := first; ; pause = min(2*pause, most) {
		err := write(ctx)
		if err == nil || k.Over(err) {
			return err
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if !repeat.Sleep(ctx, repeat.Jitter(pause)) {
			return last
		}
	}
}
