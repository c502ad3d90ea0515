package sqltx

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/ormoutbox/ormoutbox/core"
)

// AfterCommit runs fn once what has been written in tx so far has committed: after the COMMIT of
// the outermost transaction, before the call that committed it returns. It never runs when the
// transaction is rolled back, or the savepoint around this call is, and not when nobody heard
// whether the COMMIT was carried out. A process that dies in between does not run it either: what
// must happen belongs into an event. It is for what may be lost: to drop a cache entry, to wake a
// worker.
//
// Several functions run in the order of registration, each on a goroutine of its own that the
// committing one waits for. fn should not take long and should not wait for the database: the
// connection may be free only when it has returned. A panic in it is logged with slog.Default and
// goes no further, because the transaction has committed.
//
// It returns an error, and fn never runs, when the end of tx cannot be heard (core.ErrUntracked),
// when tx is aborted or over (see core.Tx.Err), and when tx or fn is nil.
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
		return fmt.Errorf("%w: nobody would run a function after its commit", core.ErrUntracked)
	}
	tx.OnOutcome(func(o core.Outcome) {
		if o == core.Committed {
			runApart(fn)
		}
	})
	return nil
}

// runApart waits for fn on another goroutine: a panic or runtime.Goexit in it must not keep others
// from hearing of the commit.
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
