package truth_test

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// table is a table of the programs. A column is its name, its type (serial, int, text, time), and
// what else is to say of it: key, null, unique.
type table struct {
	name    string
	columns []string
	rows    []string // that each program finds
}

var tables = []table{
	{
		"parents",
		[]string{"id serial", "name text unique", "qty int", "tenant int", "updated_at int"},
		[]string{"1,'n1',1,1,0", "2,'n2',2,1,0", "3,'n3',3,2,0", "4,'n4',1,1,0"},
	},
	{
		"children",
		[]string{"id text key", "name text", "qty int", "tenant int", "parent_id int null"},
		[]string{"'k1','a',1,1,1", "'k2','b',2,2,1", "'k3','c',1,1,NULL", "'k4','d',3,1,2"},
	},
	{
		"pairs",
		[]string{"shop text key", "code text key", "name text", "qty int", "tenant int"},
		[]string{"'a','1','x',1,1", "'a','2','y',2,1", "'b','1','z',1,2", "'a,b','1','v',1,1", "'a','b,1','w',3,1"},
	},
	{
		"softs",
		[]string{"id serial", "name text", "qty int", "tenant int", "deleted_at time null"},
		[]string{"1,'a',1,1,NULL", "2,'b',2,1,NULL", "3,'c',1,2,NULL", "4,'d',1,1,'2020-01-02 03:04:05'"},
	},
	{
		"records",
		[]string{"id serial", "name text", "qty int", "tenant int"},
		[]string{"1,'a',1,1", "2,'b',2,1", "3,'c',1,2", "4,'d',3,1"},
	},
	{"tags", []string{"id serial", "name text", "qty int"}, []string{"1,'a',1", "2,'b',2"}},
	{
		"parts",
		[]string{"id serial", "name text", "qty int", "parent_id int null"},
		[]string{"1,'a',1,1", "2,'b',2,NULL"},
	},
	{
		"locks",
		[]string{"id serial", "name text", "qty int", "version int"},
		[]string{"1,'a',1,1", "2,'b',2,2", "3,'c',1,1"},
	},
	{
		"flags",
		[]string{"id serial", "name text", "qty int", "deleted int"},
		[]string{"1,'a',1,0", "2,'b',2,0", "3,'c',1,1"},
	},
	{"hooks", []string{"id serial", "name text", "qty int"}, []string{"1,'a',1", "2,'b',2"}},
	{"parents_tags", []string{"parent_id int key", "tag_id int key"}, []string{"1,1", "1,2"}},
}

// lastGiven is the last key that the database takes for given when a program starts.
const lastGiven = 6

// untold are tables without a model of their own, so nothing tells of their rows.
var untold = []string{"parents_tags"}

func (t table) names(only ...string) (names []string) {
	for _, c := range t.columns {
		words := strings.Fields(c)
		if len(only) == 0 || slices.Contains(only, words[len(words)-1]) {
			names = append(names, words[0])
		}
	}
	return names
}

// key names the columns of the primary key.
func (t table) key() []string { return t.names("key", "serial") }

func (t table) serial() bool { return len(t.names("serial")) > 0 }

func tableOf(name string) (table, bool) {
	i := slices.IndexFunc(tables, func(t table) bool { return t.name == name })
	if i < 0 {
		return table{}, false
	}
	return tables[i], true
}

func (t table) ddl(d core.Dialect) string {
	types := map[core.Dialect]map[string]string{
		core.Postgres: {"serial": "BIGSERIAL PRIMARY KEY", "text": "VARCHAR(64)", "time": "TIMESTAMPTZ"},
		core.MySQL:    {"serial": "BIGINT AUTO_INCREMENT PRIMARY KEY", "text": "VARCHAR(64)", "time": "DATETIME(3)"},
		core.SQLite:   {"serial": "INTEGER PRIMARY KEY AUTOINCREMENT", "text": "TEXT", "time": "DATETIME"},
	}[d]
	var lines []string
	for _, c := range t.columns {
		words := strings.Fields(c)
		line := words[0] + " " + cmp.Or(types[words[1]], "BIGINT")
		if !slices.Contains(words, "null") && words[1] != "serial" {
			line += " NOT NULL"
		}
		if slices.Contains(words, "unique") {
			line += " UNIQUE"
		}
		lines = append(lines, line)
	}
	if keys := t.names("key"); len(keys) > 0 {
		lines = append(lines, "PRIMARY KEY ("+strings.Join(keys, ", ")+")")
	}
	return "CREATE TABLE " + t.name + " (" + strings.Join(lines, ", ") + ")"
}

// triggers returns the statements that make a table write what happens to its rows into truth.
func (t table) triggers(d core.Dialect) (texts []string) {
	for _, op := range []string{"INSERT", "UPDATE", "DELETE"} {
		head := fmt.Sprintf("CREATE TRIGGER %s_%s AFTER %[2]s ON %[1]s FOR EACH ROW ", t.name, op)
		if d == core.Postgres {
			texts = append(texts, head+"EXECUTE FUNCTION note_truth()")
			continue
		}
		images := map[string]string{"OLD": "NULL", "NEW": "NULL"}
		for image := range images {
			if op == "UPDATE" || image == "OLD" == (op == "DELETE") {
				var parts []string
				for _, c := range t.names() {
					parts = append(parts, fmt.Sprintf("'%s', %s.%[1]s", c, image))
				}
				images[image] = "JSON_OBJECT(" + strings.Join(parts, ", ") + ")"
			}
		}
		insert := fmt.Sprintf("INSERT INTO truth (tab, op, old_row, new_row) VALUES ('%s', '%s', %s, %s)", t.name, op,
			images["OLD"], images["NEW"])
		if d == core.SQLite {
			insert = "BEGIN " + insert + "; END"
		}
		texts = append(texts, head+insert)
	}
	return texts
}

// createTables makes the tables, their triggers, and the table truth, into which the triggers write
// in the transaction of the change.
func createTables(t *testing.T, db testdb.DB, pool *sql.DB) {
	t.Helper()
	switch db.Dialect {
	case core.Postgres:
		fixture.MustExec(t, pool, "CREATE TABLE truth (seq BIGSERIAL, tab TEXT, op TEXT, old_row TEXT, new_row TEXT)")
		fixture.MustExec(t, pool, `CREATE FUNCTION note_truth() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
INSERT INTO truth (tab, op, old_row, new_row) VALUES (TG_TABLE_NAME, TG_OP, to_jsonb(OLD), to_jsonb(NEW)); RETURN NULL;
END $$`)
	case core.MySQL:
		fixture.MustExec(t, pool, "CREATE TABLE truth (seq BIGINT AUTO_INCREMENT PRIMARY KEY, tab VARCHAR(64), "+
			"op VARCHAR(64), old_row TEXT, new_row TEXT)")
	default:
		fixture.MustExec(t, pool, "CREATE TABLE truth (seq INTEGER PRIMARY KEY, tab TEXT, op TEXT, old_row TEXT, "+
			"new_row TEXT)")
	}
	for _, table := range tables {
		for _, text := range append([]string{table.ddl(db.Dialect)}, table.triggers(db.Dialect)...) {
			fixture.MustExec(t, pool, text)
		}
	}
}

// reset returns the statements that put the tables back into the state in which a program starts.
// outbox says that the database has an outbox.
func reset(d core.Dialect, outbox bool) (texts []string) {
	sequence := map[core.Dialect]string{
		core.Postgres: "PERFORM setval('%s_id_seq', %d)",
		core.MySQL:    "ALTER TABLE %s AUTO_INCREMENT = %d",
		core.SQLite:   "UPDATE sqlite_sequence SET seq = %[2]d WHERE name = '%[1]s'",
	}[d]
	for _, t := range tables {
		texts = append(texts, "DELETE FROM "+t.name,
			"INSERT INTO "+t.name+" VALUES ("+strings.Join(t.rows, "), (")+")")
		if t.serial() {
			texts = append(texts, fmt.Sprintf(sequence, t.name, lastGiven))
		}
	}
	if outbox {
		texts = append(texts, "DELETE FROM outbox_event", "DELETE FROM outbox_key")
	}
	texts = append(texts, "DELETE FROM truth")
	if d == core.Postgres {
		texts = []string{"DO $$ BEGIN " + strings.Join(texts, "; ") + "; END $$"}
	}
	return texts
}

// row is a row as text by column. It has no columns if there is no row.
type row map[string]string

// rowOf reads a row from JSON. Of a time it only tells whether it is set, because each database has
// a text of its own for it.
func rowOf(text string) (row, error) {
	if text == "" {
		return nil, nil
	}
	var cells map[string]any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&cells); err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	r := row{}
	for name, cell := range cells {
		switch {
		case cell == nil:
			r[name] = "NULL"
		case name == "deleted_at":
			r[name] = "set"
		default:
			r[name] = fmt.Sprint(cell)
		}
	}
	return r, nil
}

// key returns the values of the primary key.
func (t table) keyOf(r row) (key []string) {
	for _, c := range t.key() {
		key = append(key, r[c])
	}
	return key
}

// change is what a trigger noted of a row.
type change struct {
	table         string
	op            string
	before, after row
}

// event is a row of the outbox.
type event struct {
	typ, aggregate, payload string
	written                 int // which statement, in the tests of the oracle
}

// querier reads within a transaction or on a pool.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func query[T any](
	ctx context.Context, q querier, text string, scan func(*sql.Rows) (T, error),
) (all []T, err error) {
	rows, err := q.QueryContext(context.WithoutCancel(ctx), text)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

func changes(ctx context.Context, q querier) ([]change, error) {
	return query(ctx, q, "SELECT tab, op, COALESCE(old_row, ''), COALESCE(new_row, '') FROM truth ORDER BY seq",
		func(rows *sql.Rows) (c change, err error) {
			var before, after string
			if err := rows.Scan(&c.table, &c.op, &before, &after); err != nil {
				return c, err
			}
			if c.before, err = rowOf(before); err != nil {
				return c, err
			}
			c.after, err = rowOf(after)
			return c, err
		})
}

func countChanges(ctx context.Context, q querier) (int, error) {
	n, err := query(ctx, q, "SELECT COUNT(*) FROM truth", func(rows *sql.Rows) (n int, err error) {
		return n, rows.Scan(&n)
	})
	if err != nil {
		return 0, err
	}
	return n[0], nil
}

func events(ctx context.Context, q querier) ([]event, error) {
	return query(ctx, q, "SELECT event_type, COALESCE(aggregate_id, ''), payload FROM outbox_event ORDER BY id",
		func(rows *sql.Rows) (e event, err error) {
			return e, rows.Scan(&e.typ, &e.aggregate, &e.payload)
		})
}

// contents returns the rows of all tables as text.
func contents(ctx context.Context, q querier) (map[string][]string, error) {
	all := map[string][]string{}
	for _, t := range tables {
		rows, err := query(ctx, q, "SELECT "+strings.Join(t.names(), ", ")+" FROM "+t.name+" ORDER BY "+
			strings.Join(t.key(), ", "), func(rows *sql.Rows) (string, error) {
			cells := make([]sql.NullString, len(t.columns))
			dest := make([]any, len(cells))
			for i := range cells {
				dest[i] = &cells[i]
			}
			if err := rows.Scan(dest...); err != nil {
				return "", err
			}
			texts := make([]string, len(cells))
			for i, c := range cells {
				if texts[i] = c.String; !c.Valid {
					texts[i] = "NULL"
				}
			}
			return strings.Join(texts, "|"), nil
		})
		if err != nil {
			return nil, err
		}
		all[t.name] = rows
	}
	return all, nil
}
