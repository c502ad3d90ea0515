package sqltx

import (
	"context"
	"database/sql"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/inmemory"
)

// Later returns the transaction of a Visit for use after the visit, until end is called: every call
// of tx is a Visit of its own, by exec. So the ORM may go on with its transaction between the
// calls. The rows of Query are read into memory, and stay readable.
func (t *VisitedTx) Later(exec func(ctx context.Context, query string) error) (tx core.Tx, end func()) {
	l := &laterTx{exec: exec, dialect: t.visited.dialect, pool: t.visited.lender, tracker: t.tracker}
	return l, func() { l.ended.Store(true) }
}

// Same reports whether tx, of this package or an adapter, is the transaction of the visit.
func (t *VisitedTx) Same(tx core.Tx) bool {
	switch tx := tx.(type) {
	case *wrappedTx:
		return tx.tracker == t.tracker
	case *Tx:
		return tx.tracker == t.tracker
	case *VisitedTx:
		return tx.tracker == t.tracker
	}
	return false
}

type laterTx struct {
	exec    func(ctx context.Context, query string) error
	dialect core.Dialect
	pool    *sql.DB
	tracker *Tracker
	ended   atomic.Bool
}

// visit runs fn in the transaction, unless another one has begun on its connection.
func (t *laterTx) visit(ctx context.Context, fn func(v *VisitedTx) error) error {
	if t.ended.Load() {
		return errVisitOver
	}
	return Visit(ctx, t.exec, func(v *VisitedTx) error {
		if v.tracker != t.tracker {
			return errVisitOver
		}
		return fn(v)
	})
}

// Exec implements core.Tx.
func (t *laterTx) Exec(ctx context.Context, query string, args ...any) (affected int64, err error) {
	err = t.visit(ctx, func(v *VisitedTx) (err error) {
		affected, err = v.Exec(ctx, query, args...)
		return err
	})
	return affected, err
}

// Query implements core.Tx.
func (t *laterTx) Query(ctx context.Context, query string, args ...any) (rows core.Rows, err error) {
	err = t.visit(ctx, func(v *VisitedTx) error {
		conn, err := v.session(ctx)
		if err != nil {
			return err
		}
		found, err := conn.QueryContext(ctx, query, args...) //nolint:rowserrcheck // Read asks for it
		if err != nil {
			return err
		}
		all, err := inmemory.Read(found)
		if err != nil {
			return err
		}
		again, done, err := all.Replay(ctx, nil) //nolint:rowserrcheck // its reader asks for it
		done()                                   // ends the background work of its pool; the rows stay usable
		rows = again
		return err
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// Dialect implements core.Tx.
func (t *laterTx) Dialect() core.Dialect { return t.dialect }

// Pool is as VisitedTx.Pool.
func (t *laterTx) Pool() *sql.DB { return t.pool }

// Tracked implements core.Tx.
func (t *laterTx) Tracked() bool { return true }

// OnOutcome implements core.Tx.
func (t *laterTx) OnOutcome(fn func(core.Outcome)) { t.tracker.OnOutcome(fn) }

// Err implements core.Tx.
func (t *laterTx) Err() error {
	if t.ended.Load() {
		return errVisitOver
	}
	return t.tracker.Err()
}
