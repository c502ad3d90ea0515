package sqloutbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// pool runs statements in transactions of their own.
type pool struct {
	runner
	dialect core.Dialect
}

// runner is what runs the statements of a pool: sqlPool, or foreignPool for a Pool.
type runner interface {
	// each returns a Querier of which each statement is a transaction of its own.
	each() sqlkit.Querier
	// transaction runs several statements as a transaction of its own, and repeats it as
	// sqlkit.Retry does.
	transaction(ctx context.Context, fn func(q sqlkit.Querier) error) error
	// planned runs one statement as a transaction of its own, with postgresPlanner. It is repeated
	// as well.
	planned(ctx context.Context, fn func(q sqlkit.Querier) error) error
	migrate(ctx context.Context, plan sqlkit.Plan) error
	// same reports whether a transaction of this pool was begun on the same one.
	same(begunOn any) bool
	// reconnect closes the idle connections.
	reconnect()
}

// single runs one statement as a transaction of its own, and repeats it if other transactions made
// it fail.
func (p pool) single(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	return p.wrap(what, sqlkit.Retry(ctx, func() error { return fn(p.each()) }))
}

// inTx runs several statements as a transaction of its own.
func (p pool) inTx(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	return p.wrap(what, p.transaction(ctx, fn))
}

// wrap is the function wrap. If the server takes no writes any more, it also lets the pool connect
// anew: after a failover the address of the database may lead to another server.
func (p pool) wrap(what string, err error) error {
	if sqlerr.ReadOnly(err) {
		p.reconnect()
	}
	return wrap(what, err)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	if sqlerr.MissingTable(err) {
		return errtext.Errorf("sqloutbox: %s: %w (%s)", what, err, howToCreate)
	}
	return errtext.Errorf("sqloutbox: %s: %w", what, err)
}

// sqlPool is the runner of a *sql.DB.
type sqlPool struct {
	db      *sql.DB
	dialect core.Dialect
	alone   *alone
	emptied *atomic.Int64 // when reconnect did so last
}

func newSQLPool(db *sql.DB, d core.Dialect) sqlPool {
	return sqlPool{db: db, dialect: d, alone: &alone{db: db}, emptied: new(atomic.Int64)}
}

func (p sqlPool) each() sqlkit.Querier { return sqlkit.On{Conn: p.db} }

func (p sqlPool) transaction(ctx context.Context, fn func(q sqlkit.Querier) error) error {
	return sqlkit.InTx(ctx, p.db, p.dialect, func(c sqlkit.Conn) error { return fn(sqlkit.On{Conn: c}) })
}

func (p sqlPool) planned(ctx context.Context, fn func(q sqlkit.Querier) error) error {
	if able, err := p.alone.run(ctx, plannerSettings, fn); able {
		return err
	}
	return p.transaction(ctx, func(q sqlkit.Querier) error {
		if _, err := q.Exec(ctx, postgresPlanner); err != nil {
			return err
		}
		return fn(q)
	})
}

func (p sqlPool) migrate(ctx context.Context, plan sqlkit.Plan) error {
	return sqlkit.Migrate(ctx, p.db, plan)
}

func (p sqlPool) same(begunOn any) bool { return begunOn == any(p.db) }

const (
	reconnectTimeout = time.Second // for taking idle connections out of a pool
	reconnectEvery   = 2 * time.Second
)

func (p sqlPool) reconnect() {
	last, now := p.emptied.Load(), time.Now().UnixNano()
	if now-last < int64(reconnectEvery) || !p.emptied.CompareAndSwap(last, now) {
		return
	}
	go func() { // the pool may have none left at the moment
		ctx, cancel := context.WithTimeout(context.Background(), reconnectTimeout)
		defer cancel()
		for range p.db.Stats().Idle {
			conn, err := p.db.Conn(ctx)
			if err != nil {
				return
			}
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // closes it
			_ = conn.Close()
		}
	}()
}
