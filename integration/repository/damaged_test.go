package repository_test

import (
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Columns of SQLite accept values of every type. A row with a wrong value becomes dead, and the
// relay goes on.
func TestDamagedRowsOnSQLite(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	pool, repo := openRepository(t, db)
	for _, change := range []string{"headers = 'no json'", "schema_version = 'abc'", "occurred_at = 'yesterday'"} {
		bad, good := sqlRow(t, "a", ""), sqlRow(t, "a", "")
		insertHot(t, pool, repo, db.Dialect, bad, good)
		if n, err := repo.Release(t.Context(), "n",
			[]core.ClaimRef{{ID: bad.ID, ClaimNo: 1}, {ID: good.ID, ClaimNo: 1}}); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		if _, err := pool.ExecContext(t.Context(), "UPDATE outbox_event SET "+change+" WHERE id = ?",
			bad.ID[:]); err != nil {
			t.Fatal(err)
		}
		pub := &outboxtest.Publisher{}
		ob, err := core.New(core.Config{Repository: repo, Publisher: pub})
		fixture.NoError(t, err)
		fixture.NoError(t, ob.Drain(t.Context()))
		if got := pub.Accepted(); len(got) != 1 || got[0].RowID != good.ID {
			t.Errorf("%s: %d events arrived", change, len(got))
		}
		dead, err := ob.ListDead(t.Context(), core.DeadQuery{Limit: 10})
		if err != nil || len(dead) != 1 || dead[0].ID != bad.ID || dead[0].ErrorCode != "undecodable" ||
			dead[0].Error == "" {
			t.Errorf("%s: %+v, %v", change, dead, err)
		}
		if _, err := repo.MarkDone(t.Context(), []core.Done{{ID: bad.ID}}, true); err != nil {
			t.Fatal(err)
		}
		if _, err := repo.Cleanup(t.Context(), -time.Hour, 10); err != nil {
			t.Fatal(err)
		}
	}
}
