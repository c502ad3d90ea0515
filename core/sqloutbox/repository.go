package sqloutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// DefaultPrefix starts the names of the tables: outbox_event, outbox_key, outbox_audit,
// outbox_migration.
const DefaultPrefix = "outbox_"

// Config says where the tables are.
type Config struct {
	// Dialect of the database. Empty: New asks the database.
	Dialect core.Dialect
	// Schema that holds the tables: a schema of PostgreSQL, a database of MySQL. Empty: what the
	// connection finds by itself. SQLite has none.
	Schema string
	// Prefix of the names of tables, indexes and constraints. Default: DefaultPrefix.
	Prefix string
}

// Repository is the outbox table in PostgreSQL, MariaDB 10.6 or newer, MySQL 8.0.16 or newer, or
// SQLite 3.35 or newer. It implements core.Repository; create it with New. It is safe for use by
// several goroutines.
type Repository struct {
	db      *sql.DB
	dialect core.Dialect
	names   names
	sql     *statements

	flavor sync.Mutex
	// mariadb tells MariaDB from MySQL, which has no RETURNING. Nil: not asked yet.
	mariadb *bool
}

var _ core.Repository = (*Repository)(nil)

// New returns the Repository for the tables in db. It asks the database for its dialect if cfg does
// not name it, within ten seconds, and is otherwise silent: call Migrate to create the tables, or
// Check to compare them.
func New(db *sql.DB, cfg Config) (*Repository, error) {
	if db == nil {
		return nil, errors.New("sqloutbox: db is nil")
	}
	if cfg.Dialect == "" {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		d, err := sqlkit.Detect(ctx, db)
		if err != nil {
			return nil, fmt.Errorf("sqloutbox: %w", err)
		}
		cfg.Dialect = d
	}
	n, err := cfg.names()
	if err != nil {
		return nil, err
	}
	return &Repository{db: db, dialect: cfg.Dialect, names: n, sql: newStatements(n)}, nil
}

// Dialect returns which SQL the Repository speaks.
func (r *Repository) Dialect() core.Dialect { return r.dialect }

// isMariaDB finds out, once, through a connection that is at hand: the pool may have no other.
func (r *Repository) isMariaDB(ctx context.Context, c sqlkit.Querier) (bool, error) {
	r.flavor.Lock()
	known := r.mariadb
	r.flavor.Unlock()
	if known != nil {
		return *known, nil
	}
	var version string
	if _, err := sqlkit.FirstRow(ctx, c, "SELECT VERSION()", nil, &version); err != nil {
		return false, err
	}
	is := sqlkit.IsMariaDB(version)
	r.flavor.Lock()
	r.mariadb = &is
	r.flavor.Unlock()
	return is, nil
}

// single runs one statement as a transaction of its own, repeated where others made it fail.
func (r *Repository) single(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	return r.wrap(what, sqlkit.Retry(ctx, func() error { return fn(sqlkit.On{Conn: r.db}) }))
}

// inTx runs several statements as a transaction of its own.
func (r *Repository) inTx(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	return r.wrap(what, sqlkit.InTx(ctx, r.db, r.dialect, func(c sqlkit.Conn) error { return fn(sqlkit.On{Conn: c}) }))
}

// scan runs statements that jump through an index. PostgreSQL's planner cannot know how short the
// jumps are: by its estimates it would compile the statement first, which takes a second, or read
// and sort all open rows. And it would plan the long statements anew for each call, which takes
// longer than many a claim. Elsewhere the statements name their index.
func (r *Repository) scan(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	if r.dialect != core.Postgres {
		return r.single(ctx, what, fn)
	}
	return r.inTx(ctx, what, func(q sqlkit.Querier) error {
		if _, err := q.Exec(ctx, postgresPlanner); err != nil {
			return err
		}
		return fn(q)
	})
}

const postgresPlanner = "SELECT set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true), " +
	"set_config('enable_bitmapscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)"

func (r *Repository) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	if sqlerr.MissingTable(err) {
		return fmt.Errorf("sqloutbox: %s: %w (%s)", what, err, howToCreate)
	}
	return fmt.Errorf("sqloutbox: %s: %w", what, err)
}
