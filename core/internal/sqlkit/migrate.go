package sqlkit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// Step is one versioned change of a schema. Its SQL is plain text; each statement ends with a
// semicolon at the end of a line. Steps may be repeated (IF NOT EXISTS), because MySQL commits each
// DDL statement by itself.
type Step struct {
	Version int
	Name    string
	Up      string
}

// Plan says what Migrate does and where it keeps the record.
type Plan struct {
	Dialect core.Dialect
	Schema  string // checked; empty: the connection's default
	Table   string // checked, not quoted: the table of versions
	Steps   []Step
}

func (p Plan) table() string {
	t := Quote(p.Dialect, p.Table)
	if p.Schema != "" {
		t = Quote(p.Dialect, p.Schema) + "." + t
	}
	return t
}

// Migrate applies the steps that are missing. Any number of processes may call it at once: one
// works, the others wait and find nothing left to do.
func Migrate(ctx context.Context, db *sql.DB, p Plan) error {
	switch p.Dialect {
	case core.Postgres:
		return InTx(ctx, db, p.Dialect, func(c Conn) error {
			// A transaction-level lock also works behind a pooler.
			if err := exec(ctx, c, "SELECT pg_advisory_xact_lock($1)", p.lock()); err != nil {
				return err
			}
			if err := p.createSchema(ctx, c); err != nil {
				return err
			}
			return p.apply(ctx, onConn{c})
		})
	case core.MySQL:
		return p.migrateMySQL(ctx, db)
	default:
		return InTx(ctx, db, p.Dialect, func(c Conn) error { return p.apply(ctx, onConn{c}) })
	}
}

// lock returns the number of the advisory lock: the same for all processes that migrate the same
// tables.
func (p Plan) lock() int64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "ormoutbox migrate %s.%s", p.Schema, p.Table)
	return int64(h.Sum64())
}

func (p Plan) createSchema(ctx context.Context, c Conn) error {
	if p.Schema == "" {
		return nil
	}
	// CREATE SCHEMA IF NOT EXISTS needs the right to create one even where it exists.
	found, err := ints(ctx, c, "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1", p.Schema)
	if err != nil || len(found) > 0 {
		return err
	}
	return exec(ctx, c, "CREATE SCHEMA "+Quote(p.Dialect, p.Schema))
}

func (p Plan) migrateMySQL(ctx context.Context, db *sql.DB) (err error) {
	conn, err := db.Conn(ctx) // GET_LOCK belongs to a connection
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	name := fmt.Sprintf("ormoutbox_%016x", uint64(p.lock()))
	got, err := ints(ctx, conn, "SELECT COALESCE(GET_LOCK(CONCAT(LEFT(COALESCE(DATABASE(), ''), 30), ?), 60), 0)", name)
	if err != nil {
		return err
	}
	if len(got) == 0 || got[0] != 1 {
		return errors.New("another process has been migrating these tables for a minute")
	}
	defer func() {
		_, rerr := conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK(CONCAT(LEFT(COALESCE(DATABASE(), "+
			"''), 30), ?))", name)
		err = errors.Join(err, rerr)
	}()
	return p.apply(ctx, onConn{conn})
}

func (p Plan) apply(ctx context.Context, s session) error {
	engine := ""
	if p.Dialect == core.MySQL {
		engine = " ENGINE = InnoDB"
	}
	err := s.exec(ctx, "CREATE TABLE IF NOT EXISTS "+p.table()+" (version INTEGER NOT NULL PRIMARY KEY, name "+
		"VARCHAR(100) NOT NULL, "+
		"applied_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)"+engine)
	if err != nil {
		return err
	}
	versions, err := s.ints(ctx, "SELECT version FROM "+p.table())
	if err != nil {
		return err
	}
	applied := map[int]bool{}
	for _, v := range versions {
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
		if err := s.exec(ctx, insert, step.Version, step.Name); err != nil {
			return fmt.Errorf("migration %04d_%s: %w", step.Version, step.Name, err)
		}
	}
	return nil
}

// Statements splits a file into its statements, without comment lines. Not every driver takes
// several at once.
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

func exec(ctx context.Context, c Conn, query string, args ...any) error {
	_, err := c.ExecContext(ctx, query, args...)
	return err
}

func ints(ctx context.Context, c Conn, query string, args ...any) ([]int, error) {
	rows, err := c.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []int
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, errors.Join(rows.Err(), rows.Close())
}
