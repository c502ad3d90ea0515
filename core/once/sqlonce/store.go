package sqlonce

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Config names the table and its database.
type Config struct {
	// Dialect of the database. Empty: New asks the database.
	Dialect core.Dialect
	// Schema that holds the table: a schema of PostgreSQL, a database of MySQL. Empty: the default
	// of the connection. SQLite has none.
	Schema string
	// Prefix of the names of tables, indexes and constraints. Default: none, so that the tables are
	// idempotency_key and once_migration.
	Prefix string
}

// Store keeps keys in PostgreSQL, MariaDB 10.6 or newer, MySQL 8.0.16 or newer, or SQLite 3.35 or
// newer. It implements once.Store and once.TxStore; create it with New. It is safe for use by
// several goroutines.
type Store struct {
	db  *sqlstore.Store
	sql *statements
}

var (
	_ once.Store    = (*Store)(nil)
	_ once.TxStore  = (*Store)(nil)
	_ once.Archiver = (*Store)(nil)
)

// New returns the Store for the table in db. If cfg names no dialect, New asks the database, for at
// most ten seconds. Otherwise New sends no statement. Call Migrate to create the table, or Check to
// compare it.
func New(db *sql.DB, cfg Config) (*Store, error) {
	s, err := sqlstore.New(db, tables, sqlstore.Config(cfg))
	if err != nil {
		return nil, err
	}
	return &Store{db: s, sql: newStatements(s.Names)}, nil
}

// Dialect returns the SQL dialect of the Store.
func (s *Store) Dialect() core.Dialect { return s.db.Dialect() }

//go:embed schema
var schema embed.FS

var tables = &sqlstore.Tables{
	Package:    "sqlonce",
	Words:      map[string]string{"key": "idempotency_key", "program": "idempotency_program"},
	Versions:   "once_migration",
	Files:      schema,
	Diagnostic: map[string]bool{"result_type": true, "result_meta": true},
	HowToCreate: "create or upgrade the table of idempotency keys with Migrate of the sqlonce.Store, " +
		"or with the files that sqlonce.Migrations returns",
}

// Migrations returns the migrations of the schema in ascending order of versions, with the table
// names of cfg. cfg.Dialect is required. All statements may be repeated.
func Migrations(cfg Config) ([]core.Migration, error) {
	return tables.Migrations(sqlstore.Config(cfg))
}

// Migrate creates the tables or brings them up to date: it applies the migrations that the table
// <prefix>once_migration does not name yet. Any number of processes may call Migrate at once. It
// needs the right to create tables. If an application must not have that right, apply the result of
// Migrations with the tool of your choice.
func (s *Store) Migrate(ctx context.Context) error { return s.db.Migrate(ctx) }

// Check compares the tables in the database with the tables that this version needs, and names
// every difference. The error wraps core.ErrNoTables or core.ErrTablesDiffer. Check also refuses a
// read-only database. Call it at start if you do not call Migrate.
func (s *Store) Check(ctx context.Context) error { return s.db.Check(ctx) }

var _ once.Registrar = (*Store)(nil)

// Register implements once.Registrar: it writes that the program uses the scope now, and returns the
// other programs that have done so within a week.
func (s *Store) Register(ctx context.Context, scope, program string) (others []string, err error) {
	if err := (once.Key{Scope: scope, ID: "any"}).Validate(); err != nil {
		return nil, err
	}
	others, err = s.db.RegisterProgram(ctx, s.sql.programs, scope, program)
	if err != nil {
		return nil, err
	}
	// If this fails, the next call forgets them: others is known.
	_ = s.db.Single(ctx, "forget programs", func(q sqlkit.Querier) error {
		_, err := q.Exec(ctx, s.sql.forget, scope, sqlstore.ProgramMemory.Microseconds())
		return err
	})
	return others, nil
}

// Shared returns, by scope, the programs of the last week where there is more than one. Most often
// that is a mistake: each gets the results of the other.
func (s *Store) Shared(ctx context.Context) (programs map[string][]string, err error) {
	return s.db.SharedPrograms(ctx, s.sql.programs)
}

// Cleanup implements once.Store. The lease does not matter here, because a held key expires no
// earlier than its lease.
func (s *Store) Cleanup(ctx context.Context, limit int) (deleted int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	return s.sql.cleanup.Run(ctx, s.db, "cleanup", nil, int64(limit))
}

// archived is a key with what shows that it has not changed since.
type archived struct {
	once.ArchivedKey
	status           int
	updated, expires int64
}

// Archive implements once.Archiver.
func (s *Store) Archive(ctx context.Context, limit int, fn func(ctx context.Context, keys []once.ArchivedKey) error,
) (deleted int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	a := sqlstore.Archive[archived]{
		Find: s.sql.old, Scan: scanArchived, Lock: s.sql.lockOld, Delete: s.sql.remove,
		Key: func(k archived) []any {
			return []any{k.Key.Scope, k.Key.Tenant, k.Key.ID, k.Fence, k.updated, k.expires, k.status}
		},
		ID: func(k archived) []string { return []string{k.Key.Scope, k.Key.Tenant, k.Key.ID} },
	}
	return a.Run(ctx, s.db, "archive", []any{int64(limit)}, func(ctx context.Context, rows []archived) error {
		keys := make([]once.ArchivedKey, len(rows))
		for i := range rows {
			keys[i] = rows[i].ArchivedKey
		}
		return fn(ctx, keys)
	})
}

func scanArchived(rows core.Rows) (k archived, bytes int, err error) {
	var fingerprint []byte
	var created, done int64
	err = rows.Scan(&k.Key.Scope, &k.Key.Tenant, &k.Key.ID, &fingerprint, &k.Owner, &k.status, &k.Fence, &k.Attempts,
		&created, &k.updated, &done, &k.expires, &k.Result.Data, &k.Result.ContentType, &k.Result.Meta)
	switch {
	case err != nil:
		return k, 0, err
	case len(fingerprint) == len(k.Fingerprint):
		k.Fingerprint = once.Fingerprint(fingerprint)
	case len(fingerprint) != 0:
		return k, 0, fmt.Errorf("fingerprint of %s has %d bytes", k.Key, len(fingerprint))
	}
	k.CreatedAt, k.ExpiresAt = time.UnixMicro(created).UTC(), time.UnixMicro(k.expires).UTC()
	if k.Done = k.status == statusDone; k.Done {
		k.DoneAt = time.UnixMicro(done).UTC()
	} else {
		k.Result = once.Result{} // of an earlier time to live
	}
	return k, len(k.Result.Data), nil
}
