package once

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

const (
	tries        = 10
	patience     = 20 * time.Second // a lock wait that times out has already taken long
	firstTxPause = 2 * time.Millisecond
	maxTxPause   = 200 * time.Millisecond
)

// RetryTx runs fn in a transaction of t. If the transaction failed only because of other
// transactions (core.Retryable), RetryTx runs it again as a whole. It makes at most ten attempts
// within twenty seconds, after random pauses that grow. It repeats nothing within a transaction
// that ctx carries already, because on MariaDB a deadlock has rolled back all of it.
//
// Nil means that the transaction is known to have committed. t may return nil for another
// transaction, for example because its fn swallowed the error that rolled it back. Then the error
// wraps core.ErrTxAborted if the transaction is known to have rolled back, and
// core.ErrCommitUnknown if not.
func RetryTx(ctx context.Context, t core.Transactor, fn func(ctx context.Context, tx core.Tx) error) error {
	if t == nil || fn == nil {
		return errors.New("once: RetryTx needs a Transactor and a function")
	}
	return retryTx(ctx, t, core.Retryable, fn)
}

func retryTx(ctx context.Context, t core.Transactor, again func(error) bool,
	fn func(context.Context, core.Tx) error,
) error {
	_, nested := core.TxFromContext(ctx)
	start, pause := time.Now(), firstTxPause
	for try := 1; ; try++ {
		err := runTx(ctx, t, nested, fn)
		if err == nil || nested || try == tries || time.Since(start) > patience || ctx.Err() != nil || !again(err) {
			return err
		}
		if !sleep(ctx, rand50(pause)) {
			return err
		}
		pause = min(2*pause, maxTxPause)
	}
}

// runTx is RunInTx of t. For a commit it relies on the outcome that the transaction reports, if it
// reports one.
func runTx(ctx context.Context, t core.Transactor, nested bool, fn func(context.Context, core.Tx) error) error {
	var heard atomic.Int32 // the reported outcome; 0: none
	const none = -1
	heard.Store(none)
	tracked := false
	err := t.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		if tracked = tx != nil && tx.Tracked() && !nested; tracked {
			tx.OnOutcome(func(o core.Outcome) { heard.Store(int32(o)) })
		}
		return fn(ctx, tx)
	})
	if err != nil || !tracked {
		return err
	}
	switch o := heard.Load(); o {
	case int32(core.Committed):
		return nil
	case int32(core.RolledBack):
		return fmt.Errorf("once: the Transactor reported success: %w", core.ErrTxAborted)
	case none:
		return fmt.Errorf("once: the Transactor reported success, and nothing was heard of the transaction's end: %w",
			core.ErrCommitUnknown)
	}
	return fmt.Errorf("once: the Transactor reported success: %w", core.ErrCommitUnknown)
}
