package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"slices"
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
}

// Store is a database with the tables of one store. It is safe for use by several goroutines.
type Store struct {
	Names
	tables     *Tables
	pool       *sql.DB
	transactor core.Transactor // instead of pool
	beside     Runner          // instead of both
}

// Runner runs the statements of a store in the database of another one, and repeats them after a
// conflict with other transactions. It returns the driver's errors.
type Runner struct {
	// Single runs one statement as a transaction of its own, InTx several.
	Single, InTx func(ctx context.Context, fn func(q sqlkit.Querier) error) error
}

// New returns the Store on a pool. If cfg names no dialect, New asks the database, for at most ten
// seconds, and refuses a server that is not supported. Otherwise New sends no statement.
func New(pool *sql.DB, t *Tables, cfg Config) (*Store, error) {
	if pool == nil {
		return nil, errors.New(t.Package + ": db is nil")
	}
	if cfg.Dialect == "" {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		d, err := sqlkit.Detect(ctx, pool)
		if err != nil {
			return nil, t.refusal(err)
		}
		cfg.Dialect = d
	}
	n, err := t.Names(cfg)
	if err != nil {
		return nil, err
	}
	return &Store{Names: n, tables: t, pool: pool}, nil
}

// CheckServer refuses a server that is not supported.
func (t *Tables) CheckServer(ctx context.Context, q sqlkit.Querier, d core.Dialect) error {
	return t.refusal(sqlkit.CheckServer(ctx, q, d))
}

func (t *Tables) refusal(err error) error {
	if sqlkit.Refused(err) {
		return fmt.Errorf("%s: %w; %s.Config.Dialect skips this check", t.Package, err, t.Package)
	}
	return t.Wrap("ask for the version", err)
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

// Beside returns the Store in the database of another one. cfg.Dialect is required.
func Beside(r Runner, t *Tables, cfg Config) (*Store, error) {
	n, err := t.Names(cfg)
	if err != nil {
		return nil, err
	}
	return &Store{Names: n, tables: t, beside: r}, nil
}

// Single runs one statement as a transaction of its own, and repeats it after a conflict with other
// transactions.
func (s *Store) Single(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	if s.beside.Single != nil {
		return s.Wrap(what, s.beside.Single(ctx, fn))
	}
	if s.transactor != nil {
		return s.InTx(ctx, what, fn)
	}
	return s.Wrap(what, sqlkit.Retry(ctx, func() error { return fn(sqlkit.On{Conn: s.pool}) }))
}

// List returns the results of scan for the rows of a query, which is a transaction of its own.
func List[T any](ctx context.Context, s *Store, what, text string, args []any, scan func(rows core.Rows) (T, error),
) ([]T, error) {
	return sqlkit.AskRows(ctx, s.Single, what, text, args, scan)
}

// InTx runs several statements as a transaction of their own, and repeats it after a conflict with
// other transactions.
func (s *Store) InTx(ctx context.Context, what string, fn func(q sqlkit.Querier) error) error {
	if s.beside.InTx != nil {
		return s.Wrap(what, s.beside.InTx(ctx, fn))
	}
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
func (s *Store) Wrap(what string, err error) error { return s.tables.Wrap(what, err) }

// Wrap puts the package and the operation in front of an error. The error of a missing table wraps
// core.ErrNoTables.
func (t *Tables) Wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	if sqlerr.MissingTable(err) {
		return noTables{errtext.Errorf("%s: %s: %w (%s)", t.Package, what, err, t.HowToCreate)}
	}
	return errtext.Errorf("%s: %s: %w", t.Package, what, err)
}

// noTables is an error that names the missing table.
type noTables struct{ error }

func (e noTables) Unwrap() []error { return []error{core.ErrNoTables, e.error} }

// Vanished is how often a row may be deleted between two statements.
const Vanished = 3

// ErrVanished: a row was deleted more often than Vanished allows.
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

// Migrations returns the migrations in ascending order of versions, with the names that cfg gives.
func (t *Tables) Migrations(cfg Config) ([]core.Migration, error) {
	n, err := t.Names(cfg)
	if err != nil {
		return nil, err
	}
	return t.load(n)
}

// load reads the files of a dialect.
func (t *Tables) load(n Names) ([]core.Migration, error) {
	all, err := sqlkit.Files(t.Files, n.dialect)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Package, err)
	}
	for i := range all {
		all[i].Up, all[i].Down = n.Expand(all[i].Up), n.Expand(all[i].Down)
	}
	return all, nil
}

func (s *Store) plan() (sqlkit.Plan, error) {
	steps, err := s.tables.load(s.Names)
	return sqlkit.Plan{Dialect: s.dialect, Schema: s.schema, Table: s.prefix + s.tables.Versions, Steps: steps}, err
}

// Migrate applies the migrations that are missing. Any number of processes may call Migrate at
// once. For a Store on a Transactor the schema must exist.
func (s *Store) Migrate(ctx context.Context) error {
	plan, err := s.plan()
	if err != nil {
		return err
	}
	if s.transactor != nil {
		return s.Wrap("migrate", sqlkit.MigrateTx(ctx, s.transactor, plan))
	}
	return s.Wrap("migrate", sqlkit.Migrate(ctx, s.pool, plan))
}

// Check compares the tables in the database with the tables that the migrations create, and refuses
// a read-only database. Its error about the tables wraps core.ErrNoTables or core.ErrTablesDiffer.
// Check needs a pool.
func (s *Store) Check(ctx context.Context) error {
	if s.pool == nil {
		return fmt.Errorf("%s: Check needs a *sql.DB: use New", s.tables.Package)
	}
	readOnly, err := sqlkit.ReadOnly(ctx, sqlkit.On{Conn: s.pool}, s.dialect)
	if err != nil {
		return s.Wrap("check", err)
	}
	if readOnly {
		return fmt.Errorf("%s: database is read-only: connect to the primary", s.tables.Package)
	}
	plan, err := s.plan()
	if err != nil {
		return err
	}
	drift, err := sqlkit.Drift(ctx, sqlkit.On{Conn: s.pool}, plan, s.tables.Diagnostic)
	if err != nil {
		return s.Wrap("check", err)
	}
	if len(drift) == 0 {
		return nil
	}
	how := core.ErrTablesDiffer
	if slices.ContainsFunc(drift, func(err error) bool { return errors.As(err, new(*sqlkit.MissingError)) }) {
		how = core.ErrNoTables
	}
	return fmt.Errorf("%s: %w (%s):\n%w", s.tables.Package, how, s.tables.HowToCreate, errors.Join(drift...))
}
