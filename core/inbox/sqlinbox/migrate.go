package sqlinbox

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
	ErrDrift = errors.New("sqlinbox: schema drift")
	// ErrReadOnly is wrapped by the error of Check if the database accepts no writes: a standby, or
	// a server set read_only.
	ErrReadOnly = errors.New("sqlinbox: database is read-only")
)

var tables = &sqlstore.Tables{
	Package: "sqlinbox",
	Words: map[string]string{
		"handler": "inbox_handler", "seen": "inbox_seen", "failure": "inbox_failure", "inbox_key": "inbox_key",
		"program": "inbox_program",
	},
	Versions:   "inbox_migration",
	Files:      schema,
	Diagnostic: map[string]bool{"last_error": true, "last_error_code": true},
	HowToCreate: "create or upgrade the tables of the inbox with Migrate of the sqlinbox.Store, " +
		"with the files that sqlinbox.Migrations returns, " +
		"or, for inbox.Middleware and inbox.SQL, with the option inbox.CreateTables",
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
// <prefix>inbox_migration does not name yet. Any number of processes may call it at once. It needs
// the right to create tables; where an application must not have it, apply what Migrations returns
// with the tool of your choice. With a Store of On, Config.Schema must exist.
func (s *Store) Migrate(ctx context.Context) error { return s.db.Migrate(ctx) }

// Check compares the tables in the database with what this version needs and names everything that
// is missing or different. It also refuses a read-only database. Call it at start where Migrate is
// not called. It needs a Store of New.
func (s *Store) Check(ctx context.Context) error { return s.db.Check(ctx) }
