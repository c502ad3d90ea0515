// Package sqlkit is shared by the SQL packages of this project: dialects, identifiers,
// placeholders, transactions, and migrations. It imports no driver.
package sqlkit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// CheckIdent refuses a text that is not a plain identifier of at most the dialect's length. what
// names it in the Format of a core.FieldError.
func CheckIdent(d core.Dialect, what, s string) error {
	if !identifier.MatchString(s) {
		return &core.FieldError{
			Format: what + " %.80q is not an identifier: letters, digits and underscores, not starting with a digit",
			Args:   []any{s},
		}
	}
	if n := of(d).maxIdent(); len(s) > n {
		return &core.FieldError{Format: what + " %.80q has %d bytes, more than %d", Args: []any{s, len(s), n}}
	}
	return nil
}

// CheckNames refuses identifiers of a configuration that cannot be used, and names every problem.
// room is the package of the Config. longest is the longest name that follows the prefix.
func CheckNames(room string, d core.Dialect, schema, prefix, longest string) error {
	var problems []error
	add := func(err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", room, err))
		}
	}
	if prefix != "" {
		add(CheckIdent(d, "{Config.Prefix}", prefix))
	}
	if limit := of(d).maxIdent() - len(longest); len(prefix) > limit {
		add(&core.FieldError{
			Format: "{Config.Prefix} has %d bytes, more than %d", Args: []any{len(prefix), limit},
		})
	}
	switch {
	case schema == "":
	case !of(d).schemas():
		add(&core.FieldError{Format: "{Config.Schema}: SQLite has no schemas"})
	default:
		add(CheckIdent(d, "{Config.Schema}", schema))
	}
	return errors.Join(problems...)
}

// Quote quotes a checked identifier.
func Quote(d core.Dialect, ident string) string { return of(d).quote(ident) }

// Qualify quotes a checked name of a table, with its schema if there is one.
func Qualify(d core.Dialect, schema, table string) string {
	if schema == "" {
		return Quote(d, table)
	}
	return Quote(d, schema) + "." + Quote(d, table)
}

// Rebind turns ? into the placeholders of the dialect. Every ? in the text must be a placeholder.
func Rebind(d core.Dialect, query string) string { return of(d).rebind(query) }

// List returns n placeholders ? separated by commas.
func List(n int) string {
	if n == 0 {
		return ""
	}
	return strings.Repeat("?,", n-1) + "?"
}

// database has the parts of this package that differ between databases.
type database interface {
	maxIdent() int
	quote(ident string) string
	// rebind turns ? into the placeholders of the database.
	rebind(query string) string
	// schemas reports whether tables can be in a schema.
	schemas() bool
	// askVersion is a query for the version of the server, as one text.
	askVersion() string
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
