//go:build clusters

package clusters_test

import (
	"database/sql"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The ledger itself is tried on databases of one node: it balances, and a promise that is broken by
// hand shows.
func TestLedger(t *testing.T) {
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		if db.Dialect == core.SQLite {
			return // it is no cluster, and has one writer at a time
		}
		for name, write := range map[string]way{"sql": withSQL, "gorm": withGORM} {
			t.Run(name, func(t *testing.T) {
				db := db.Another(t)
				open := func(string) (*sql.DB, error) { return sql.OpenDB(db.Connector(t)), nil }
				p := program{
					Dialect:   db.Dialect,
					Open:      open,
					Write:     write,
					Producers: []string{"", ""},
					Relays:    []string{"", ""},
					Hot:       name == "sql",
					Parts:     2,
				}
				p.createTables(t, "")
				l := start(t, p)
				for i := range p.Producers {
					l.AwaitCommits(i, 100)
				}
				v := l.Finish("")
				fixture.Check(
					t,
					v.Committed >= 200 && v.Lost+v.Ghosts+v.Disorder+v.SeqDisorder+v.Lies+v.Half == 0,
					"%+v",
					v,
				)

				pool, err := open("")
				fixture.NoError(t, err)
				defer pool.Close()
				fixture.MustExec(t, pool, "DELETE FROM orders WHERE id = '"+l.copies[0].ID+"'")
				fixture.MustExec(t, pool, "INSERT INTO orders (id, k, n) VALUES ('more', '', 0)")
				l.copies = append(l.copies, copyOf{ID: "late", Key: "key-0", N: 1, KeySeq: 1})
				broken := l.judge(pool)
				fixture.Check(
					t,
					broken.Lost == 1 && broken.Ghosts == 2 && broken.SeqDisorder == 1 && broken.Lies == 1 &&
						broken.Half == 2,
					"%+v",
					broken,
				)
			})
		}
	})
}
