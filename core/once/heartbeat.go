package once

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// keepAlive extends the lease of c whenever a third of it has passed, until stop is called. It ends
// the work's context with ErrLeaseLost if the lease is lost, or may be lost because the store has
// not answered since held. stop waits for a running extension, and may be called again.
func (r *Runner) keepAlive(ctx context.Context, lost context.CancelCauseFunc, c Claim, held time.Time) (stop func()) {
	// The end of the caller's context does not end the lease: fn may need time to stop.
	beatCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.beat(beatCtx, c, held); err != nil {
			lost(err)
			r.obs.LeaseLost(c.Key, err)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// beat returns nil if ctx ends, and an error wrapping ErrLeaseLost if the lease is lost.
func (r *Runner) beat(ctx context.Context, c Claim, held time.Time) error {
	every := r.cfg.Lease / 3
	next := held.Add(every)
	last := errors.New("this process was held up") // or the error of the latest attempt
	for {
		end := held.Add(r.cfg.Lease)
		if !sleep(ctx, min(time.Until(next), time.Until(end))) {
			return nil
		}
		if !time.Now().Before(end) {
			return errtext.Errorf("%w: it could not be extended in time: %w", ErrLeaseLost, last)
		}
		asked := time.Now()
		tryCtx, cancel := context.WithTimeout(ctx, min(r.cfg.StoreTimeout, time.Until(end)))
		err := r.cfg.Store.Extend(tryCtx, c, r.cfg.Lease)
		cancel()
		switch {
		case err == nil:
			held = asked
			next = held.Add(every)
		case errors.Is(err, ErrLeaseLost), errors.Is(err, ErrAlreadyDone):
			return errtext.Errorf("%w: %w", ErrLeaseLost, err)
		default:
			last = err
			next = time.Now().Add(every / 8)
		}
	}
}
