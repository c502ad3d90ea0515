package sqlkit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// ReadOnly reports whether the database accepts no writes: a standby, or a server set read_only.
func ReadOnly(ctx context.Context, db Conn, d core.Dialect) (bool, error) {
	is, err := ints(ctx, db, of(d).readOnly())
	return len(is) > 0 && is[0] != 0, err
}

// ErrMissing is wrapped by errors of Drift about missing tables and columns.
var ErrMissing = errors.New("is missing")

// Drift compares the tables in the database with those that the steps of p create. It names
// everything that is missing or different: tables, columns and their types, indexes, and on MySQL
// the engine and the collations. Collations of diagnostic columns do not matter: only people read
// their texts.
func Drift(ctx context.Context, db Conn, p Plan, diagnostic map[string]bool) (drift []error, err error) {
	for _, t := range wantedTables(p.Steps) {
		got, err := foundTable(ctx, db, p, t.name)
		if err != nil {
			return nil, err
		}
		drift = append(drift, t.compare(got, diagnostic)...)
	}
	return drift, nil
}

// tableShape has the properties of a table that are compared.
type tableShape struct {
	name    string
	columns map[string]string // name -> type
	order   []string
	indexes []string
	exists  bool
	engine  string // MySQL
	folding []string
}

func (t *tableShape) compare(got tableShape, diagnostic map[string]bool) (drift []error) {
	if !got.exists {
		return []error{fmt.Errorf("table %s %w", t.name, ErrMissing)}
	}
	if got.engine != "" && !strings.EqualFold(got.engine, "InnoDB") {
		drift = append(drift, fmt.Errorf("table %s has engine %s, which has no transactions; want InnoDB", t.name,
			got.engine))
	}
	for _, c := range t.order {
		switch is, ok := got.columns[c]; {
		case !ok:
			drift = append(drift, fmt.Errorf("column %s.%s %w; want %s", t.name, c, ErrMissing, t.columns[c]))
		case is != t.columns[c]:
			drift = append(drift, fmt.Errorf("column %s.%s has type %s, want %s", t.name, c, is, t.columns[c]))
		}
	}
	for _, c := range got.folding {
		if _, ours := t.columns[c]; ours && !diagnostic[c] {
			drift = append(drift,
				fmt.Errorf("column %s.%s has a collation that takes different texts for equal; want a binary one",
					t.name, c))
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
	keyLine     = regexp.MustCompile(`(?m)^ {4}(?:UNIQUE )?KEY (\S+) \(`)
)

// wantedTables reads the tables out of the migrations, so that there is one description of them.
func wantedTables(steps []Step) []*tableShape {
	var all []*tableShape
	byName := map[string]*tableShape{}
	for _, step := range steps {
		for _, s := range Statements(step.Up) {
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
	return all
}

// plain removes quotes and schema from a name.
func plain(quoted string) string {
	return strings.Trim(quoted[strings.LastIndexByte(quoted, '.')+1:], "`\"")
}

// typeName makes the spellings of a type equal.
func typeName(t string) string {
	t = strings.ToLower(t)
	switch base, _, _ := strings.Cut(t, "("); base {
	case "int", "bigint", "tinyint", "smallint": // the display width changes nothing
		return base
	case "json": // MariaDB stores JSON as this type
		return "longtext"
	case "timestamp with time zone":
		return "timestamptz"
	}
	return t
}

// catalog has the queries for the shape of a table. All queries have the same parameters.
type catalog struct {
	columns string // their names and types
	indexes string // their names
	// collations says that columns also tells whether a column compares texts byte by byte.
	collations bool
	engine     string // empty if the database has only one
	args       []any
}

// foundTable reads a table's shape out of the database.
func foundTable(ctx context.Context, db Conn, p Plan, name string) (tableShape, error) {
	c := of(p.Dialect).catalog(p, name)
	shape := tableShape{columns: map[string]string{}}
	err := each(ctx, db, c.columns, c.args, func(rows *sql.Rows) error {
		var name, typ string
		binary := true
		dest := []any{&name, &typ}
		if c.collations {
			dest = append(dest, &binary)
		}
		err := rows.Scan(dest...)
		shape.exists = true
		shape.columns[name] = typeName(typ)
		if !binary {
			shape.folding = append(shape.folding, name)
		}
		return err
	})
	if err != nil {
		return shape, err
	}
	err = each(ctx, db, c.indexes, c.args, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		shape.indexes = append(shape.indexes, name)
		return err
	})
	if err == nil && c.engine != "" && shape.exists {
		err = each(ctx, db, c.engine, c.args, func(rows *sql.Rows) error { return rows.Scan(&shape.engine) })
	}
	return shape, err
}

// each calls scan for each row.
func each(ctx context.Context, db Conn, query string, args []any, scan func(rows *sql.Rows) error) (err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
