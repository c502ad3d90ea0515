package once

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// DoTx runs fn and keeps its result in the caller's transaction, unless it was done before: then it
// returns the kept result and replayed is true. The key, the effects that fn has in tx, and the
// result commit together: this is exactly-once for these effects. A rollback leaves no trace. While
// another transaction works on the same key, DoTx waits for the end of that.
//
// When DoTx returns an error, roll the transaction back. core.Retryable(err) says whether to run it
// again as a whole; RunInTx does so by itself. Errors: those of fn; ErrInvalidKey,
// ErrFingerprintMismatch, ErrInProgress (held in the lease form), ErrAbandoned and ErrStore before
// fn ran; ErrLeaseLost (fn rolled back a savepoint around itself), ErrResultTooLarge,
// ErrInvalidResult and ErrStore after it.
func (r *Runner) DoTx(ctx context.Context, tx core.Tx, key Key, fp Fingerprint,
	fn func(ctx context.Context) (Result, error),
) (res Result, replayed bool, err error) {
	switch {
	case r.cfg.TxStore == nil:
		return Result{}, false, errors.New("once: DoTx and RunInTx need Config.TxStore, or a Config.Store that is one")
	case fn == nil:
		return Result{}, false, errors.New("once: DoTx was given a nil function")
	case tx == nil:
		return Result{}, false, fmt.Errorf("once: %w", core.ErrNoTransaction)
	}
	req, start := r.request(key, fp), time.Now()
	if err := req.ValidateTx(); err != nil {
		return Result{}, false, err
	}
	got, err := r.cfg.TxStore.AcquireTx(ctx, tx, req)
	r.obs.Decided(DecideInfo{
		Key: key, Form: FormTx, State: got.State, TakenOver: got.TakenOver,
		Waited: time.Since(start), Err: err,
	})
	if err != nil {
		return Result{}, false, storeError("acquire", key, err)
	}
	if err := refusal(key, got); err != nil || got.State == Done {
		return got.Result, err == nil, err
	}
	res, err = r.runTx(ctx, tx, Claim{Key: key, Owner: req.Owner, Fence: got.Fence}, got.Attempt, fn)
	return res, false, err
}

func (r *Runner) runTx(ctx context.Context, tx core.Tx, c Claim, attempt int,
	fn func(context.Context) (Result, error),
) (res Result, err error) {
	start, done := time.Now(), false
	defer func() {
		var panicked any
		if !done {
			if err == nil {
				panicked = recover()
				err = didNotReturn(panicked)
			}
			// The key says done already. Should the caller commit in spite of the error, the work
			// would never be run again. Where the transaction is beyond use this fails, and so will
			// its commit.
			_ = r.cfg.TxStore.ReleaseTx(context.WithoutCancel(ctx), tx, c)
		}
		r.obs.Ran(RunInfo{Key: c.Key, Form: FormTx, Attempt: attempt, Duration: time.Since(start), Err: err})
		if panicked != nil {
			panic(panicked) //nolint:forbidigo // it goes on, with the stack that it had
		}
	}()
	if res, err = fn(ctx); err != nil {
		return Result{}, err
	}
	if err = res.Validate(r.cfg.MaxResult); err != nil {
		return Result{}, err
	}
	if !res.IsZero() {
		if err = r.cfg.TxStore.CompleteTx(ctx, tx, c, res); err != nil {
			err = storeError("complete", c.Key, err)
			return Result{}, err
		}
	}
	done = true
	return res, nil
}

// RunInTx is DoTx in a transaction of t that it opens and ends, and runs again as a whole when it
// fails only because of others (core.Retryable), at most ten times and for twenty seconds. So fn
// may run more than once; what it did in a transaction that failed is gone. A commit whose answer
// was lost is run again too: the key tells whether it committed.
//
// Within a transaction that ctx carries already, t opens a savepoint, and nothing is repeated: that
// is for the owner of the transaction.
func (r *Runner) RunInTx(ctx context.Context, t core.Transactor, key Key, fp Fingerprint,
	fn func(ctx context.Context, tx core.Tx) (Result, error),
) (res Result, replayed bool, err error) {
	if t == nil || fn == nil {
		return Result{}, false, errors.New("once: RunInTx needs a Transactor and a function")
	}
	again := func(err error) bool {
		if !core.Retryable(err) && !errors.Is(err, core.ErrCommitUnknown) {
			return false
		}
		r.obs.Retried(key, err)
		return true
	}
	err = retryTx(ctx, t, again, func(ctx context.Context, tx core.Tx) (err error) {
		if tx != nil {
			tx.OnOutcome(func(core.Outcome) {}) // who waits for the outcome is told when the answer to COMMIT was lost
		}
		res, replayed, err = r.DoTx(ctx, tx, key, fp, func(ctx context.Context) (Result, error) { return fn(ctx, tx) })
		return err
	})
	if err != nil {
		return Result{}, false, err
	}
	return res, replayed, nil
}
