package sqloutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

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

	admin
	audits
	registry
	pauses
	rates
	typeCounts
	history

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
	db := openDatabase(p, n)
	repo := &Repository{
		pool: p, names: n, database: db, waker: newWaker(p, n), home: home{names: n},
		admin:      admin{p, n, db, newAdminStatements(n)},
		audits:     audits{p, n, db, newAuditStatements(n)},
		registry:   registry{p, n, db, newRelayStatements(n)},
		pauses:     pauses{p, n, db, newPauseStatements(n)},
		rates:      rates{p, n, db, newRateStatements(n)},
		typeCounts: typeCounts{p, n, db, newTypeStatements(n)},
		history:    history{p, n, db, newHistoryStatements(n)},
	}
	if n.partitioned {
		repo.partitions, err = newPartitions(p, n, cfg.PartitionEvery)
	}
	return repo, err
}

// Classify implements core.Repository. It recognises errors of all databases.
func (*Repository) Classify(err error) core.ErrorKind { return sqlerr.Classify(err) }

// Dialect returns the SQL dialect of the Repository.
func (r *Repository) Dialect() core.Dialect { return r.dialect }

// Prefix returns the prefix of the names of the tables.
func (r *Repository) Prefix() string { return r.names.prefix }

var (
	_ core.Waker     = (*Repository)(nil)
	_ core.Historian = (*Repository)(nil)
)

// Notify implements core.Waker, by a statement of its own on the pool. On PostgreSQL it is a
// NOTIFY on WakeChannel, in a transaction that does not wait for the disk. On MariaDB and MySQL it
// counts up the first row of the key table, the bell, which belongs to no key. Relays on SQLite
// need no Notify: the error wraps errors.ErrUnsupported.
func (r *Repository) Notify(ctx context.Context) error { return r.waker.notify(ctx) }

// Listen implements core.Waker. On SQLite it watches PRAGMA data_version on a connection of its
// own from the pool. On MariaDB and MySQL it reads the bell that Notify rings, by its primary key.
//
// On PostgreSQL, and on a pool of SQLite with fewer than four connections, the error wraps
// errors.ErrUnsupported: LISTEN needs the driver, so a relay on PostgreSQL gets it from its
// configuration.
func (r *Repository) Listen(ctx context.Context, wake func()) error { return r.waker.listen(ctx, wake) }
