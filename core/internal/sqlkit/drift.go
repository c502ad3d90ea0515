package sqlkit

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// ReadOnly reports whether the database accepts no writes: a standby, or a server set read_only.
func ReadOnly(ctx context.Context, q Querier, d core.Dialect) (bool, error) {
	is, err := onQuerier{q}.ints(ctx, of(d).readOnly())
	return len(is) > 0 && is[0] != 0, err
}

// MissingError is an error of Drift about a missing table or column.
type MissingError struct {
	Table string // with its prefix
	text  string
}

// Error implements error.
func (e *MissingError) Error() string { return e.text }

// Drift compares the tables in the database with the tables that the steps of p create. It names
// everything that is missing or different: tables, columns and their types, indexes, and on MySQL
// the engine and the collations. Collations of diagnostic columns do not matter: only people read
// their texts. A node of a Galera cluster on which something is missing is given time to apply what
// other nodes have committed.
func Drift(ctx context.Context, q Querier, p Plan, diagnostic map[string]bool) (drift []error, err error) {
	drift, err = differences(ctx, q, p, diagnostic)
	missing := func(err error) bool { return errors.As(err, new(*MissingError)) }
	if err != nil || p.Dialect != core.MySQL || !slices.ContainsFunc(drift, missing) {
		return drift, err
	}
	if cluster, err := OnGalera(ctx, q); err != nil || !cluster {
		return drift, err
	}
	var one int
	// MariaDB executes this comment. Percona's cluster has no such statement, and passes over it.
	if _, err := FirstRow(ctx, q, "/*M! SET STATEMENT wsrep_sync_wait = 1 FOR */ SELECT 1", nil, &one); err != nil {
		return nil, fmt.Errorf("%w; this node of the Galera cluster has not applied everything that other nodes have "+
			"committed, perhaps a migration: %w", errors.Join(drift...), err)
	}
	return differences(ctx, q, p, diagnostic)
}

func differences(ctx context.Context, q Querier, p Plan, diagnostic map[string]bool) (drift []error, err error) {
	for _, t := range wantedTables(p.Steps) {
		got, err := foundTable(ctx, q, p, t.name)
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
		return []error{&MissingError{t.name, fmt.Sprintf("table %s is missing", t.name)}}
	}
	if got.engine != "" && !strings.EqualFold(got.engine, "InnoDB") {
		drift = append(drift, fmt.Errorf("table %s has engine %s, which has no transactions; want InnoDB", t.name,
			got.engine))
	}
	for _, c := range t.order {
		switch is, ok := got.columns[c]; {
		case !ok:
			drift = append(drift,
				&MissingError{t.name, fmt.Sprintf("column %s.%s is missing; want %s", t.name, c, t.columns[c])})
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
	dropTable   = regexp.MustCompile(`^DROP TABLE IF EXISTS (\S+)$`)
	createIndex = regexp.MustCompile(`^CREATE INDEX IF NOT EXISTS (\S+) ON (\S+) `)
	columnLine  = regexp.MustCompile(`(?m)^ {4}([a-z_]+) +([A-Za-z]+(?: precision)?(?:\([0-9]+\))?)`)
	dropIndex   = regexp.MustCompile(`^DROP INDEX IF EXISTS (\S+)$`)
	keyLine     = regexp.MustCompile(`(?m)^ {4}(?:UNIQUE )?KEY (\S+) \(`)
	// On MySQL such a change is a text that a condition chooses. Each part has a line of its own.
	addColumn = regexp.MustCompile(`^ALTER TABLE (\S+) ADD COLUMN (?:IF NOT EXISTS )?(\S+) ` +
		`([A-Za-z]+(?: precision)?(?:\([0-9]+\))?)`)
	alterTable = regexp.MustCompile(`(?s)'ALTER TABLE (\S+)\n([^']*)'`)
	// Statements takes the blanks off the last line.
	alterLine = regexp.MustCompile(`(?m)^(?: {4})?(ADD|DROP) (COLUMN|KEY) ([^\s,]+) *([A-Za-z]+(?:\([0-9]+\))?)?`)
)

// wantedTables reads the tables out of the migrations, so that there is one description of them.
func wantedTables(steps []core.Migration) []*tableShape {
	var all []*tableShape
	byName := map[string]*tableShape{}
	for _, step := range steps {
		for _, s := range Statements(step.Up) {
			if t := dropTable.FindStringSubmatch(s); t != nil {
				gone := byName[plain(t[1])]
				all = slices.DeleteFunc(all, func(t *tableShape) bool { return t == gone })
				delete(byName, plain(t[1]))
			}
			if t := createTable.FindStringSubmatch(s); t != nil && byName[plain(t[1])] == nil {
				shape := &tableShape{name: plain(t[1]), columns: map[string]string{}}
				for _, c := range columnLine.FindAllStringSubmatch(t[2], -1) {
					shape.addColumn(c[1], c[2])
				}
				for _, k := range keyLine.FindAllStringSubmatch(t[2], -1) {
					shape.addIndex(k[1])
				}
				all, byName[shape.name] = append(all, shape), shape
			}
			if t := alterTable.FindStringSubmatch(s); t != nil {
				byName[plain(t[1])].alter(t[2])
			}
			if c := addColumn.FindStringSubmatch(s); c != nil {
				byName[plain(c[1])].addColumn(c[2], c[3])
			}
			if i := createIndex.FindStringSubmatch(s); i != nil {
				byName[plain(i[2])].addIndex(i[1])
			}
			if i := dropIndex.FindStringSubmatch(s); i != nil {
				for _, t := range all {
					t.dropIndex(i[1])
				}
			}
		}
	}
	return all
}

func (t *tableShape) addColumn(name, typ string) {
	t.columns[name] = typeName(typ)
	t.order = append(t.order, name)
}

func (t *tableShape) addIndex(quoted string) { t.indexes = append(t.indexes, plain(quoted)) }

func (t *tableShape) dropIndex(quoted string) {
	t.indexes = slices.DeleteFunc(t.indexes, func(i string) bool { return i == plain(quoted) })
}

// alter applies the parts of an ALTER TABLE.
func (t *tableShape) alter(parts string) {
	for _, p := range alterLine.FindAllStringSubmatch(parts, -1) {
		switch p[1] + " " + p[2] {
		case "ADD COLUMN":
			t.addColumn(p[3], p[4])
		case "ADD KEY":
			t.addIndex(p[3])
		case "DROP KEY":
			t.dropIndex(p[3])
		}
	}
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
	// collations: columns also returns whether a column compares texts byte by byte.
	collations bool
	engine     string // empty if the database has only one
	args       []any
}

// foundTable reads a table's shape out of the database.
func foundTable(ctx context.Context, q Querier, p Plan, name string) (tableShape, error) {
	c := of(p.Dialect).catalog(p, name)
	shape := tableShape{columns: map[string]string{}}
	err := EachRow(ctx, q, c.columns, c.args, func(rows core.Rows) error {
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
	shape.indexes, err = Rows(ctx, q, c.indexes, c.args, Text)
	if err == nil && c.engine != "" && shape.exists {
		_, err = FirstRow(ctx, q, c.engine, c.args, &shape.engine)
	}
	return shape, err
}
