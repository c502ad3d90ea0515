package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Migration is one versioned change of a schema. Each store has a Migration with the same fields.
type Migration struct {
	Version int
	Name    string
	Up      string
	Down    string
}

// Migrations returns the migrations in ascending order of versions, with the names that cfg gives.
func (t *Tables) Migrations(cfg Config) ([]Migration, error) {
	n, err := t.Names(cfg)
	if err != nil {
		return nil, err
	}
	return t.load(n)
}

// load reads the files of a dialect.
func (t *Tables) load(n Names) ([]Migration, error) {
	files, err := sqlkit.Files(t.Files, n.dialect)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Package, err)
	}
	all := make([]Migration, len(files))
	for i, f := range files {
		all[i] = Migration{Version: f.Version, Name: f.Name, Up: n.Expand(f.Up), Down: n.Expand(f.Down)}
	}
	return all, nil
}

func (s *Store) plan() (sqlkit.Plan, error) {
	plan := sqlkit.Plan{Dialect: s.dialect, Schema: s.schema, Table: s.prefix + s.tables.Versions}
	migrations, err := s.tables.load(s.Names)
	for _, m := range migrations {
		plan.Steps = append(plan.Steps, sqlkit.Step{Version: m.Version, Name: m.Name, Up: m.Up})
	}
	return plan, err
}

// Migrate applies the migrations that are missing. Any number of processes may call Migrate at
// once. For a Store on a Transactor the schema must exist.
func (s *Store) Migrate(ctx context.Context) error {
	plan, err := s.plan()
	if err != nil {
		return err
	}
	if s.transactor != nil {
		return s.Wrap("migrate", sqlkit.MigrateTx(ctx, s.transactor, plan))
	}
	return s.Wrap("migrate", sqlkit.Migrate(ctx, s.pool, plan))
}

// Check compares the tables in the database with the tables that the migrations create, and refuses
// a read-only database. Check needs a pool.
func (s *Store) Check(ctx context.Context) error {
	if s.pool == nil {
		return fmt.Errorf("%s: Check needs a *sql.DB: use New", s.tables.Package)
	}
	readOnly, err := sqlkit.ReadOnly(ctx, sqlkit.On{Conn: s.pool}, s.dialect)
	if err != nil {
		return s.Wrap("check", err)
	}
	if readOnly {
		return fmt.Errorf("%w: connect to the primary", s.tables.ErrReadOnly)
	}
	plan, err := s.plan()
	if err != nil {
		return err
	}
	drift, err := sqlkit.Drift(ctx, sqlkit.On{Conn: s.pool}, plan, s.tables.Diagnostic)
	if err != nil {
		return s.Wrap("check", err)
	}
	if len(drift) == 0 {
		return nil
	}
	return fmt.Errorf("%w (%s):\n%w", s.tables.ErrDrift, s.tables.HowToCreate, errors.Join(drift...))
}
