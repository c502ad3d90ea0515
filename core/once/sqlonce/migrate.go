package sqlonce

import (
	"context"
	"embed"
	"errors"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

//go:embed schema
var schema embed.FS

var (
	// ErrDrift is wrapped by the error of Check if the tables in the database differ from those of
	// this version.
	ErrDrift = errors.New("sqlonce: schema drift")
	// ErrReadOnly is wrapped by the error of Check if the database accepts no writes: a standby, or
	// a server set read_only.
	ErrReadOnly = errors.New("sqlonce: database is read-only")
)

var tables = &sqlstore.Tables{
	Package:    "sqlonce",
	Words:      map[string]string{"key": "idempotency_key", "program": "idempotency_program"},
	Versions:   "once_migration",
	Files:      schema,
	Diagnostic: map[string]bool{"result_type": true, "result_meta": true},
	HowToCreate: "create or upgrade the table of idempotency keys with Migrate of the sqlonce.Store, " +
		"or with the files that sqlonce.Migrations returns",
	ErrDrift:    ErrDrift,
	ErrReadOnly: ErrReadOnly,
}

// Migration is one versioned change of the schema, as SQL that can be copied into goose,
// golang-migrate, dbmate, Atlas or Flyway.
type Migration struct {
	Version int
	Name    string
	Up      string // statements; each ends with a semicolon at the end of a line
	Down    string // undoes Up, with all data
}

// Migrations returns the migrations of the schema in ascending order of versions, with the table
// names of cfg. cfg.Dialect is required. All statements may be repeated.
func Migrations(cfg Config) ([]Migration, error) {
	list, err := tables.Migrations(sqlstore.Config(cfg))
	if err != nil {
		return nil, err
	}
	all := make([]Migration, len(list))
	for i, m := range list {
		all[i] = Migration(m)
	}
	return all, nil
}

// Migrate creates the tables or brings them up to date: it applies the migrations that the table
// <prefix>once_migration does not name yet. Any number of processes may call Migrate at once. It
// needs the right to create tables. If an application must not have that right, apply the result of
// Migrations with the tool of your choice.
func (s *Store) Migrate(ctx context.Context) error { return s.db.Migrate(ctx) }

// Check compares the tables in the database with the tables that this version needs, and names
// every difference. It also refuses a read-only database. Call it at start if you do not call
// Migrate.
func (s *Store) Check(ctx context.Context) error { return s.db.Check(ctx) }
