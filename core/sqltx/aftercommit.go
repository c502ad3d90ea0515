package sqltx

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/ormoutbox/ormoutbox/core"
)

// AfterCommit runs fn once everything written in tx so far has committed: after the COMMIT of the
// outermost transaction, and before the call that committed it returns. fn never runs if the
// transaction, or the savepoint around this call, is rolled back, or if the outcome of the COMMIT
// is unknown. fn does not run either if the process dies in between. So use an event for work that
// must happen, and AfterCommit for work that may be lost: to drop a cache entry, to wake a worker.
//
// Several functions run in the order of registration. Each runs on a goroutine of its own, and the
// committing goroutine waits for it. fn should not take long and should not wait for the database:
// the connection may be free only after fn has returned. In fn, use the context from before
// RunInTx: the context that RunInTx gave still carries the transaction, which is over. A panic in
// fn is logged with slog.Default and goes no further, because the transaction has committed.
//
// AfterCommit returns an error, and fn never runs, if the commit of tx cannot be observed
// (core.ErrUntracked), if tx is aborted or over (see core.Tx.Err), and if tx or fn is nil.
func AfterCommit(tx core.Tx, fn func()) error {
	switch {
	case tx == nil:
		return core.ErrNoTransaction
	case fn == nil:
		return errors.New("sqltx: AfterCommit was given a nil function")
	}
	if err := tx.Err(); err != nil {
		return err
	}
	if !tx.Tracked() {
		return fmt.Errorf("%w: its commit is not observed, so no function can run after it", core.ErrUntracked)
	}
	tx.OnOutcome(func(o core.Outcome) {
		if o == core.Committed {
			runApart(fn)
		}
	})
	return nil
}

// runApart waits for fn on another goroutine. So a panic or runtime.Goexit in fn does not keep
// other callbacks from hearing of the commit.
func runApart(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				slog.Error("sqltx: a function given to AfterCommit panicked; the transaction has committed",
					"component", "outbox", "panic", v, "stack", string(debug.Stack()))
			}
		}()
		fn()
	}()
	<-done
}
