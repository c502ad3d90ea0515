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
// within twenty seconds, after random pauses that grow. Within a transaction that ctx carries and t
// joins, t opens a savepoint. RetryTx repeats nothing then, because on MariaDB a deadlock has
// rolled back all of the transaction. A transaction of another database in ctx changes nothing.
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
	around := aroundOf(ctx)
	own := around.tx == nil
	start, pause := time.Now(), firstTxPause
	for try := 1; ; try++ {
		tx, err := runTx(ctx, t, around, fn)
		own = own || around.apart(tx)
		if err == nil || !own || try == tries || time.Since(start) > patience || ctx.Err() != nil || !again(err) {
			return err
		}
		if !sleep(ctx, rand50(pause)) {
			return err
		}
		pause = min(2*pause, maxTxPause)
	}
}

// around is the transaction that the context of a call carries. Only the Transactor of the call
// knows whether it joins that transaction.
type around struct {
	tx    core.Tx // nil: none
	ended bool    // before the call
}

func aroundOf(ctx context.Context) around {
	tx, _ := core.TxFromContext(ctx)
	return around{tx: tx, ended: tx != nil && over(tx)}
}

// apart reports whether tx, which a Transactor gave to its function, was a transaction of its own
// and no savepoint of this one. RunInTx has returned: its own transaction has ended, and the one
// around it has not.
func (a around) apart(tx core.Tx) bool {
	return a.tx == nil || tx != nil && over(tx) && (a.ended || !over(a.tx))
}

func over(tx core.Tx) bool { return errors.Is(tx.Err(), core.ErrNoTransaction) }

// runTx is RunInTx of t, and returns the transaction that t gave to fn. For a commit it relies on
// the outcome that the transaction reports, if it reports one.
func runTx(ctx context.Context, t core.Transactor, a around, fn func(context.Context, core.Tx) error) (core.Tx, error) {
	var heard atomic.Int32 // the reported outcome
	const none = -1
	heard.Store(none)
	var given core.Tx
	err := t.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		if given = tx; tx != nil && tx.Tracked() {
			tx.OnOutcome(func(o core.Outcome) { heard.Store(int32(o)) })
		}
		defer watchPool(tx)()
		return fn(ctx, tx)
	})
	if err != nil || given == nil || !given.Tracked() {
		return given, err
	}
	switch o := heard.Load(); o {
	case int32(core.Committed):
		return given, nil
	case int32(core.RolledBack):
		return given, fmt.Errorf("once: the Transactor reported success: %w", core.ErrTxAborted)
	case none:
		if !a.apart(given) { // a savepoint: its end is that of the transaction around it
			return given, nil
		}
		return given, fmt.Errorf("once: the Transactor reported success, and nothing was heard of the transaction's "+
			"end: %w", core.ErrCommitUnknown)
	}
	return given, fmt.Errorf("once: the Transactor reported success: %w", core.ErrCommitUnknown)
}
