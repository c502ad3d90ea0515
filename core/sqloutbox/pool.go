package sqloutbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// pool runs statements in transactions of their own.
type pool struct {
	runner
	dialect core.Dialect
}

// runner runs the statements of a pool: sqlPool, or foreignPool for a Pool.
type runner interface {
	// each returns a Querier that runs each statement as a transaction of its own.
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

// scan runs a statement that jumps through an index, with a fixed plan. PostgreSQL's planner cannot
// know how short the jumps are. By its estimates it would compile the statement first, which takes
// a second, or read and sort all open rows. It would also plan the long statements again for each
// call, which takes longer than many a claim. On other databases the statements name their index.
func (p pool) scan(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	return p.wrap(what, p.planned(ctx, fn))
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
		return errtext.Errorf("%w: sqloutbox: %s: %w (%s)", core.ErrNoTables, what, err, howToCreate)
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

// plannerSettings are the settings of scan.
var plannerSettings = map[string]string{
	"jit": "off", "enable_seqscan": "off", "enable_bitmapscan": "off", "plan_cache_mode": "force_generic_plan",
}

// postgresPlanner makes plannerSettings for the rest of a transaction.
const postgresPlanner = "SELECT set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true), " +
	"set_config('enable_bitmapscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)"

// aloneConn is a connection of a driver of database/sql that sends a statement together with BEGIN,
// its settings and COMMIT. The connections of module pgxoutbox are such: a claim is one round trip
// on them. It is looked for behind a *sql.DB, also through wrappers that have the method Raw()
// driver.Conn.
type aloneConn interface {
	// With returns a Querier for use before the next call on the connection. Each of its statements
	// is a transaction of its own, with the isolation READ COMMITTED and with these settings, as
	// after SET LOCAL. Rows.Close returns the error of COMMIT. Query and Exec return
	// driver.ErrBadConn only if nothing was sent because the connection is dead. Another one then
	// repeats the statement.
	With(settings map[string]string) Querier
}

// alone runs statements on connections that are an aloneConn.
type alone struct {
	db     *sql.DB
	unable atomic.Bool // the connections of db are no aloneConn
}

// errUnable: a connection is not an aloneConn.
var errUnable = errors.New("sqloutbox: the connection has no method With")

// run runs one statement as a transaction of its own, and repeats it as sqlkit.Retry does. able is
// false if the connections of the pool have no method With. Then nothing was done.
func (a *alone) run(ctx context.Context, settings map[string]string, fn func(q sqlkit.Querier) error,
) (able bool, err error) {
	if a.unable.Load() {
		return false, nil
	}
	err = sqlkit.Retry(ctx, func() error {
		return sqltx.RetryBegin(a.db, func() (bool, error) { return false, a.once(ctx, settings, fn) })
	})
	if errors.Is(err, errUnable) {
		a.unable.Store(true)
		return false, nil
	}
	return true, err
}

func (a *alone) once(ctx context.Context, settings map[string]string, fn func(q sqlkit.Querier) error) error {
	conn, err := a.db.Conn(ctx)
	if err != nil {
		return err
	}
	err = conn.Raw(func(dc any) error {
		own := aloneConnOf(dc)
		if own == nil {
			return errUnable
		}
		return fn(own.With(settings))
	})
	_ = conn.Close() // gives it back, if Raw has not done that because of driver.ErrBadConn
	return err
}

// aloneConnOf returns the aloneConn behind the connection of a driver, or nil.
func aloneConnOf(dc any) aloneConn {
	for {
		switch c := dc.(type) {
		case aloneConn:
			return c
		case interface{ Raw() driver.Conn }: // wrappers of drivers have this method
			dc = c.Raw()
		default:
			return nil
		}
	}
}

// howToCreate is the advice in errors about missing tables. It lists every way, because a
// Repository cannot tell its caller.
const howToCreate = "create or upgrade the tables with \"outbox migrate up\", with the files of " +
	"\"outbox migrate get\" or of sqloutbox.Migrations, with AutoCreate of gormoutbox.Config, bunoutbox.Config, " +
	"entoutbox.Config or sqloutbox.OpenConfig, with Migrate of the sqloutbox.Repository, or in Ent's migration " +
	"with package entschema"
