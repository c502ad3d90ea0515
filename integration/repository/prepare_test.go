package repository_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Every database understands every statement that a store can send to it, also statements that
// other tests reach only by chance.
func TestEveryStatementPrepares(t *testing.T) {
	t.Parallel()
	for pkg, store := range map[string]struct {
		// migrate makes the tables. Their names are those of the golden files.
		migrate func(t *testing.T, pool *sql.DB, dialect core.Dialect, schema, prefix string)
		rest    map[string]string
	}{
		"core/sqloutbox": {func(t *testing.T, pool *sql.DB, dialect core.Dialect, schema, _ string) {
			fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: dialect, Schema: schema})
		}, nil},
		"core/ops/sqlops": {func(t *testing.T, pool *sql.DB, dialect core.Dialect, schema, _ string) {
			fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: dialect, Schema: schema})
		}, nil},
		"core/inbox/sqlinbox": {func(t *testing.T, pool *sql.DB, dialect core.Dialect, schema, prefix string) {
			fixture.NewInboxStore(t, pool, sqlinbox.Config{Dialect: dialect, Schema: schema, Prefix: prefix})
		}, map[string]string{
			"dead": " LIMIT ?", "desk_rows": " ORDER BY received_at, handler, tenant_id, event_id LIMIT ?",
		}},
		"core/once/sqlonce": {func(t *testing.T, pool *sql.DB, dialect core.Dialect, schema, prefix string) {
			fixture.NewOnceStore(t, pool, sqlonce.Config{Dialect: dialect, Schema: schema, Prefix: prefix})
		}, map[string]string{
			"desk_from":  " ORDER BY expires_at DESC, scope DESC, tenant DESC, id DESC LIMIT ?",
			"desk_named": " ORDER BY expires_at DESC, scope DESC, tenant DESC, id DESC LIMIT ?",
		}},
		"core/once/command/sqlcommand": {func(t *testing.T, pool *sql.DB, dialect core.Dialect, schema, prefix string) {
			fixture.NewEffectStore(t, pool, sqlcommand.Config{Dialect: dialect, Schema: schema, Prefix: prefix})
		}, map[string]string{"list": "0", "remove": "(?)"}},
	} {
		t.Run(pkg, func(t *testing.T) {
			t.Parallel()
			testdb.Every(t, func(t *testing.T, db testdb.DB) {
				schema := map[core.Dialect]string{core.Postgres: "app"}[db.Dialect]
				prefix := map[core.Dialect]string{core.MySQL: "my_"}[db.Dialect]
				pool := db.Open(t)
				store.migrate(t, pool, db.Dialect, schema, prefix)
				file := string(db.Dialect)
				if pkg == "core/sqloutbox" { // MariaDB and MySQL have files of their own
					file = strings.TrimSuffix(db.Name, "18")
				}
				fixture.Prepares(t, db, pool, pkg, file, store.rest)
			})
		})
	}
}
