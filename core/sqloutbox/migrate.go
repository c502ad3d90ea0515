package sqloutbox

import (
	"context"
	"embed"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

//go:embed schema
var schema embed.FS

// Migration is one versioned change of the schema, as SQL that can be copied into goose, golang-migrate, dbmate, Atlas or Flyway.
type Migration struct {
	Version int
	Name    string
	Up      string // statements; each ends with a semicolon at the end of a line
	Down    string // undoes Up, with all data
}

// Migrations returns the migrations of the schema in ascending order of versions, with the names that cfg gives to the tables.
// cfg.Dialect is required. All statements may be repeated.
func Migrations(cfg Config) ([]Migration, error) {
	n, err := cfg.names()
	if err != nil {
		return nil, err
	}
	dir := path.Join("schema", string(n.dialect))
	files, err := schema.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []Migration
	for _, f := range files { // sorted by name: 0001_init.down.sql, 0001_init.up.sql, ...
		base, up := strings.CutSuffix(f.Name(), ".up.sql")
		if !up {
			continue
		}
		number, name, _ := strings.Cut(base, "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("sqloutbox: schema file %s: %w", f.Name(), err)
		}
		m := Migration{Version: version, Name: name}
		for suffix, dest := range map[string]*string{".up.sql": &m.Up, ".down.sql": &m.Down} {
			text, err := schema.ReadFile(path.Join(dir, base+suffix))
			if err != nil {
				return nil, err
			}
			*dest = n.expand(string(text))
		}
		all = append(all, m)
	}
	return all, nil
}

// Migrate creates the tables or brings them up to date: it applies the migrations that the table <prefix>migration does not
// name yet. Any number of processes may call it at once. It needs the right to create tables; where an application must not
// have it, apply what Migrations returns with the tool of your choice.
func (r *Repository) Migrate(ctx context.Context) error {
	migrations, err := Migrations(Config{Dialect: r.dialect, Schema: r.names.schema, Prefix: r.names.prefix})
	if err != nil {
		return err
	}
	plan := sqlkit.Plan{Dialect: r.dialect, Schema: r.names.schema, Table: r.names.prefix + "migration"}
	for _, m := range migrations {
		plan.Steps = append(plan.Steps, sqlkit.Step{Version: m.Version, Name: m.Name, Up: m.Up})
	}
	if err := sqlkit.Migrate(ctx, r.db, plan); err != nil {
		return fmt.Errorf("sqloutbox: migrate: %w", err)
	}
	return nil
}
