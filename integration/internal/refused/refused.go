// Package refused runs statements for the lines of the table "What is refused" of docs/rows.md, so
// that the table says what happens.
package refused

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Case is a statement of an ORM. On the databases of its line it must be refused, at the time that
// the line names. On the others it must succeed.
type Case[E, T any] struct {
	// Line are words of the line that no other line has.
	Line string
	// Name tells the cases of a line apart.
	Name string
	// On names databases, if not all those of the line refuse this statement: "MySQL".
	On string
	// After says that it is refused after the statement, where the line has both. It names
	// databases.
	After string
	// Long leaves the case to the long tests.
	Long bool

	// Open returns the ORM with its outbox. Nil: that of the ORM.
	Open func(t *testing.T, db testdb.DB) E
	// Set prepares the database. Nil: there is nothing to prepare.
	Set func(t *testing.T, e E)
	// Tx runs fn in a transaction. Nil: that of the ORM.
	Tx func(ctx context.Context, e E, fn func(tx T) error) error
	// Do runs the statement. An error wrapping errors.ErrUnsupported says that the database or the
	// ORM has no such statement.
	Do func(ctx context.Context, tx T) error
}

// ORM is the ORM of the cases. Its fields without a comment are those of a Case.
type ORM[E, T any] struct {
	// Name is that of the first column: GORM.
	Name string
	Open func(t *testing.T, db testdb.DB) E
	Tx   func(ctx context.Context, e E, fn func(tx T) error) error
	// Lacks names lines that do not concern the ORM, and says why.
	Lacks map[string]string
}

// Conditions are those that MariaDB and MySQL refuse. They are never true.
var Conditions = []string{
	"1 = 0 AND RAND() < 2", "1 = 0 AND UUID() <> 'a'", "1 = 0 AND SYSDATE() > 1",
	"0 IN (SELECT 1 UNION SELECT 2)", "0 IN (SELECT 1 EXCEPT SELECT 2)", "0 IN (SELECT 1 INTERSECT SELECT 2)",
	"0 IN (SELECT 1 FOR UPDATE)",
}

// FoundRows makes the driver of MySQL count the rows that a statement finds.
func FoundRows(db testdb.DB) testdb.DB {
	if db.Dialect == core.MySQL {
		sep := "?"
		if strings.Contains(db.DSN, "?") {
			sep = "&"
		}
		db.DSN += sep + "clientFoundRows=true"
	}
	return db
}

// All is the error of several statements of a case. If only some are refused, it is none that a line
// names.
func All(errs ...error) error {
	if n := len(slices.DeleteFunc(slices.Clone(errs),
		func(err error) bool { return err == nil })); n > 0 && n < len(errs) {
		return fmt.Errorf("%d of %d statements are refused: %v", n, len(errs), errs)
	}
	return errors.Join(errs...)
}

// line is a line of the table.
type line struct{ where, statement, when string }

var databases = map[string]string{
	"PostgreSQL": "postgres", "SQLite": "sqlite", "MariaDB": "mariadb", "MySQL": "mysql",
}

// has reports whether a list of databases, or the first column of a line, has a database.
func has(list string, db testdb.DB) bool {
	all := true
	for of, name := range databases {
		if slices.Contains(strings.Split(list, ", "), of) {
			if all = false; strings.HasPrefix(db.Name, name) {
				return true
			}
		}
	}
	return all
}

// of reports whether a line concerns an ORM.
func (l line) of(orm string) bool {
	if l.when == "not seen" || l.when == "not refused" || l.when == "-" {
		return false
	}
	for name := range strings.SplitSeq(l.where, ", ") {
		if name == "GORM" || name == "Bun" || name == "Ent" {
			return name == orm
		}
	}
	return true
}

var named = regexp.MustCompile("`(Err\\w+)`")

// is reports whether err is the one that the line names.
func (l line) is(t *testing.T, err error) bool {
	t.Helper()
	name := "ErrNoAggregateID"
	if m := named.FindStringSubmatch(l.statement); m != nil {
		name = m[1]
	}
	want := map[string]error{
		"ErrNoAggregateID": core.ErrNoAggregateID, "ErrTooManyRows": core.ErrTooManyRows,
		"ErrUntracked": core.ErrUntracked, "ErrNotInstalled": core.ErrNotInstalled,
	}[name]
	switch {
	case strings.Contains(l.statement, "the error of"): // not one of ours
		return err != nil
	case want == nil:
		t.Fatalf("the line names %s, which is not known here", name)
	}
	return errors.Is(err, want)
}

// lines reads the table.
func lines(t *testing.T) (all []line) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(fixture.Root(t), "docs", "rows.md"))
	fixture.NoError(t, err)
	_, part, ok := strings.Cut(string(page), "\n## What is refused\n")
	fixture.Must(t, ok, "docs/rows.md has no part about what is refused")
	for text := range strings.Lines(part) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(text), "|"), "|")
		if len(cells) == 3 && !strings.HasPrefix(cells[0], "---") {
			all = append(all, line{
				strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]),
				strings.TrimSpace(cells[2]),
			})
		}
	}
	fixture.Must(t, len(all) > 1, "docs/rows.md has no table of what is refused")
	return all[1:] // without its head
}

// Test runs the cases of an ORM, of which each line that concerns it must have one.
func Test[E, T any](t *testing.T, orm ORM[E, T], cases []Case[E, T]) {
	t.Helper()
	all := lines(t)
	find := func(words string) int {
		var found []int
		for i, l := range all {
			if strings.Contains(l.statement, words) {
				found = append(found, i)
			}
		}
		fixture.Must(t, len(found) == 1, "%d lines of the table have the words %q", len(found), words)
		return found[0]
	}
	done := map[int]bool{}
	for words := range orm.Lacks {
		done[find(words)] = true
	}
	for _, c := range cases {
		i := find(c.Line)
		fixture.Check(t, all[i].of(orm.Name), "the line %q does not concern %s", all[i].statement, orm.Name)
		done[i] = true
		if c.Open == nil {
			c.Open = orm.Open
		}
		if c.Tx == nil {
			c.Tx = orm.Tx
		}
		t.Run(strings.Trim(c.Line+", "+c.Name, ", "), func(t *testing.T) {
			t.Parallel()
			if c.Long {
				longtest.Mark(t)
			}
			testdb.Every(t, func(t *testing.T, db testdb.DB) { run(t, db, all[i], c) })
		})
	}
	for i, l := range all {
		fixture.Check(t, done[i] || !l.of(orm.Name), "no case runs the line %q", l.statement)
	}
}

func run[E, T any](t *testing.T, db testdb.DB, l line, c Case[E, T]) {
	t.Helper()
	e, plain := c.Open(t, db), db.Open(t)
	if c.Set != nil {
		c.Set(t, e)
	}
	before := contents(t, db, plain)
	var failed error
	commit := c.Tx(t.Context(), e, func(tx T) error {
		failed = c.Do(t.Context(), tx)
		return nil // as if the program ignored the error
	})
	after := contents(t, db, plain)
	switch {
	case errors.Is(failed, errors.ErrUnsupported):
		t.Logf("there is no such statement: %v", failed)
		return
	case !has(l.where, db) || !has(c.On, db):
		fixture.Check(t, failed == nil && commit == nil, "%q is refused on %s: %v, COMMIT: %v", l.statement, db.Name,
			failed, commit)
		return
	}
	fixture.Check(t, l.is(t, failed) || strings.HasPrefix(l.when, "at `COMMIT`"), "%q is not refused on %s: %v",
		l.statement, db.Name, failed)
	late := !strings.HasPrefix(l.when, "before") || c.After != "" && has(c.After, db)
	switch {
	case l.when == "by the database": // PostgreSQL aborts the transaction, SQLite does not
	case late:
		fixture.Check(t, l.is(t, commit), "%q is refused on %s, and COMMIT returns %v", l.statement, db.Name, commit)
	default:
		fixture.Check(t, commit == nil, "%q is refused before the statement on %s, and COMMIT returns %v", l.statement,
			db.Name, commit)
	}
	if !maps.Equal(before, after) {
		t.Errorf("%q is refused on %s, and something was stored", l.statement, db.Name)
	}
}

// contents returns the rows of each table as a text.
func contents(t *testing.T, db testdb.DB, plain *sql.DB) map[string]string {
	t.Helper()
	list := map[core.Dialect]string{
		core.Postgres: "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
		core.MySQL: "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() " +
			"AND table_type = 'BASE TABLE'",
		core.SQLite: "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'",
	}[db.Dialect]
	all := map[string]string{}
	for _, table := range fixture.Query(t, plain, list, func(rows *sql.Rows) (name string, err error) {
		return name, rows.Scan(&name)
	}) {
		rows := fixture.Query(t, plain, "SELECT * FROM "+table, func(rows *sql.Rows) (string, error) {
			columns, err := rows.Columns()
			if err != nil {
				return "", err
			}
			cells, dest := make([]any, len(columns)), make([]any, len(columns))
			for i := range cells {
				dest[i] = &cells[i]
			}
			err = rows.Scan(dest...)
			return fmt.Sprint(cells...), err
		})
		slices.Sort(rows)
		all[table] = strings.Join(rows, "\n")
	}
	return all
}
