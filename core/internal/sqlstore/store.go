package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Tables describes the tables of one store.
type Tables struct {
	Package     string            // the package of the store, for errors
	Words       map[string]string // the words for tables in texts, and their names without a prefix
	Versions    string            // the table of the migrations that were applied
	Files       fs.ReadFileFS     // has the folder schema
	Diagnostic  map[string]bool   // columns of text that is never compared
	HowToCreate string            // names every way to create the tables, because the store does not know its user
	ErrDrift    error
	ErrReadOnly error
}

// Store is a database with the tables of one store. It is safe for use by several goroutines.
type Store struct {
	Names
	tables     *Tables
	pool       *sql.DB
	transactor core.Transactor // instead of pool
}

// New returns the Store on a pool. If cfg names no dialect, New asks the database, for at most ten
// seconds. Otherwise New sends no statement.
func New(pool *sql.DB, t *Tables, cfg Config) (*Store, error) {
	if pool == nil {
		return nil, errors.New(t.Package + ": db is nil")
	}
	if cfg.Dialect == "" {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		d, err := sqlkit.Detect(ctx, pool)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Package, err)
		}
		cfg.Dialect = d
	}
	n, err := t.Names(cfg)
	if err != nil {
		return nil, err
	}
	return &Store{Names: n, tables: t, pool: pool}, nil
}

// On returns the Store in the database of a Transactor. cfg.Dialect is required.
func On(tr core.Transactor, t *Tables, cfg Config) (*Store, error) {
	if err := core.CheckTransactor(tr); err != nil {
		return nil, fmt.Errorf("%s: %w", t.Package, err)
	}
	n, err := t.Names(cfg)
	if err != nil {
		return nil, err
	}
	return &Store{Names: n, tables: t, transactor: tr}, nil
}

// Single runs one statement as a transaction of its own, and repeats it after a conflict with other
// transactions.
func (s *Store) Single(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	if s.transactor != nil {
		return s.InTx(ctx, what, fn)
	}
	return s.Wrap(what, sqlkit.Retry(ctx, func() error { return fn(sqlkit.On{Conn: s.pool}) }))
}

// InTx runs several statements as a transaction of their own, and repeats it after a conflict with
// other transactions.
func (s *Store) InTx(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	if s.transactor != nil {
		return s.Wrap(what, sqlkit.Retry(ctx, func() error {
			return s.transactor.RunInTx(ctx, func(_ context.Context, tx core.Tx) error { return fn(tx) })
		}))
	}
	run := func(c sqlkit.Conn) error { return fn(sqlkit.On{Conn: c}) }
	return s.Wrap(what, sqlkit.InTx(ctx, s.pool, s.dialect, run))
}

// Join checks a caller's transaction before the first statement in it.
func (s *Store) Join(tx core.Tx) error {
	switch {
	case tx == nil:
		return core.ErrNoTransaction
	case tx.Dialect() != s.dialect:
		return fmt.Errorf("the transaction speaks %q and the store %q", tx.Dialect(), s.dialect)
	}
	return tx.Err()
}

// TxError wraps core.ErrTxAborted around an error that ended the caller's transaction.
func TxError(err error) error {
	if err != nil && !errors.Is(err, core.ErrTxAborted) && (sqlerr.Retryable(err) || sqlerr.State(err) == "25P02") {
		return errtext.Errorf("%w: %w", core.ErrTxAborted, err)
	}
	return err
}

// Wrap puts the package and the operation in front of an error.
func (s *Store) Wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	if sqlerr.MissingTable(err) {
		return errtext.Errorf("%s: %s: %w (%s)", s.tables.Package, what, err, s.tables.HowToCreate)
	}
	return errtext.Errorf("%s: %s: %w", s.tables.Package, what, err)
}

// Vanished is how often a row may be deleted between two statements.
const Vanished = 3

// ErrVanished says that a row was deleted more often than Vanished allows.
var ErrVanished = errors.New("the key comes and goes: it is being deleted while it is in use; " +
	"is its time to live very short?")

// DeleteChunk is how many keys one DELETE names. With far more keys an optimizer would read the
// whole table.
const DeleteChunk = 100

// Micros is the form in which durations are sent to the database.
func Micros(d time.Duration) int64 { return d.Microseconds() }

// OrNil returns nil, which is NULL, for an empty text.
func OrNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// Column makes a text fit for a column that no statement compares.
func Column(s string, limit int) any { return OrNil(fit(s, limit)) }

func fit(s string, limit int) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "?")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
