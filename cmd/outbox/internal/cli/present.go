package cli

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"

	"github.com/ormoutbox/ormoutbox/core"
)

// present is a group of tables of ormoutbox that a database has.
type present struct {
	kind   kind
	schema string // empty: the connection's
	prefix string
}

// String names the tables, and the command that looks at them.
func (p present) String() string {
	flags := flagsOf(p.schema, "")
	if p.prefix != p.kind.prefix {
		flags += " --" + p.kind.prefixFlag() + " " + shellWord(p.prefix)
	}
	return p.kind.things + ": `outbox " + p.kind.command + flags + "`"
}

// prefixFlag is the flag with the prefix of the tables.
func (k kind) prefixFlag() string {
	if k.name == "effects" {
		return "effects-prefix"
	}
	return "prefix"
}

// maxPresent is how many groups of tables are named to a person.
const maxPresent = 6

// present returns the tables of ormoutbox that the database has, at most maxPresent: in the schema
// of the connection, and on PostgreSQL then in other schemas. If the database cannot be asked,
// there are none.
func (db *database) present(ctx context.Context) (all []present) {
	schema, name, column, from := "''", "name", "sql LIKE '%%%s%%'", "sqlite_master WHERE type = 'table'"
	switch db.dialect {
	case core.Postgres:
		schema = "CASE WHEN table_schema = current_schema() THEN '' ELSE table_schema END"
		name, column, from = "table_name", "column_name = '%s'", "information_schema.columns WHERE true"
	case core.MySQL:
		name, column, from = "table_name", "column_name = '%s'",
			"information_schema.columns WHERE table_schema = DATABASE()"
	case core.SQLite:
	}
	conds := make([]string, len(kinds))
	for i, k := range kinds {
		conds[i] = fmt.Sprintf("%s LIKE '%%%s' AND "+column, name, k.table, k.column)
	}
	query := fmt.Sprintf("SELECT %s, %s FROM %s AND (%s) ORDER BY 1, 2 LIMIT %d", schema, name, from,
		strings.Join(conds, " OR "), maxPresent)
	err := db.each(ctx, query, nil, func(rows *sql.Rows) error {
		var schema, table string
		if err := rows.Scan(&schema, &table); err != nil {
			return err
		}
		i := slices.IndexFunc(kinds, func(k kind) bool { return strings.HasSuffix(table, k.table) })
		if i >= 0 {
			prefix := strings.TrimSuffix(table, kinds[i].table)
			all = append(all, present{kind: kinds[i], schema: schema, prefix: prefix})
		}
		return nil
	})
	if err != nil {
		return nil
	}
	return all
}

// kindNamed returns the kind with this name.
func kindNamed(name string) kind {
	return kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })]
}

// withTables adds to an error of missing tables or columns of a kind what the database has in their
// place, and what to do. It returns other errors as they are.
func (db *database) withTables(ctx context.Context, k kind, schema, prefix string, err error) error {
	prefix = cmp.Or(prefix, k.prefix)
	there, asked := db.hasTable(ctx, schema, prefix+k.table)
	switch {
	case asked == nil && !there:
		return &noTablesError{
			err: err, kind: k, table: prefix + k.table, where: flagsOf(schema, trimDefault(prefix, k)), db: db.name,
			present: db.present(ctx),
		}
	case lacksTables(err):
		return &noTablesError{err: err, kind: k, where: flagsOf(schema, trimDefault(prefix, k))}
	}
	return err
}

// trimDefault returns the prefix for a flag, which is not needed for the default.
func trimDefault(prefix string, k kind) string {
	if prefix == k.prefix {
		return ""
	}
	return prefix
}

// lacksTables reports whether tables or columns are missing.
func lacksTables(err error) bool {
	if err == nil {
		return false
	}
	return errors.Is(err, core.ErrNoTables) || strings.Contains(err.Error(), adviceForCode) || lacksColumn(err)
}

// lacksColumn reports whether a statement failed because of a column that does not exist.
func lacksColumn(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code == "42703"
	}
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number == 1054
	}
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && strings.Contains(e.Error(), "no such column")
}

// adviceForCode begins the advice that errors of missing tables have for programs. Here a command
// does it.
const adviceForCode = " (create or upgrade the tables with "

// noTablesError is an error of missing tables with the advice for the command line.
type noTablesError struct {
	err     error
	kind    kind
	table   string // the missing table; empty: the tables differ from this version's
	where   string // flags that name the tables
	db      string
	present []present // what the database has
}

func (e *noTablesError) Unwrap() error { return e.err }

func (e *noTablesError) Error() string {
	up := "`outbox migrate up" + e.kind.tablesFlag() + e.where + "`"
	if e.table == "" {
		return withoutAdvice(e.err.Error()) + "\n(the tables are not those of this version: `outbox migrate validate" +
			e.kind.tablesFlag() + e.where + "` says what differs, and " + up + " upgrades them)"
	}
	text := "there is no table " + e.table + " in " + e.db
	if len(e.present) == 0 {
		return text + "\n(nor any other table of ormoutbox: is it the right database? " + up + " creates the tables)"
	}
	return text + "\n(the database has " + e.others() + ")\n(if " + e.kind.things + " should be there, " + up +
		" creates the tables)"
}

// others names what the database has in place of the tables.
func (e *noTablesError) others() string {
	return strings.Join(converted(e.present, present.String), "; ")
}

// tablesFlag is the flag of migrate for the kind.
func (k kind) tablesFlag() string {
	if k.name == kinds[0].name {
		return ""
	}
	return " --tables " + k.name
}

// withoutAdvice cuts the advice out of an error of missing tables that is for programs.
func withoutAdvice(text string) string {
	if before, rest, found := strings.Cut(text, adviceForCode); found {
		_, after, _ := strings.Cut(rest, ")")
		text = before + after
	}
	return text
}
