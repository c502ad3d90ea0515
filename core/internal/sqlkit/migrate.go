package sqlkit

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// Step is one versioned change of a schema. Its SQL is plain text; each statement ends with a
// semicolon at the end of a line. Steps may be repeated (IF NOT EXISTS), because MySQL commits each
// DDL statement by itself.
type Step struct {
	Version int
	Name    string
	Up      string
}

// Plan says which steps Migrate applies and where it records them.
type Plan struct {
	Dialect core.Dialect
	Schema  string // checked; empty: the connection's default
	Table   string // checked, not quoted: the table of versions
	Steps   []Step
}

func (p Plan) table() string { return Qualify(p.Dialect, p.Schema, p.Table) }

// newest is the newest version that the program knows.
func (p Plan) newest() (v int) {
	for _, step := range p.Steps {
		v = max(v, step.Version)
	}
	return v
}

// Migrate applies the missing steps, and none to tables of a newer version than it knows. Any number
// of processes may call Migrate at once, for any tables: of those of one schema one process applies
// its steps, and the others wait.
func Migrate(ctx context.Context, db *sql.DB, p Plan) error {
	return of(p.Dialect).migrate(ctx, db, p)
}

// MigrateIn is Migrate for a pool of PostgreSQL that is not one of database/sql. inTx runs a
// function in a transaction of its own.
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
		if v > p.newest() { // a newer program made these tables: what is missing here, it has left out or undone
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
