package sqlkit

import (
	"context"
	"database/sql"

	"github.com/ormoutbox/ormoutbox/core"
)

// database has the parts of this package that differ between databases.
type database interface {
	maxIdent() int
	quote(ident string) string
	// rebind turns ? into the placeholders of the database.
	rebind(query string) string
	// schemas reports whether tables can be in a schema.
	schemas() bool
	// readOnly is a query for a number that is not 0 if the database is read-only.
	readOnly() string
	// tableOptions ends a CREATE TABLE.
	tableOptions() string
	catalog(p Plan, table string) catalog

	// inTx runs fn once, in a transaction of its own.
	inTx(ctx context.Context, db *sql.DB, fn func(c Conn) error) error
	// migrate is Migrate, and migrateTx one try of MigrateTx.
	migrate(ctx context.Context, db *sql.DB, p Plan) error
	migrateTx(ctx context.Context, t core.Transactor, p Plan) error
}

// of is the only function that distinguishes the dialects. Its callers have refused unknown
// dialects before.
func of(d core.Dialect) database {
	switch d {
	case core.Postgres:
		return postgres{}
	case core.MySQL:
		return mysql{}
	default:
		return sqlite{}
	}
}
