package sqloutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// DefaultPrefix starts the names of the tables: outbox_event, outbox_key, outbox_audit,
// outbox_migration.
const DefaultPrefix = "outbox_"

// Config says where the tables are.
type Config struct {
	// Dialect of the database. Empty: New asks the database.
	Dialect core.Dialect
	// Schema of the tables: a schema of PostgreSQL, a database of MySQL. Empty: the default of the
	// connection. SQLite has none.
	Schema string
	// Prefix of the names of tables, indexes and constraints. Default: DefaultPrefix.
	Prefix string
}

// Repository is the outbox table in PostgreSQL, MariaDB 10.6 or newer, MySQL 8.0.16 or newer, or
// SQLite 3.35 or newer. It implements core.Repository; create it with New. It is safe for use by
// several goroutines.
type Repository struct {
	pool
	names    names
	database database
	home     home // for CheckTx
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
	n, err := cfg.names()
	if err != nil {
		return nil, err
	}
	p := pool{db: db, dialect: cfg.Dialect}
	return &Repository{pool: p, names: n, database: n.dialect.open(p, n)}, nil
}

// Dialect returns the SQL dialect of the Repository.
func (r *Repository) Dialect() core.Dialect { return r.dialect }
