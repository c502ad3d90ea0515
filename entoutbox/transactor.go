package entoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Tx has the common methods of generated transactions (*ent.Tx).
type Tx interface {
	Commit() error
	Rollback() error
}

// WithTx runs fn in a transaction that begin begins: client.Tx, or a function that calls
// client.BeginTx. It commits when fn returns nil, and rolls back when fn returns an error or
// panics. The context given to fn carries the transaction, and Publish finds it there. The root
// client is not in the transaction: a change through it by mistake commits on its own, as without
// WithTx.
//
// Within a transaction of the same client, fn runs in a savepoint, with the tx of that transaction.
// If that transaction is over, the error wraps core.ErrNoTransaction. If the context carries
// another transaction of the same *sql.DB, it wraps core.ErrOtherTransactor. It also wraps
// core.ErrOtherTransactor if the context carries an open tx of the same client that other code put
// there, as entgql.Transactioner does with ent.NewTxContext. Context makes WithTx join such a
// transaction. To find out whether the client is the same, WithTx first calls begin with a context
// in which the client refuses to begin. begin must return the client's error at once.
//
// WithTx returns nil only if the transaction is known to have committed. If the database has rolled
// it back and fn ignored the error (a deadlock, or a violated constraint on PostgreSQL), WithTx
// does not commit, and returns an error wrapping core.ErrTxAborted. A client that was not made with
// Driver is refused with core.ErrNotInstalled.
func WithTx[T Tx](ctx context.Context, begin func(context.Context) (T, error),
	fn func(ctx context.Context, tx T) error,
) error {
	if begin == nil || fn == nil {
		return errors.New("outbox: WithTx was given a nil function")
	}
	if _, ok := core.TxFromContext(ctx); ok {
		drv := driverOf(ctx, begin)
		if outer := scopeOf(ctx); outer != nil && outer.tx.driver == drv {
			if tx, ok := outer.user.(T); ok {
				name := fmt.Sprintf("outbox_%d", savepoints.Add(1))
				return sqltx.RunInSavepoint(ctx, outer.tx.core, name, func() error { return fn(ctx, tx) })
			}
		}
		if drv != nil {
			if err := sqltx.CheckOwner(ctx, drv.DB(), "entoutbox"); err != nil {
				return err
			}
		}
	}
	if err := refuseBeside(ctx, begin); err != nil {
		return err
	}
	p := &probe{purpose: begins}
	tx, err := begin(context.WithValue(ctx, probeKey{}, p))
	if err != nil {
		return err
	}
	return ending(tx, func() error {
		if p.tx == nil {
			return errNotWrapped
		}
		// Without a callback, Commit would not report an unknown outcome.
		p.tx.core.OnOutcome(func(core.Outcome) {})
		ctx := context.WithValue(ctx, scopeKey{}, &scope{tx: p.tx, user: tx})
		if err := fn(sqltx.ContextWithTx(ctx, p.tx.core, "entoutbox"), tx); err != nil {
			return err
		}
		return p.tx.core.Err()
	})
}

// ending commits a transaction after fn. It rolls back after an error of fn, and if fn panics or
// calls runtime.Goexit.
func ending(tx Tx, fn func() error) (err error) {
	err = errors.New("outbox: the function of the transaction did not return") // unless it does
	defer func() {
		if err == nil {
			err = tx.Commit()
		} else if undo := tx.Rollback(); undo != nil && !errors.Is(undo, sql.ErrTxDone) {
			err = errors.Join(err, adapter.Errorf("outbox: roll back: %w", undo))
		}
	}()
	return fn()
}

// Transactor makes a core.Transactor of begin, as the inbox needs it: RunInTx runs its function in
// WithTx. FromContext returns the transaction to work with. If begin is nil, an error is returned
// by core.CheckTransactor, by functions that take the Transactor (such as an inbox's), and
// otherwise by RunInTx. The result is safe for use by several goroutines.
func Transactor[T Tx](begin func(context.Context) (T, error)) core.Transactor {
	return transactor[T]{begin}
}

type transactor[T Tx] struct {
	begin func(context.Context) (T, error)
}

// Validate implements the interface of core.CheckTransactor.
func (r transactor[T]) Validate() error {
	if r.begin == nil {
		return errors.New("outbox: entoutbox.Transactor was given a nil function: give it client.Tx")
	}
	return nil
}

func (r transactor[T]) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if fn == nil {
		return errors.New("outbox: RunInTx was given a nil function")
	}
	return WithTx(ctx, r.begin, func(ctx context.Context, _ T) error { return fn(ctx, scopeOf(ctx).tx.core) })
}

// FromContext returns the transaction that WithTx, RunInTx of a Transactor, or Context put into ctx.
// Without one it returns an error wrapping core.ErrNoTransaction:
//
//	tx, err := entoutbox.FromContext[*ent.Tx](ctx)
func FromContext[T Tx](ctx context.Context) (T, error) {
	var none T
	s := scopeOf(ctx)
	if s == nil {
		return none, fmt.Errorf("%w of Ent in the context", core.ErrNoTransaction)
	}
	tx, ok := s.user.(T)
	if !ok {
		return none, fmt.Errorf("%w: Ent's transaction in the context is a %T, not a %T", core.ErrNoTransaction, s.user,
			none)
	}
	return tx, nil
}

// Context returns ctx with the transaction of conn in it, for code that looks for the transaction
// there: Publish with nil, a Watermill bus or publisher on the outbox. If conn is the *ent.Tx,
// WithTx and a Transactor of the same client join the transaction: they run in a savepoint. The
// context that WithTx gives has the transaction already. Outside a transaction the result is ctx.
//
// In the TxOpener of entgql.Transactioner:
//
//	ctx, tx, err := client.OpenTx(ctx)
//	if err != nil { ... }
//	return entoutbox.Context(ctx, ent.TxFromContext(ctx)), tx, nil
func Context(ctx context.Context, conn Conn) context.Context {
	p, err := inTx(ctx, conn)
	if err != nil {
		return ctx
	}
	if _, ok := conn.(Tx); ok {
		ctx = context.WithValue(ctx, scopeKey{}, &scope{tx: p.tx, user: conn})
	}
	return sqltx.ContextWithTx(ctx, p.tx.core, "entoutbox")
}

// scope is a transaction of WithTx or Context: the tracked one, and the transaction of the
// generated code above it.
type scope struct {
	tx   *tx
	user any
}

type scopeKey struct{}

func scopeOf(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{}).(*scope)
	return s
}

// driverOf finds the driver that begin calls, without beginning a transaction. It returns nil for a
// driver of another package.
func driverOf[T Tx](ctx context.Context, begin func(context.Context) (T, error)) *driver {
	p := &probe{purpose: names}
	if tx, err := begin(context.WithValue(ctx, probeKey{}, p)); err == nil { // it ignored the context
		_ = tx.Rollback()
	}
	return p.driver
}
