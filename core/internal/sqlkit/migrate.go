package sqlkit

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// Plan has the steps that Migrate applies and the table where it records them. Steps may be
// repeated (IF NOT EXISTS), because MySQL commits each DDL statement on its own.
type Plan struct {
	Dialect core.Dialect
	Schema  string // checked; empty: the connection's default
	Table   string // checked, not quoted: the table of versions
	Steps   []core.Migration
}

func (p Plan) table() string { return Qualify(p.Dialect, p.Schema, p.Table) }

// newest is the newest version of the steps.
func (p Plan) newest() (v int) {
	for _, step := range p.Steps {
		v = max(v, step.Version)
	}
	return v
}

// Migrate applies the missing steps, unless the tables have a newer version than its steps. Any
// number of processes may call Migrate at once, for any tables: within one schema one process
// applies its steps at a time, and the others wait.
func Migrate(ctx context.Context, db *sql.DB, p Plan) error {
	return of(p.Dialect).migrate(ctx, db, p)
}

// MigrateIn is Migrate for a pool of PostgreSQL outside database/sql. inTx runs a function in a
// transaction of its own.
func MigrateIn(ctx context.Context, inTx func(ctx context.Context, fn func(q Querier) error) error, p Plan) error {
	return Retry(ctx, func() error {
		return inTx(ctx, func(q Querier) error { return postgres{}.migrateIn(ctx, onQuerier{q}, p) })
	})
}

func (p Plan) apply(ctx context.Context, s session) error {
	err := s.exec(ctx, "CREATE TABLE IF NOT EXISTS "+p.table()+" (version INTEGER NOT NULL PRIMARY KEY, name "+
		"VARCHAR(100) NOT NULL, "+
		"applied_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)"+of(p.Dialect).tableOptions())
	if err != nil {
		return err
	}
	versions, err := s.ints(ctx, "SELECT version FROM "+p.table())
	if err != nil {
		return err
	}
	applied := map[int]bool{}
	for _, v := range versions {
		if v > p.newest() { // a newer program made these tables: it has left out or undone the missing steps
			return nil
		}
		applied[v] = true
	}
	for _, step := range p.Steps {
		if applied[step.Version] {
			continue
		}
		for _, stmt := range Statements(step.Up) {
			if err := s.exec(ctx, stmt); err != nil {
				return fmt.Errorf("migration %04d_%s: %w", step.Version, step.Name, err)
			}
		}
		insert := Rebind(p.Dialect, "INSERT INTO "+p.table()+" (version, name) VALUES (?, ?)")
		err := s.exec(ctx, insert, step.Version, step.Name)
		if err != nil && !sqlerr.UniqueViolation(err) { // on MySQL a process with a Transactor takes no lock
			return fmt.Errorf("migration %04d_%s: %w", step.Version, step.Name, err)
		}
	}
	return nil
}

// Statements splits a file into its statements, without comment lines. Some drivers take only one
// statement at a time.
func Statements(file string) []string {
	var all []string
	var b strings.Builder
	for line := range strings.Lines(file) {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "--") || trimmed == "" {
			continue
		}
		if end, ok := strings.CutSuffix(trimmed, ";"); ok {
			b.WriteString(end)
			all = append(all, b.String())
			b.Reset()
			continue
		}
		b.WriteString(line)
	}
	if s := strings.TrimSpace(b.String()); s != "" {
		all = append(all, s)
	}
	return all
}

// session runs the statements of a migration.
type session interface {
	exec(ctx context.Context, query string, args ...any) error
	ints(ctx context.Context, query string, args ...any) ([]int, error)
}

// onQuerier is a session on a transaction, a connection or a pool.
type onQuerier struct{ Querier }

func (o onQuerier) exec(ctx context.Context, query string, args ...any) error {
	_, err := o.Exec(ctx, query, args...)
	return err
}

func (o onQuerier) ints(ctx context.Context, query string, args ...any) ([]int, error) {
	return Rows(ctx, o, query, args, func(rows core.Rows) (n int, err error) {
		err = rows.Scan(&n)
		return n, err
	})
}

// MigrateTx does the same as Migrate in transactions of t, for callers without a pool. The schema
// of p must exist.
func MigrateTx(ctx context.Context, t core.Transactor, p Plan) error {
	return Retry(ctx, func() error { return of(p.Dialect).migrateTx(ctx, t, p) })
}

// Files reads the changes of a dialect in ascending order of versions, from the folder
// schema/<dialect>: 0001_init.up.sql and 0001_init.down.sql.
func Files(fsys fs.ReadFileFS, d core.Dialect) ([]core.Migration, error) {
	dir := path.Join("schema", string(d))
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return nil, err
	}
	var all []core.Migration
	for _, e := range entries { // sorted by name
		base, up := strings.CutSuffix(e.Name(), ".up.sql")
		if !up {
			continue
		}
		number, name, _ := strings.Cut(base, "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("schema file %s: %w", e.Name(), err)
		}
		f := core.Migration{Version: version, Name: name}
		for suffix, dest := range map[string]*string{".up.sql": &f.Up, ".down.sql": &f.Down} {
			text, err := fsys.ReadFile(path.Join(dir, base+suffix))
			if err != nil {
				return nil, err
			}
			*dest = string(text)
		}
		all = append(all, f)
	}
	return all, nil
}
