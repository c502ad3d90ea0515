package repository_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
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
