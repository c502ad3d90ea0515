package contracts_test

import (
	"crypto/sha256"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
)

// columns asks a database for its columns: table, name, type, whether NULL is allowed, and how the
// value is made if the database makes it.
var columns = map[core.Dialect]string{
	core.Postgres: `SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,
		CASE WHEN a.attidentity <> '' THEN 'identity' WHEN a.attgenerated <> '' THEN 'generated' ELSE '' END
		FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
		WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND a.attnum > 0
		AND NOT a.attisdropped ORDER BY c.relname, a.attnum`,
	core.MySQL: `SELECT table_name, column_name, column_type, is_nullable = 'YES', lower(extra)
		FROM information_schema.columns WHERE table_schema = database() ORDER BY table_name, ordinal_position`,
	core.SQLite: `SELECT m.name, c.name, c.type, c."notnull" = 0, CASE WHEN c.hidden > 1 THEN 'generated' ELSE '' END
		FROM sqlite_master m, pragma_table_xinfo(m.name) c WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'
		ORDER BY m.name, c.cid`,
}

// The tables of the outbox, the inbox, the keys and the effects, as their migrations make them.
func TestTables(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		outbox, err := sqloutbox.New(pool, sqloutbox.Config{})
		fixture.NoError(t, err)
		fixture.NoError(t, outbox.Migrate(t.Context()))
		fixture.NewInboxStore(t, pool, sqlinbox.Config{})
		fixture.NewOnceStore(t, pool, sqlonce.Config{})
		fixture.NewEffectStore(t, pool, sqlcommand.Config{})
		if db.Dialect == core.Postgres {
			makeTableOfSlots(t, pool, db)
		}
		var p page
		last := ""
		for _, c := range fixture.Query(t, pool, columns[db.Dialect], func(r *sql.Rows) (c [5]string, err error) {
			var null bool
			err = r.Scan(&c[0], &c[1], &c[2], &null, &c[4])
			if c[3] = "not null"; null {
				c[3] = "null"
			}
			return c, err
		}) {
			if c[0] != last {
				last = c[0]
				p.section(last)
			}
			p.field(c[1], strings.TrimSpace(strings.Join(c[2:], " ")))
		}
		compare(t, "tables-"+strings.TrimSuffix(db.Name, "18"), p.String())
	})
}

// makeTableOfSlots makes the table of walrelay, without its slot.
func makeTableOfSlots(t *testing.T, pool *sql.DB, db testdb.DB) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(db.DSN)
	fixture.NoError(t, err)
	cfg.MaxConns = 4
	native, err := pgxpool.NewWithConfig(t.Context(), cfg)
	fixture.NoError(t, err)
	t.Cleanup(native.Close)
	relay, err := walrelay.New(
		walrelay.Config{Pool: native, Outbox: core.Config{Publisher: &outboxtest.Publisher{}, Relay: relay.Config{}}},
	)
	fixture.NoError(t, err)
	fixture.MustExec(t, pool, relay.Statements()[0])
}

// The migrations have these checksums, by which a migration tool notices that a file was changed.
func TestMigrations(t *testing.T) {
	t.Parallel()
	var p page
	for _, dialect := range []core.Dialect{core.Postgres, core.MySQL, core.SQLite} {
		p.section(string(dialect))
		outbox, err := sqloutbox.Migrations(sqloutbox.Config{Dialect: dialect})
		fixture.NoError(t, err)
		for _, m := range outbox {
			p.migration("outbox", m.Version, m.Name, m.Up, m.Down)
		}
		inbox, err := sqlinbox.Migrations(sqlinbox.Config{Dialect: dialect})
		fixture.NoError(t, err)
		for _, m := range inbox {
			p.migration("inbox", m.Version, m.Name, m.Up, m.Down)
		}
		keys, err := sqlonce.Migrations(sqlonce.Config{Dialect: dialect})
		fixture.NoError(t, err)
		for _, m := range keys {
			p.migration("keys", m.Version, m.Name, m.Up, m.Down)
		}
		effects, err := sqlcommand.Migrations(sqlcommand.Config{Dialect: dialect})
		fixture.NoError(t, err)
		for _, m := range effects {
			p.migration("effects", m.Version, m.Name, m.Up, m.Down)
		}
	}
	compare(t, "migrations", p.String())
}

func (p *page) migration(tables string, version int, name, up, down string) {
	p.field(fmt.Sprintf("%s %04d_%s.up", tables, version, name), fmt.Sprintf("%x", sha256.Sum256([]byte(up))))
	p.field(fmt.Sprintf("%s %04d_%s.down", tables, version, name), fmt.Sprintf("%x", sha256.Sum256([]byte(down))))
}
