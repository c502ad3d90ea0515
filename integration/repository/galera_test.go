package repository_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

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
					if (len(got) == 1 && strings.Contains(got[0].Found, "Galera")) != c.warns || !c.warns && got != nil {
						t.Errorf("%s, %+v: %+v", name, c, got)
					}
				}
			}
		}
	})
}
