package sqlonce

import (
	"context"
	"embed"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

//go:embed schema
var schema embed.FS

var (
	// ErrDrift is wrapped by the error of Check when the tables in the database are not those of
	// this version.
	ErrDrift = errors.New("sqlonce: schema drift")
	// ErrReadOnly is wrapped by the error of Check when the database accepts no writes: a standby,
	// or a server set read_only.
	ErrReadOnly = errors.New("sqlonce: database is read-only")
)

// Migration is one versioned change of the schema, as SQL that can be copied into goose,
// golang-migrate, dbmate, Atlas or Flyway.
type Migration struct {
	Version int
	Name    string
	Up      string // statements; each ends with a semicolon at the end of a line
	Down    string // undoes Up, with all data
}

// Migrations returns the migrations of the schema in ascending order of versions, with the names
// that cfg gives to the tables. cfg.Dialect is required. All statements may be repeated.
func Migrations(cfg Config) ([]Migration, error) {
	n, err := cfg.names()
	if err != nil {
		return nil, err
	}
	return load(n.dialect, n.expand)
}

// load reads the files of a dialect.
func load(d core.Dialect, expand func(string) string) ([]Migration, error) {
	files, err := sqlkit.Files(schema, d)
	if err != nil {
		return nil, fmt.Errorf("sqlonce: %w", err)
	}
	all := make([]Migration, len(files))
	for i, f := range files {
		all[i] = Migration{Version: f.Version, Name: f.Name, Up: expand(f.Up), Down: expand(f.Down)}
	}
	return all, nil
}

func (s *Store) plan() (sqlkit.Plan, error) {
	plan := sqlkit.Plan{Dialect: s.dialect, Schema: s.names.schema, Table: s.names.prefix + "once_migration"}
	migrations, err := load(s.dialect, s.names.expand)
	for _, m := range migrations {
		plan.Steps = append(plan.Steps, sqlkit.Step{Version: m.Version, Name: m.Name, Up: m.Up})
	}
	return plan, err
}

// howToCreate is what errors about missing tables say: every way there is, because a Store does not
// know who uses it.
const howToCreate = "create or upgrade the tables of inbox, idempotency keys and effects with Migrate of the " +
	"sqlonce.Store, with the files that sqlonce.Migrations returns, " +
	"or, for inbox.Middleware and inbox.SQL, with the option inbox.CreateTables"

// Migrate creates the tables or brings them up to date: it applies the migrations that the table
// <prefix>once_migration does not name yet. Any number of processes may call it at once. It needs
// the right to create tables; where an application must not have it, apply what Migrations returns
// with the tool of your choice.
func (s *Store) Migrate(ctx context.Context) error {
	plan, err := s.plan()
	if err != nil {
		return err
	}
	return wrap("migrate", sqlkit.Migrate(ctx, s.db, plan))
}

// Check compares the tables in the database with what this version needs and names everything that
// is missing or different. It also refuses a read-only database. Call it at start where Migrate is
// not called.
func (s *Store) Check(ctx context.Context) error {
	readOnly, err := sqlkit.ReadOnly(ctx, s.db, s.dialect)
	if err != nil {
		return wrap("check", err)
	}
	if readOnly {
		return fmt.Errorf("%w: connect to the primary", ErrReadOnly)
	}
	plan, err := s.plan()
	if err != nil {
		return err
	}
	drift, err := sqlkit.Drift(ctx, s.db, plan, diagnostic)
	if err != nil {
		return wrap("check", err)
	}
	if len(drift) == 0 {
		return nil
	}
	return fmt.Errorf("%w (%s):\n%w", ErrDrift, howToCreate, errors.Join(drift...))
}

// diagnostic are columns of text that is never compared.
var diagnostic = map[string]bool{
	"last_error": true, "last_error_code": true, "headers": true, "result_type": true, "result_meta": true,
	"external_ref": true, "content_type": true,
}
