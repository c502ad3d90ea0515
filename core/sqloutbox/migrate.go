package sqloutbox

import (
	"context"
	"embed"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

//go:embed schema
var schema embed.FS

// Migration is one versioned change of the schema, as SQL that can be copied into goose,
// golang-migrate, dbmate, Atlas or Flyway.
type Migration struct {
	Version int
	Name    string
	Up      string // statements; each ends with a semicolon at the end of a line
	Down    string // undoes Up, with all data
}

// Migrations returns the migrations of the schema in ascending order of versions, with the table
// names of cfg. cfg.Dialect is required. All statements may be repeated.
func Migrations(cfg Config) ([]Migration, error) {
	n, err := cfg.names()
	if err != nil {
		return nil, err
	}
	return load(n.dialect.name, n.expand)
}

// load reads the files of a dialect.
func load(d core.Dialect, expand func(string) string) ([]Migration, error) {
	files, err := sqlkit.Files(schema, d)
	if err != nil {
		return nil, fmt.Errorf("sqloutbox: %w", err)
	}
	all := make([]Migration, len(files))
	for i, f := range files {
		all[i] = Migration{Version: f.Version, Name: f.Name, Up: expand(f.Up), Down: expand(f.Down)}
	}
	return all, nil
}

// howToCreate is the advice in errors about missing tables. It lists every way, because a
// Repository does not know its caller.
const howToCreate = "create or upgrade the tables with AutoCreate of gormoutbox.Config, bunoutbox.Config, " +
	"entoutbox.Config or sqloutbox.OpenConfig, with Migrate of the " +
	"sqloutbox.Repository, with the files that sqloutbox.Migrations returns, or in Ent's migration with package " +
	"entschema"

// Migrate creates the tables or brings them up to date: it applies the migrations that the table
// <prefix>migration does not name yet. Any number of processes may call it at once. It needs the
// right to create tables. If an application must not have that right, apply the SQL of Migrations
// with the tool of your choice.
func (r *Repository) Migrate(ctx context.Context) error {
	plan, err := r.plan()
	if err != nil {
		return err
	}
	if err := sqlkit.Migrate(ctx, r.db, plan); err != nil {
		return fmt.Errorf("sqloutbox: migrate: %w", err)
	}
	r.home.learnNow(ctx, r.own, r.db)
	return nil
}

func (r *Repository) plan() (sqlkit.Plan, error) {
	plan := sqlkit.Plan{Dialect: r.dialect, Schema: r.names.schema, Table: r.names.prefix + "migration"}
	migrations, err := load(r.dialect, r.names.expand)
	for _, m := range migrations {
		plan.Steps = append(plan.Steps, sqlkit.Step{Version: m.Version, Name: m.Name, Up: m.Up})
	}
	return plan, err
}
