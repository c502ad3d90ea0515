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
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Tables describes the tables of one store.
type Tables struct {
	Package     string            // of the store, for errors
	Words       map[string]string // the words for tables in texts, and their names without a prefix
	Versions    string            // the table of the migrations that were applied
	Files       fs.ReadFileFS     // has the folder schema
	Diagnostic  map[string]bool   // columns of text that is never compared
	HowToCreate string            // every way there is: a store does not know who uses it
	ErrDrift    error
	ErrReadOnly error
}

// Store is a database in which the tables of one store are. It is safe for use by several
// goroutines.
type Store struct {
	Names
	tables     *Tables
	pool       *sql.DB
	transactor core.Transactor // instead of pool
}

// New returns the Store on a pool. It asks the database for its dialect if cfg does not name it,
// within ten seconds, and is otherwise silent.
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

// Single runs one statement as a transaction of its own, repeated where others made it fail.
func (s *Store) Single(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	if s.transactor != nil {
		return s.InTx(ctx, what, fn)
	}
	return s.Wrap(what, sqlkit.Retry(ctx, func() error { return fn(sqlkit.On{Conn: s.pool}) }))
}

// InTx runs several statements as a transaction of its own, repeated where others made it fail.
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

// TxError says of an error in a caller's transaction whether it ended that.
func TxError(err error) error {
	if err != nil && !errors.Is(err, core.ErrTxAborted) && (sqlerr.Retryable(err) || sqlerr.State(err) == "25P02") {
		return fmt.Errorf("%w: %w", core.ErrTxAborted, err)
	}
	return err
}

// Wrap names the package and what it did.
func (s *Store) Wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	if sqlerr.MissingTable(err) {
		return fmt.Errorf("%s: %s: %w (%s)", s.tables.Package, what, err, s.tables.HowToCreate)
	}
	return fmt.Errorf("%s: %s: %w", s.tables.Package, what, err)
}

// Vanished is how often a row may be deleted between two statements.
const Vanished = 3

// ErrVanished: it was deleted more often than that.
var ErrVanished = errors.New("the key comes and goes: it is being deleted while it is in use; " +
	"is its time to live very short?")

// DeleteChunk is how many keys one DELETE names: far below what makes an optimizer give up and walk
// through the table.
const DeleteChunk = 100

// Micros is how durations travel to the database.
func Micros(d time.Duration) int64 { return d.Microseconds() }

// OrNil makes NULL of an empty text.
func OrNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// Column makes a text fit for a column that only describes.
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
