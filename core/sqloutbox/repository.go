package sqloutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// DefaultPrefix starts the names of the tables: outbox_event, outbox_key, outbox_audit,
// outbox_relay, outbox_plan, outbox_pause, outbox_group, outbox_migration.
const DefaultPrefix = "outbox_"

// Config says where the tables are.
type Config struct {
	// Dialect of the database. Empty: New asks the database.
	Dialect core.Dialect
	// Schema of the tables: a schema of PostgreSQL, a database of MySQL. Empty: the default of the
	// connection. SQLite has none.
	Schema string
	// Prefix of the names of tables, indexes and constraints. Default: DefaultPrefix.
	Prefix string
	// PartitionEvery makes outbox_event a table with partitions by row id, each for the events of
	// this time, so that old events leave with a partition instead of row by row. It is for many
	// millions of rows on PostgreSQL 14 or newer, with event ids that begin with their time, as
	// those that this project makes. Migrate makes a new table so. An existing table needs the
	// steps in docs/migrations.md. The janitor makes and drops the partitions: its database user
	// must own the table. Events stay up to this time longer than the retention. Every process that
	// relays, cleans up or migrates must have the same setting. At least an hour. Default: 0, no
	// partitions.
	PartitionEvery time.Duration
}

// Repository is the outbox table in PostgreSQL, MariaDB 10.6 or newer, MySQL 8.0.16 or newer, or
// SQLite 3.35 or newer. It implements core.Repository; create it with New. It is safe for use by
// several goroutines.
type Repository struct {
	pool
	names    names
	database database
	waker    waker
	home     home // for CheckTx
	sweep    sweep
	audits   auditStatements
	relays   relayStatements
	plans    planStatements
	pauses   pauseStatements
	groups   groupStatements
	rates    rateStatements
	windows  windowStatements
	types    typeStatements

	partitions *partitions // nil: the table has none
}

var _ core.Repository = (*Repository)(nil)

// New returns the Repository for the tables in db. If cfg does not name the dialect, New asks the
// database for it, for at most ten seconds. It sends no other statement: call Migrate to create the
// tables, or Check to compare them.
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
	return newRepository(newSQLPool(db, cfg.Dialect), cfg)
}

func newRepository(r runner, cfg Config) (*Repository, error) {
	n, err := cfg.names()
	if err != nil {
		return nil, err
	}
	p := pool{runner: r, dialect: cfg.Dialect}
	repo := &Repository{
		pool: p, names: n, database: n.dialect.open(p, n), waker: n.dialect.wake(p, n),
		audits: newAuditStatements(n), relays: newRelayStatements(n), plans: newPlanStatements(n),
		pauses: newPauseStatements(n), groups: newGroupStatements(n), rates: newRateStatements(n),
		windows: newWindowStatements(n), types: newTypeStatements(n),
	}
	if n.partitioned {
		repo.partitions, err = newPartitions(p, n, cfg.PartitionEvery)
	}
	return repo, err
}

// Dialect returns the SQL dialect of the Repository.
func (r *Repository) Dialect() core.Dialect { return r.dialect }

// Prefix returns the prefix of the names of the tables.
func (r *Repository) Prefix() string { return r.names.prefix }
