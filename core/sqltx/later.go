package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core"
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
		found, err := conn.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer func() { _ = found.Close() }() // kept has read them to their end
		rows, err = kept(ctx, found)         //nolint:rowserrcheck // kept checks one, the caller the other
		return err
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// Dialect implements core.Tx.
func (t *laterTx) Dialect() core.Dialect { return t.dialect }

// Pool returns what VisitedTx.Pool does.
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

// kept reads rows into memory and returns them again, as the driver gave them.
func kept(ctx context.Context, rows *sql.Rows) (*sql.Rows, error) {
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	m := &keptRows{columns: columns}
	for rows.Next() {
		row, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		m.rows = append(m.rows, row)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	pool := sql.OpenDB(m)
	again, err := pool.QueryContext(ctx, "")
	// Closing the pool ends its background work. The rows stay usable.
	return again, errors.Join(err, pool.Close())
}

// keptRows are rows in memory, and the driver that returns them.
type keptRows struct {
	columns []string
	rows    [][]any
}

func (m *keptRows) Connect(context.Context) (driver.Conn, error) { return m, nil }
func (m *keptRows) Driver() driver.Driver                        { return unusableDriver{errKept} }
func (m *keptRows) Prepare(string) (driver.Stmt, error)          { return nil, errKept }
func (m *keptRows) Begin() (driver.Tx, error)                    { return nil, errKept }
func (m *keptRows) Columns() []string                            { return m.columns }
func (m *keptRows) Close() error                                 { return nil }

// QueryContext returns the rows, whatever the query.
func (m *keptRows) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return m, nil
}

func (m *keptRows) Next(dest []driver.Value) error {
	if len(m.rows) == 0 {
		return io.EOF
	}
	for i, v := range m.rows[0] {
		dest[i] = v
	}
	m.rows = m.rows[1:]
	return nil
}

var errKept = errors.New("sqltx: these are rows in memory")
