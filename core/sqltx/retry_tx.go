package sqltx

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/repeat"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// RetryTx runs fn in a transaction of t. If the transaction failed only because of other
// transactions ([Retryable]), RetryTx runs it again as a whole. again, if it is given, decides in
// place of Retryable. RetryTx makes at most ten attempts within twenty seconds, after random pauses
// that grow. Within a transaction that ctx carries and t joins, t opens a savepoint. RetryTx repeats
// nothing then, because on MariaDB a deadlock has rolled back all of the transaction. A transaction
// of another database in ctx changes nothing.
//
// Nil means that the transaction is known to have committed. t may return nil for another
// transaction, for example because its fn swallowed the error that rolled it back. Then the error
// wraps [core.ErrTxAborted] if the transaction is known to have rolled back, and
// [core.ErrCommitUnknown] if not.
//
// RetryTx logs a warning if fn seems to wait for a connection of the pool that only its own
// transaction can give back.
func RetryTx(ctx context.Context, t core.Transactor, fn func(ctx context.Context, tx core.Tx) error,
	again ...func(err error) bool,
) error {
	if t == nil || fn == nil {
		return errors.New("outbox: RetryTx needs a Transactor and a function")
	}
	decide := Retryable
	if len(again) > 0 {
		decide = again[0]
	}
	around := aroundOf(ctx)
	own := around.tx == nil
	return repeat.Do(ctx, func(err error) bool { return own && decide(err) }, func() error {
		tx, err := runTx(ctx, t, around, fn)
		own = own || around.apart(tx)
		return err
	})
}

// around is the transaction in the context of a call. Only the Transactor of the call decides
// whether to join it.
type around struct {
	tx    core.Tx // nil: none
	ended bool    // before the call
}

func aroundOf(ctx context.Context) around {
	tx, _ := core.TxFromContext(ctx)
	return around{tx: tx, ended: tx != nil && hasEnded(tx)}
}

// apart reports whether tx, which a Transactor gave to its function, was a transaction of its own
// and no savepoint of this one. RunInTx has returned: its own transaction has ended, and the one
// around it has not.
func (a around) apart(tx core.Tx) bool {
	return a.tx == nil || tx != nil && hasEnded(tx) && (a.ended || !hasEnded(a.tx))
}

func hasEnded(tx core.Tx) bool { return errors.Is(tx.Err(), core.ErrNoTransaction) }

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
		return given, fmt.Errorf("outbox: the Transactor reported success: %w", core.ErrTxAborted)
	case none:
		if !a.apart(given) { // a savepoint, which ends with the transaction around it
			return given, nil
		}
		return given, fmt.Errorf("outbox: the Transactor reported success, and did not report the transaction's "+
			"end: %w", core.ErrCommitUnknown)
	}
	return given, fmt.Errorf("outbox: the Transactor reported success: %w", core.ErrCommitUnknown)
}

// Retryable reports whether the whole transaction may be rolled back and run again after err. It is
// true for errors caused by other transactions: serialization failures, deadlocks and lock timeouts
// of PostgreSQL, MySQL, MariaDB and SQLite. It is also true for core.ErrTxAborted. It is false when
// the outcome of the commit is unknown.
func Retryable(err error) bool { return sqlerr.Retryable(err) }
