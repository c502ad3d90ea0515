package sqloutbox

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

// Migrations returns the migrations of the schema in ascending order of versions, with the table
// names of cfg. cfg.Dialect is required. All statements may be repeated. Those of one text belong
// together: run them on one connection, as these tools do.
func Migrations(cfg Config) ([]core.Migration, error) {
	n, err := cfg.names()
	if err != nil {
		return nil, err
	}
	return load(n)
}

// load reads the files of a dialect.
func load(n names) ([]core.Migration, error) {
	all, err := sqlkit.Files(schema, n.dialect)
	if err != nil {
		return nil, fmt.Errorf("sqloutbox: %w", err)
	}
	for i := range all {
		m := &all[i]
		if n.partitioned && i == 0 {
			m.Up, _ = partitioned(n, m.Up)
		}
		m.Up, m.Down = n.expand(m.Up), n.expand(m.Down)
	}
	return all, nil
}

// Migrate creates the tables or brings them up to date: it applies the migrations that the table
// <prefix>migration does not name yet. Any number of processes may call it at once. It needs the
// right to create tables. If an application must not have that right, apply the SQL of Migrations
// with the tool of your choice.
func (r *Repository) Migrate(ctx context.Context) error {
	if err := r.checkServer(ctx); err != nil {
		return err
	}
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
			err = fmt.Errorf("%w: %w", core.ErrNoTables, errors.Join(drift...))
		}
		if err == nil {
			err = r.partitions.first(ctx)
		}
		if err != nil {
			return fmt.Errorf("sqloutbox: migrate: %w", err)
		}
	}
	r.home.learnNow(ctx, r.each())
	return nil
}

func (r *Repository) plan() (sqlkit.Plan, error) {
	steps, err := load(r.names)
	return sqlkit.Plan{
		Dialect: r.dialect, Schema: r.names.schema, Table: r.names.prefix + "migration", Steps: steps,
	}, err
}
