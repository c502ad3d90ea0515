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
	named    bool // Config.Dialect was set: the server is not checked

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
// database for it, for at most ten seconds, and refuses a server that is not supported. It sends no
// other statement: call Migrate to create the tables, or Check to compare them.
func New(db *sql.DB, cfg Config) (*Repository, error) {
	if db == nil {
		return nil, errNilDB
	}
	named := cfg.Dialect != ""
	if !named {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		d, err := sqlkit.Detect(ctx, db)
		if err != nil {
			return nil, refusal(err)
		}
		cfg.Dialect = d
	}
	return newRepository(newSQLPool(db, cfg.Dialect), cfg, named)
}

var errNilDB = errors.New("sqloutbox: db is nil")

// NewWithDialect is New for authors of adapters. d is the dialect that the ORM or the driver names,
// so the database need not answer yet. If it answers within two seconds, NewWithDialect refuses a
// server that is not supported. Check and Migrate refuse the server later. If cfg.Dialect is set,
// NewWithDialect is New.
func NewWithDialect(ctx context.Context, db *sql.DB, d core.Dialect, cfg Config) (*Repository, error) {
	switch {
	case cfg.Dialect != "":
		return New(db, cfg)
	case db == nil:
		return nil, errNilDB
	}
	cfg.Dialect = d
	repo, err := newRepository(newSQLPool(db, d), cfg, false)
	if err != nil {
		return nil, err
	}
	return repo, repo.refuse(ctx)
}

// refuse refuses a server that is not supported, if the server answers soon.
func (r *Repository) refuse(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	return r.checkServer(ctx)
}

// checkServer refuses a server that is not supported, unless Config.Dialect was set. A server that
// does not answer is not refused.
func (r *Repository) checkServer(ctx context.Context) error {
	if r.named {
		return nil
	}
	if err := sqlkit.CheckServer(ctx, r.each(), r.dialect); sqlkit.Refused(err) {
		return refusal(err)
	}
	return nil
}

// refusal is the error of a server that was asked for its version.
func refusal(err error) error {
	if sqlkit.Refused(err) {
		return fmt.Errorf("sqloutbox: %w; sqloutbox.Config.Dialect skips this check", err)
	}
	return wrap("ask for the version", err)
}

func newRepository(r runner, cfg Config, named bool) (*Repository, error) {
	n, err := cfg.names()
	if err != nil {
		return nil, err
	}
	p := pool{runner: r, dialect: cfg.Dialect}
	db := openDatabase(p, n)
	repo := &Repository{
		pool: p, names: n, database: db, waker: newWaker(p, n), home: home{names: n}, named: named,
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
