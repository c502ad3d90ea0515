package repository_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// If the limit of a claim has no room for a whole run of each key, the claim takes rows of about as
// many keys as can be published at once, and of at least 64. If there are fewer keys, it takes more
// rows of each.
func TestClaimTakesKeysForAllAtOnce(t *testing.T) {
	t.Parallel()
	const keys, run, limit = 240, 4, 250
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		var rows []core.NewRow
		for i := range keys * run {
			rows = append(rows, sqlRow(t, "topic", fmt.Sprint("key", i%keys)))
		}
		commitRows(t, pool, repo, core.InsertRequest{Rows: rows})
		for i, c := range []struct{ atOnce, least, most int }{
			{0, 64, 100}, {32, 64, 100}, {1000, keys, keys},
		} {
			req := core.ClaimRequest{
				Node: "node", ClaimNo: int64(i + 1), Lease: time.Minute, MaxLease: time.Hour, Limit: limit,
				MaxBytes: 1 << 20, Run: 50, Keys: 1000, AtOnce: c.atOnce,
			}
			got, _, err := repo.ClaimHeads(t.Context(), req, core.KeyID{})
			fixture.NoError(t, err)
			seen := map[core.KeyID]bool{}
			var claims []core.ClaimRef
			for _, r := range got {
				seen[r.KeyID] = true
				claims = append(claims, core.ClaimRef{ID: r.ID, ClaimNo: r.ClaimNo})
			}
			if len(seen) < c.least || len(seen) > c.most || len(got) < limit*9/10 {
				t.Errorf("%d at once: %d rows of %d keys, want %d to %d keys", c.atOnce, len(got), len(seen),
					c.least, c.most)
			}
			if _, err := repo.Release(t.Context(), "node", claims); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A key that is empty or whose head is leased costs no more where dead rows are skipped.
func TestClaimKeyLooksOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool, rec := fixture.OpenRecorded(t, db)
		repo := fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: db.Dialect})
		leased := sqlRow(t, "topic", "leased")
		commitRows(t, pool, repo, core.InsertRequest{Rows: []core.NewRow{leased}})
		req := core.ClaimRequest{
			Node: "node", ClaimNo: 1, Lease: time.Minute, MaxLease: time.Hour, Limit: 10, MaxBytes: 1 << 20, Run: 5,
			Keys: 1000,
		}
		claim := func(key core.KeyID, skipDead bool) (rows, statements int) {
			req.SkipDead = skipDead
			rec.Start()
			got, err := repo.ClaimKey(t.Context(), req, key)
			calls := rec.Stop()
			fixture.NoError(t, err)
			return len(got), len(calls)
		}
		if n, _ := claim(leased.KeyID, false); n != 1 {
			t.Fatalf("claimed %d rows", n)
		}
		for name, key := range map[string]core.KeyID{
			"empty": core.NewKeyID("", "topic", "none"), "leased": leased.KeyID,
		} {
			_, want := claim(key, false)
			n, statements := claim(key, true)
			fixture.Check(t, n == 0 && statements == want && want > 0, "%s: %d rows, %d statements, want %d", name, n,
				statements, want)
		}
	})
}
