package sqloutbox

import (
	"context"
	"embed"
	"errors"
	"fmt"

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
	Down    string // undoes Up; that of version 1 removes the tables with all data
}

// Migrations returns the migrations of the schema in ascending order of versions, with the table
// names of cfg. cfg.Dialect is required. All statements may be repeated. Those of one text belong
// together: run them on one connection, as these tools do.
func Migrations(cfg Config) ([]Migration, error) {
	n, err := cfg.names()
	if err != nil {
		return nil, err
	}
	return load(n)
}

// load reads the files of a dialect.
func load(n names) ([]Migration, error) {
	files, err := sqlkit.Files(schema, n.dialect.name)
	if err != nil {
		return nil, fmt.Errorf("sqloutbox: %w", err)
	}
	all := make([]Migration, len(files))
	for i, f := range files {
		if n.partitioned && i == 0 {
			f.Up, _ = partitioned(n, f.Up)
		}
		all[i] = Migration{Version: f.Version, Name: f.Name, Up: n.expand(f.Up), Down: n.expand(f.Down)}
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
	if err := r.migrate(ctx, plan); err != nil {
		return fmt.Errorf("sqloutbox: migrate: %w", err)
	}
	if r.partitions != nil {
		drift, err := r.layout(ctx)
		if err == nil && len(drift) > 0 {
			err = fmt.Errorf("%w: %w", ErrDrift, errors.Join(drift...))
		}
		if err == nil {
			err = r.partitions.first(ctx)
		}
		if err != nil {
			return fmt.Errorf("sqloutbox: migrate: %w", err)
		}
	}
	r.home.learnNow(ctx, r.own, r.each())
	return nil
}

func (r *Repository) plan() (sqlkit.Plan, error) {
	plan := sqlkit.Plan{Dialect: r.dialect, Schema: r.names.schema, Table: r.names.prefix + "migration"}
	migrations, err := load(r.names)
	for _, m := range migrations {
		plan.Steps = append(plan.Steps, sqlkit.Step{Version: m.Version, Name: m.Name, Up: m.Up})
	}
	return plan, err
}
