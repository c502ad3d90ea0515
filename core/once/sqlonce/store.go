package sqlonce

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
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Config says where the tables are.
type Config struct {
	// Dialect of the database. Empty: New asks the database.
	Dialect core.Dialect
	// Schema that holds the tables: a schema of PostgreSQL, a database of MySQL. Empty: what the
	// connection finds by itself. SQLite has none.
	Schema string
	// Prefix of the names of tables, indexes and constraints. Default: none, which makes
	// idempotency_key, inbox_event, inbox_key, side_effect_command and once_migration.
	Prefix string
}

// Store keeps keys in PostgreSQL, MariaDB 10.6 or newer, MySQL 8.0.16 or newer, or SQLite 3.35 or
// newer. It implements once.Store and once.TxStore; create it with New. It is safe for use by
// several goroutines.
type Store struct {
	db         *sql.DB
	transactor core.Transactor // instead of db, in an Inbox of InboxOn

	dialect core.Dialect
	names   names
	sql     map[string]string

	flavor sync.Mutex
	// mariadb tells MariaDB, which knows whether it is in a transaction, from MySQL. Nil: not asked
	// yet.
	mariadb *bool
}

var (
	_ once.AttemptStore = (*Store)(nil)
	_ once.TxStore      = (*Store)(nil)
)

// New returns the Store for the tables in db. It asks the database for its dialect if cfg does not
// name it, within ten seconds, and is otherwise silent: call Migrate to create the tables, or Check
// to compare them.
func New(db *sql.DB, cfg Config) (*Store, error) {
	if db == nil {
		return nil, errors.New("sqlonce: db is nil")
	}
	if cfg.Dialect == "" {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		d, err := sqlkit.Detect(ctx, db)
		if err != nil {
			return nil, fmt.Errorf("sqlonce: %w", err)
		}
		cfg.Dialect = d
	}
	n, err := cfg.names()
	if err != nil {
		return nil, err
	}
	return &Store{db: db, dialect: cfg.Dialect, names: n, sql: keyStatements(n)}, nil
}

// Dialect returns which SQL the Store speaks.
func (s *Store) Dialect() core.Dialect { return s.dialect }

// single runs one statement as a transaction of its own, repeated where others made it fail.
func (s *Store) single(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	if s.transactor != nil {
		return s.inTx(ctx, what, fn)
	}
	return wrap(what, sqlkit.Retry(ctx, func() error { return fn(sqlkit.On{Conn: s.db}) }))
}

// inTx runs several statements as a transaction of its own, repeated where others made it fail.
func (s *Store) inTx(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	if s.transactor != nil {
		return wrap(what, sqlkit.Retry(ctx, func() error {
			return s.transactor.RunInTx(ctx, func(_ context.Context, tx core.Tx) error { return fn(tx) })
		}))
	}
	return wrap(what, sqlkit.InTx(ctx, s.db, s.dialect, func(c sqlkit.Conn) error { return fn(sqlkit.On{Conn: c}) }))
}

// join checks a caller's transaction before the first statement in it.
func (s *Store) join(tx core.Tx) error {
	switch {
	case tx == nil:
		return core.ErrNoTransaction
	case tx.Dialect() != s.dialect:
		return fmt.Errorf("the transaction speaks %q and the store %q", tx.Dialect(), s.dialect)
	}
	return tx.Err()
}

// txError says of an error in a caller's transaction whether it ended that.
func txError(err error) error {
	if err != nil && !errors.Is(err, core.ErrTxAborted) && (sqlerr.Retryable(err) || sqlerr.State(err) == "25P02") {
		return fmt.Errorf("%w: %w", core.ErrTxAborted, err)
	}
	return err
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	if sqlerr.MissingTable(err) {
		return fmt.Errorf("sqlonce: %s: %w (%s)", what, err, howToCreate)
	}
	return fmt.Errorf("sqlonce: %s: %w", what, err)
}

// isMariaDB finds out, once, through a connection that is at hand: the pool may have no other.
func (s *Store) isMariaDB(ctx context.Context, q sqlkit.Querier) (bool, error) {
	if s.dialect != core.MySQL {
		return false, nil
	}
	s.flavor.Lock()
	known := s.mariadb
	s.flavor.Unlock()
	if known != nil {
		return *known, nil
	}
	var version string
	if _, err := sqlkit.FirstRow(ctx, q, "SELECT VERSION()", nil, &version); err != nil {
		return false, err
	}
	is := sqlkit.IsMariaDB(version)
	s.flavor.Lock()
	s.mariadb = &is
	s.flavor.Unlock()
	return is, nil
}

// guarded reports whether an INSERT in a caller's transaction can see by itself that there is none
// any more: MariaDB's can. On MySQL it asks first.
func (s *Store) guarded(ctx context.Context, tx core.Tx) (bool, error) {
	mariadb, err := s.isMariaDB(ctx, tx)
	if err == nil && s.dialect == core.MySQL && !mariadb {
		err = sqlkit.StillOpen(ctx, tx)
	}
	return mariadb, err
}

// micros is how durations travel to the database.
func micros(d time.Duration) int64 { return d.Microseconds() }

// orNil makes NULL of an empty text.
func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}
