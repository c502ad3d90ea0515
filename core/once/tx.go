package once

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// DoTx runs fn and keeps its result in the caller's transaction. If the work was done before, it
// returns the kept result, and replayed is true. The key, the changes of fn in tx, and the result
// commit together, so these changes happen exactly once. A rollback leaves no trace. DoTx waits for
// another transaction that works on the same key.
//
// If DoTx returns an error, roll the transaction back. sqltx.Retryable(err) reports whether to run
// it again as a whole, as RunInTx does. Before fn ran, DoTx may return [ErrInvalidKey],
// ErrFingerprintMismatch, [ErrInProgress] (the key is held in the lease form), [ErrAbandoned] or
// ErrStore. After fn ran, it may return the error of fn, [ErrLeaseLost] (fn rolled back a savepoint
// around itself), [ErrInvalidResult] or [ErrStore].
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
		Key: key, Form: formTx, State: got.State, TakenOver: got.TakenOver,
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
			// The row of the key is done already. If the caller commits in spite of the error, the
			// work would never be run again. In a broken transaction this statement fails, and so
			// will the commit.
			_ = r.cfg.TxStore.ReleaseTx(context.WithoutCancel(ctx), tx, c)
		}
		r.obs.Ran(RunInfo{Key: c.Key, Form: formTx, Attempt: attempt, Duration: time.Since(start), Err: err})
		if panicked != nil {
			panic(panicked) //nolint:forbidigo // the panic of the caller's function goes on
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

// RunInTx is DoTx in a transaction of t that it opens and ends. If the transaction failed only
// because of other transactions (sqltx.Retryable), RunInTx runs it again as a whole, at most ten
// times and for twenty seconds. So fn may run more than once. The changes of a failed run are
// rolled back. A commit whose answer was lost is run again too, and the key shows whether it
// committed.
//
// Within a transaction that ctx carries and t joins, t opens a savepoint, and nothing is repeated.
// The owner of that transaction must repeat it. A transaction of another database in ctx changes
// nothing.
func (r *Runner) RunInTx(ctx context.Context, t core.Transactor, key Key, fp Fingerprint,
	fn func(ctx context.Context, tx core.Tx) (Result, error),
) (res Result, replayed bool, err error) {
	if t == nil || fn == nil {
		return Result{}, false, errors.New("once: RunInTx needs a Transactor and a function")
	}
	again := func(err error) bool {
		if !sqlerr.Retryable(err) && !errors.Is(err, core.ErrCommitUnknown) {
			return false
		}
		r.obs.Retried(key, err)
		return true
	}
	err = sqltx.RetryTx(ctx, t, func(ctx context.Context, tx core.Tx) (err error) {
		if tx != nil {
			// without a callback, the Transactor would not report that the answer to COMMIT was
			// lost
			tx.OnOutcome(func(core.Outcome) {})
		}
		res, replayed, err = r.DoTx(ctx, tx, key, fp, func(ctx context.Context) (Result, error) { return fn(ctx, tx) })
		return err
	}, again)
	if err != nil {
		return Result{}, false, err
	}
	return res, replayed, nil
}
