package sqloutbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Querier runs statements of PostgreSQL. Placeholders are $1, $2 and so on. Arguments are as for
// database/sql, where a list is the text of an array. Rows.Scan takes the same destinations as
// database/sql's, and may be called again for the same row after it failed.
type Querier interface {
	// Exec runs a statement and returns the number of affected rows.
	Exec(ctx context.Context, query string, args ...any) (int64, error)
	// Query runs a statement that returns rows. The caller closes them before the next statement.
	Query(ctx context.Context, query string, args ...any) (core.Rows, error)
}

// Pool is a pool of connections to PostgreSQL that is not a *sql.DB. It is for authors of adapters
// of drivers without database/sql. It is used by several goroutines at once. Errors of the server
// must have the method SQLState() string in their chain. A Pool must be comparable. Two values that
// stand for the same connections must be equal. If it has a method Reset(), that is called when the
// server takes no writes any more: it closes the connections.
type Pool interface {
	// Every statement is a transaction of its own. Query holds its connection until the rows are
	// closed.
	Querier

	// InTx runs fn in a transaction of its own with the isolation READ COMMITTED, whatever
	// transaction ctx carries. It commits if fn returns nil, and rolls back if fn returns an error
	// or panics.
	InTx(ctx context.Context, fn func(q Querier) error) error

	// With returns a Querier like the Pool itself, but every statement is READ COMMITTED and runs with
	// these settings of the server, as after SET LOCAL. Other statements never see the settings.
	// NewWithPool calls With once.
	With(settings map[string]string) Querier
}

// NewWithPool is New for a Pool instead of a *sql.DB. It sends no statement. The dialect of cfg is
// core.Postgres or empty. It is for authors of adapters, as is OpenWithPool.
//
// A core.Tx of such an adapter should have the method Pool() Pool: CheckTx then recognises
// transactions of another database. With a method PoolStats() sql.DBStats, of which
// MaxOpenConnections and InUse are read, package once warns of functions that use up the pool.
func NewWithPool(p Pool, cfg Config) (*Repository, error) {
	if p == nil {
		return nil, errors.New("sqloutbox: pool is nil")
	}
	named := cfg.Dialect != ""
	cfg.Dialect = cmp.Or(cfg.Dialect, core.Postgres)
	if cfg.Dialect != core.Postgres {
		return nil, errNotPostgres(cfg.Dialect)
	}
	return newRepository(foreignPool{Pool: p, planner: p.With(maps.Clone(plannerSettings))}, cfg, named)
}

func errNotPostgres(d core.Dialect) error {
	return fmt.Errorf("sqloutbox: Config.Dialect is %q, and a Pool is for PostgreSQL", string(d))
}

// OpenWithPool makes the outbox of a Pool, as Open does for a driver of database/sql. After an
// error the pool is still open.
func OpenWithPool(ctx context.Context, p Pool, cfg OpenConfig) (*core.Outbox, error) {
	if d := cfg.Dialect; d != "" && d != core.Postgres {
		return nil, errNotPostgres(d)
	}
	repo, err := NewWithPool(p, cfg.tables())
	if err != nil {
		return nil, err
	}
	if err := repo.refuse(ctx); err != nil {
		return nil, err
	}
	return cfg.outbox(ctx, repo)
}

// foreignPool is the runner of a Pool.
type foreignPool struct {
	Pool
	planner Querier
}

func (p foreignPool) each() sqlkit.Querier { return p.Pool }

func (p foreignPool) transaction(ctx context.Context, fn func(q sqlkit.Querier) error) error {
	return sqlkit.Retry(ctx, func() error { return p.inTx(ctx, fn) })
}

func (p foreignPool) inTx(ctx context.Context, fn func(q sqlkit.Querier) error) error {
	return p.InTx(ctx, func(q Querier) error { return fn(q) })
}

func (p foreignPool) planned(ctx context.Context, fn func(q sqlkit.Querier) error) error {
	return sqlkit.Retry(ctx, func() error { return fn(p.planner) })
}

func (p foreignPool) migrate(ctx context.Context, plan sqlkit.Plan) error {
	return sqlkit.MigrateIn(ctx, p.inTx, plan)
}

func (p foreignPool) reconnect() {
	if r, ok := p.Pool.(interface{ Reset() }); ok {
		r.Reset()
	}
}

func (p foreignPool) same(begunOn any) bool { return begunOn == any(p.Pool) }
