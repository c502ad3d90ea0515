package sqloutbox

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// ErrDrift is wrapped by the error of Check when the tables in the database are not those of this version.
var ErrDrift = errors.New("sqloutbox: schema drift")

// ErrReadOnly is wrapped by the error of Check when the database accepts no writes: a standby, or a server set read_only.
var ErrReadOnly = errors.New("sqloutbox: database is read-only")

// Check compares the tables in the database with what this version needs and names everything that is missing or different:
// tables, columns and their types, indexes, the engine and the collations on MySQL. What is there beyond that is not its business. It
// also refuses a read-only database. Call it at start where Migrate is not called.
func (r *Repository) Check(ctx context.Context) error {
	if err := r.checkWritable(ctx); err != nil {
		return err
	}
	want, err := r.wanted()
	if err != nil {
		return err
	}
	var drift []error
	for _, t := range want {
		got, err := r.found(ctx, t.name)
		if err != nil {
			return r.wrap("check", err)
		}
		drift = append(drift, t.compare(got)...)
	}
	if len(drift) == 0 {
		return nil
	}
	return fmt.Errorf("%w (run Migrate, or apply the files that Migrations returns):\n%w", ErrDrift, errors.Join(drift...))
}

func (r *Repository) checkWritable(ctx context.Context) error {
	text := map[core.Dialect]string{
		core.Postgres: "SELECT CASE WHEN pg_is_in_recovery() THEN 1 ELSE 0 END",
		core.MySQL:    "SELECT @@global.read_only",
		core.SQLite:   "SELECT 0",
	}[r.dialect]
	readOnly := 0
	if err := queryRow(ctx, on{r.db}, text, nil, &readOnly); err != nil {
		return r.wrap("check", err)
	}
	if readOnly != 0 {
		return fmt.Errorf("%w: connect to the primary", ErrReadOnly)
	}
	return nil
}

// tableShape is what matters about a table.
type tableShape struct {
	name    string
	columns map[string]string // name -> type
	order   []string
	indexes []string
	exists  bool
	engine  string // MySQL
	folding []string
}

func (t tableShape) compare(got tableShape) (drift []error) {
	if !got.exists {
		return []error{fmt.Errorf("table %s is missing", t.name)}
	}
	if got.engine != "" && !strings.EqualFold(got.engine, "InnoDB") {
		drift = append(drift, fmt.Errorf("table %s has engine %s, which has no transactions; want InnoDB", t.name, got.engine))
	}
	for _, c := range t.order {
		switch is, ok := got.columns[c]; {
		case !ok:
			drift = append(drift, fmt.Errorf("column %s.%s is missing; want %s", t.name, c, t.columns[c]))
		case is != t.columns[c]:
			drift = append(drift, fmt.Errorf("column %s.%s has type %s, want %s", t.name, c, is, t.columns[c]))
		}
	}
	for _, c := range got.folding {
		if _, ours := t.columns[c]; ours {
			drift = append(drift, fmt.Errorf("column %s.%s has a collation that takes different texts for equal; want a binary one", t.name, c))
		}
	}
	for _, i := range t.indexes {
		if !slices.Contains(got.indexes, i) {
			drift = append(drift, fmt.Errorf("index %s on %s is missing or not valid", i, t.name))
		}
	}
	return drift
}

var (
	createTable = regexp.MustCompile(`(?s)^CREATE TABLE IF NOT EXISTS (\S+) \((.*)`)
	createIndex = regexp.MustCompile(`^CREATE INDEX IF NOT EXISTS (\S+) ON (\S+) `)
	columnLine  = regexp.MustCompile(`(?m)^ {4}([a-z_]+) +([A-Za-z]+(?:\([0-9]+\))?)`)
	keyLine     = regexp.MustCompile(`(?m)^ {4}KEY (\S+) \(`)
)

// wanted reads the tables out of the migrations, so that there is one description of them.
func (r *Repository) wanted() ([]*tableShape, error) {
	migrations, err := Migrations(Config{Dialect: r.dialect, Schema: r.names.schema, Prefix: r.names.prefix})
	if err != nil {
		return nil, err
	}
	var all []*tableShape
	byName := map[string]*tableShape{}
	for _, m := range migrations {
		for _, s := range sqlkit.Statements(m.Up) {
			if t := createTable.FindStringSubmatch(s); t != nil {
				shape := &tableShape{name: plain(t[1]), columns: map[string]string{}}
				for _, c := range columnLine.FindAllStringSubmatch(t[2], -1) {
					shape.columns[c[1]] = typeName(c[2])
					shape.order = append(shape.order, c[1])
				}
				for _, k := range keyLine.FindAllStringSubmatch(t[2], -1) {
					shape.indexes = append(shape.indexes, plain(k[1]))
				}
				all, byName[shape.name] = append(all, shape), shape
			}
			if i := createIndex.FindStringSubmatch(s); i != nil {
				byName[plain(i[2])].indexes = append(byName[plain(i[2])].indexes, plain(i[1]))
			}
		}
	}
	return all, nil
}

// plain takes quotes and schema off a name.
func plain(quoted string) string {
	return strings.Trim(quoted[strings.LastIndexByte(quoted, '.')+1:], "`\"")
}

// typeName brings the spellings of a type together.
func typeName(t string) string {
	t = strings.ToLower(t)
	switch base, _, _ := strings.Cut(t, "("); base {
	case "int", "bigint", "tinyint", "smallint": // the display width means nothing
		return base
	case "json": // what MariaDB makes of it
		return "longtext"
	case "timestamp with time zone":
		return "timestamptz"
	}
	return t
}

const (
	postgresColumns = `SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a
WHERE a.attrelid = to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped`
	postgresIndexes = `SELECT c.relname FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = to_regclass($1::text) AND i.indisvalid`
	mysqlColumns = `SELECT column_name, column_type, COALESCE(collation_name LIKE '%\\_bin', 1) FROM information_schema.columns
WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?`
	mysqlIndexes = `SELECT DISTINCT index_name FROM information_schema.statistics
WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?`
	mysqlEngine = `SELECT engine FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?`
	// SQLite's functions show generated columns only under another name; there are none.
	sqliteColumns = `SELECT name, type FROM pragma_table_info(?)`
	sqliteIndexes = `SELECT name FROM pragma_index_list(?)`
)

// found reads a table's shape out of the database.
func (r *Repository) found(ctx context.Context, table string) (tableShape, error) {
	columns, indexes, args := sqliteColumns, sqliteIndexes, []any{table}
	switch r.dialect {
	case core.Postgres:
		quoted := sqlkit.Quote(r.dialect, table)
		if r.names.schema != "" {
			quoted = sqlkit.Quote(r.dialect, r.names.schema) + "." + quoted
		}
		columns, indexes, args = postgresColumns, postgresIndexes, []any{quoted}
	case core.MySQL:
		columns, indexes, args = mysqlColumns, mysqlIndexes, []any{r.names.schema, table}
	case core.SQLite:
	}
	shape := tableShape{columns: map[string]string{}}
	q := on{r.db}
	err := query(ctx, q, columns, args, func(res core.Rows) error {
		var name, typ string
		binary := true
		dest := []any{&name, &typ}
		if r.dialect == core.MySQL {
			dest = append(dest, &binary)
		}
		err := res.Scan(dest...)
		shape.exists = true
		shape.columns[name] = typeName(typ)
		if !binary && !diagnostic[name] {
			shape.folding = append(shape.folding, name)
		}
		return err
	})
	if err != nil {
		return shape, err
	}
	err = query(ctx, q, indexes, args, func(res core.Rows) error {
		var name string
		err := res.Scan(&name)
		shape.indexes = append(shape.indexes, name)
		return err
	})
	if err == nil && r.dialect == core.MySQL && shape.exists {
		err = queryRow(ctx, q, mysqlEngine, args, &shape.engine)
	}
	return shape, err
}

// diagnostic are columns of text that is only read by people.
var diagnostic = map[string]bool{"last_error": true, "last_error_code": true, "receipt": true, "headers": true, "action": true, "actor": true, "reason": true}
