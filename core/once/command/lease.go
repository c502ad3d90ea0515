package command

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// keepAlive extends the lease whenever a third of it has passed, until stop is called. It ends the
// handler's context with once.ErrLeaseLost if the lease is lost, or may be lost because the store
// has not answered since held. stop waits for a running extension, and may be called again.
func (w *Worker) keepAlive(ctx context.Context, lost context.CancelCauseFunc, c Claim,
	held time.Time,
) (stop func()) {
	// The end of the handler's context does not end the lease: the handler may need time to stop.
	beatCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.beat(beatCtx, c, held); err != nil {
			lost(err)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// beat returns nil if ctx ends, and an error wrapping once.ErrLeaseLost if the lease is lost.
func (w *Worker) beat(ctx context.Context, c Claim, held time.Time) error {
	every := w.cfg.Lease / 3
	next := held.Add(every)
	last := errors.New("this process was held up") // or the error of the latest attempt
	for {
		end := held.Add(w.cfg.Lease)
		if !sleep(ctx, min(time.Until(next), time.Until(end))) {
			return nil
		}
		if !time.Now().Before(end) {
			return errtext.Errorf("%w: it could not be extended in time: %w", once.ErrLeaseLost, last)
		}
		asked := time.Now()
		tryCtx, cancel := context.WithTimeout(ctx, min(w.cfg.StoreTimeout, time.Until(end)))
		err := w.cfg.Store.Extend(tryCtx, c, w.cfg.Lease)
		cancel()
		switch {
		case err == nil:
			held = asked
			next = held.Add(every)
		case errors.Is(err, once.ErrLeaseLost), errors.Is(err, once.ErrAlreadyDone):
			return errtext.Errorf("%w: %w", once.ErrLeaseLost, err)
		default:
			last = err
			next = time.Now().Add(every / 8)
		}
	}
}

const recordPause = 20 * time.Millisecond

// record writes the result of an execution, even if the context of the handler has ended. It
// repeats the statement until the result is written.
func (w *Worker) record(ctx context.Context, write func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.cfg.StoreTimeout)
	defer cancel()
	for pause := recordPause; ; pause = min(2*pause, time.Second) {
		err := write(ctx)
		if err == nil || errors.Is(err, once.ErrLeaseLost) || errors.Is(err, once.ErrAlreadyDone) ||
			!sleep(ctx, pause) {
			return err
		}
	}
}

var (
	urlSecret = regexp.MustCompile(`://[^/\s@]*@`)
	urlQuery  = regexp.MustCompile(`(https?://[^\s"?]*)\?[^\s"]*`)
)

// errorText is the text of an error that is stored, without the credentials that URLs carry.
func errorText(err error) string {
	return urlQuery.ReplaceAllString(urlSecret.ReplaceAllString(err.Error(), "://***@"), "$1?***")
}
