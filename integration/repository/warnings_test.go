package repository_test

import (
	"context"
	"database/sql"
	"net/url"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Policies of PostgreSQL hide events from a relay, which publishes the others and says nothing.
func TestWarningsOfRowSecurity(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		owner := db.Open(t)
		cfg := sqloutbox.Config{Dialect: core.Postgres}
		repo, err := sqloutbox.New(owner, cfg)
		fixture.NoError(t, err)
		none := func(r *sqloutbox.Repository) {
			t.Helper()
			got, err := r.Warnings(t.Context())
			fixture.NoError(t, err)
			fixture.Check(t, len(got) == 0, "%+v", got)
		}
		none(repo) // there are no tables
		fixture.NoError(t, repo.Migrate(t.Context()))
		u, err := url.Parse(db.DSN)
		fixture.NoError(t, err)
		role := strings.TrimPrefix(u.Path, "/") // a name of its own on the server
		fixture.MustExec(t, owner, "CREATE ROLE "+role+" LOGIN PASSWORD 'x'")
		t.Cleanup(func() {
			for _, q := range []string{"DROP OWNED BY ", "DROP ROLE "} {
				_, _ = owner.ExecContext(context.Background(), q+role)
			}
		})
		fixture.MustExec(t, owner, "GRANT ALL ON ALL TABLES IN SCHEMA public TO "+role)
		u.User = url.UserPassword(role, "x")
		db.DSN = u.String()
		relay, err := sqloutbox.New(db.Open(t), cfg)
		fixture.NoError(t, err)
		none(relay)
		fixture.MustExec(t, owner, "ALTER TABLE outbox_event ENABLE ROW LEVEL SECURITY")
		none(repo) // the owner sees all
		got, err := relay.Warnings(t.Context())
		fixture.NoError(t, err)
		fixture.Check(t, len(got) == 1 && strings.Contains(got[0].Found, `rows of "outbox_event" from`), "%+v", got)
	})
}

// A node of a Galera cluster may end a transaction in silence while it executes a prepared
// statement. Here the answer about the cluster is not that of the server.
func TestWarningsOfGalera(t *testing.T) {
	t.Parallel()
	testdb.MariaDBAndMySQL(t, func(t *testing.T, db testdb.DB) {
		for _, c := range []struct {
			answer string // "": the server's own
			texts  bool   // the driver sends no prepared statements
			warns  bool
		}{
			{answer: "SELECT 'wsrep_on', 'ON'", warns: true},
			{answer: "SELECT 'wsrep_on', 'ON'", texts: true},
			{answer: "SELECT 'wsrep_on', 'OFF'"},
			{},
		} {
			node := db
			if c.answer != "" {
				node = fixture.Rewrite(t, db, "SHOW SESSION VARIABLES LIKE 'wsrep_on'", c.answer)
			}
			if c.texts {
				node.DSN += "&interpolateParams=true"
			}
			for name, pool := range map[string]*sql.DB{
				"plain":     node.Open(t),
				"connector": sql.OpenDB(sqltx.Connector(node.Connector(t), core.MySQL)),
			} {
				defer pool.Close()
				repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: core.MySQL})
				fixture.NoError(t, err)
				for range 3 { // a connection may keep what it has prepared
					got, err := repo.Warnings(t.Context())
					fixture.NoError(t, err)
					galera := len(got) == 1 && strings.Contains(got[0].Found, "Galera")
					if galera != c.warns || !c.warns && got != nil {
						t.Errorf("%s, %+v: %+v", name, c, got)
					}
				}
			}
		}
	})
}
