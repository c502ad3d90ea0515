package sqlonce

import (
	"database/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Config says where the table is.
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
	_ once.AttemptStore = (*Store)(nil)
	_ once.TxStore      = (*Store)(nil)
	_ once.Archiver     = (*Store)(nil)
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
