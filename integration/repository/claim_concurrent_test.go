package repository_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Concurrent claimers never get a row that another one holds or that is done, while they mark some
// of their rows and release others.
func TestConcurrentClaimers(t *testing.T) {
	t.Parallel()
	const claimers, rowCount = 8, 200
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		var rows []core.NewRow
		for i := range rowCount {
			key := ""
			if i%2 == 1 {
				key = fmt.Sprint("key", i%20)
			}
			rows = append(rows, sqlRow(t, "topic", key))
		}
		commitRows(t, pool, repo, core.InsertRequest{Rows: rows})
		var mu sync.Mutex
		holder, done := map[core.RowID]string{}, 0
		lastSeq := map[core.KeyID]int64{}
		finished := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return done == rowCount
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		failed := make(chan error, claimers)
		for c := range claimers {
			wg.Go(func() {
				node := fmt.Sprint("node-", c)
				req := core.ClaimRequest{
					Node: node, Lease: time.Minute, MaxLease: time.Hour, Limit: 7,
					MaxBytes: 1 << 20, Run: 3, Keys: 100,
				}
				for round := 0; !finished(); round++ {
					req.ClaimNo++
					got, err := repo.ClaimUnordered(ctx, req)
					if err == nil {
						var ordered []core.Claimed
						ordered, _, err = repo.ClaimHeads(ctx, req, core.KeyID{})
						got = append(got, ordered...)
					}
					if err != nil {
						failed <- err
						return
					}
					var acked []core.Done
					var released []core.ClaimRef
					mu.Lock()
					for _, r := range got {
						if other, taken := holder[r.ID]; taken {
							failed <- fmt.Errorf("row %s was claimed by %s while %s held it", r.ID, node, other)
						}
						holder[r.ID] = node
						if r.KeySeq < lastSeq[r.KeyID] && !r.KeyID.IsZero() {
							failed <- fmt.Errorf("key %x: %d was claimed after %d was done", r.KeyID, r.KeySeq,
								lastSeq[r.KeyID])
						}
					}
					mu.Unlock()
					stop := map[core.KeyID]bool{}
					for i, r := range got {
						if (round+i)%3 == 0 || stop[r.KeyID] {
							stop[r.KeyID] = !r.KeyID.IsZero()
							released = append(released, core.ClaimRef{ID: r.ID, ClaimNo: r.ClaimNo})
							mu.Lock()
							delete(holder, r.ID)
							mu.Unlock()
						} else {
							acked = append(acked, core.Done{ID: r.ID})
							mu.Lock()
							lastSeq[r.KeyID] = max(lastSeq[r.KeyID], r.KeySeq)
							mu.Unlock()
						}
					}
					n, err := repo.MarkDone(ctx, acked, c%2 == 0)
					for errors.As(err, new(*core.LockedError)) { // a claim may lock the rows for a moment
						var more int
						more, err = repo.MarkDone(ctx, acked, c%2 == 0)
						n += more
					}
					if err == nil && n != len(acked) {
						err = fmt.Errorf("%d of %d marks changed a row", n, len(acked))
					}
					mu.Lock()
					done += n
					mu.Unlock()
					if err == nil {
						_, err = repo.Release(ctx, node, released)
						for errors.As(err, new(*core.LockedError)) {
							_, err = repo.Release(ctx, node, released)
						}
					}
					if err != nil {
						failed <- err
						return
					}
				}
			})
		}
		wg.Wait()
		close(failed)
		for err := range failed {
			t.Error(err)
		}
	})
}

// A key is collected while a producer uses it. The producer's event has the key id that the
// producer was told, and the numbers of that key grow.
func TestCollectKeysRace(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		turns := make(chan struct{}, 1) // without pauses the collector would always be SQLite's one writer
		var wg sync.WaitGroup
		failed := make(chan error, 1)
		wg.Go(func() {
			for range turns {
				_, _, err := repo.CollectKeys(ctx, -time.Second, core.KeyID{}, 100) // every key counts as idle
				if err != nil {
					failed <- err
					return
				}
			}
		})
		var last int64
		lives := 0
		defer wg.Wait()
		defer close(turns)
		for n := 0; n < 200 || lives < 2; n++ { // until a key was collected and opened again
			select {
			case turns <- struct{}{}:
			case err := <-failed:
				t.Fatal(err)
			default:
			}
			row := sqlRow(t, "topic", "k")
			places := commitRows(t, pool, repo, core.InsertRequest{Rows: []core.NewRow{row}})
			// The clock of SQLite counts milliseconds, so a key is too young to be collected.
			if places[0].KeySeq <= last && db.Dialect != core.SQLite {
				t.Fatalf("number %d after %d", places[0].KeySeq, last)
			}
			last = places[0].KeySeq
			if places[0].Opened {
				lives++
			} else if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM outbox_event WHERE status = 0"); n == 0 {
				t.Fatal("the numbers of the key go on, but its event is gone")
			}
			if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM outbox_key"); n != 1 {
				t.Fatal("the key of an open event was collected")
			}
			if _, err := repo.MarkDone(ctx, []core.Done{{ID: row.ID}}, false); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case err := <-failed:
			t.Fatal(err)
		default:
		}
	})
}
