package sqloutbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// finished is a table of finished rows.
type finished struct {
	database
	rows []finishedRow // by id
	page time.Duration // time that one page takes
}

func cleanupOf(keep time.Duration, limit int) core.CleanupRequest {
	return core.CleanupRequest{Keep: keep, KeepDiscarded: keep, Limit: limit}
}

type finishedRow struct {
	id core.RowID
	at time.Time
}

func (f *finished) add(id core.RowID) {
	i, _ := slices.BinarySearchFunc(f.rows, id, compareRow)
	f.rows = slices.Insert(f.rows, i, finishedRow{id, time.Now()})
}

func compareRow(r finishedRow, id core.RowID) int { return bytes.Compare(r.id[:], id[:]) }

func (f *finished) cleanup(_ context.Context, keep keeps, after core.RowID, limit int) (p page, err error) {
	time.Sleep(f.page)
	start, found := slices.BinarySearchFunc(f.rows, after, compareRow)
	if found {
		start++
	}
	end := min(start+limit, len(f.rows))
	if p.seen = end - start; p.seen > 0 {
		p.last = f.rows[end-1].id
	}
	old := func(r finishedRow) bool { return time.Since(r.at) > keep.done }
	kept := slices.DeleteFunc(slices.Clone(f.rows[start:end]), old)
	p.deleted = p.seen - len(kept)
	f.rows = slices.Replace(f.rows, start, end, kept...)
	return p, nil
}

// A cleanup that runs every minute keeps up with events that come in faster than it reads rows
// which are too young.
func TestCleanupKeepsUp(t *testing.T) {
	const limit, perSecond = 5, 3 // a call reads some 100 rows
	for _, keep := range []time.Duration{10 * time.Minute, 130 * time.Minute} {
		for _, ahead := range []time.Duration{0, 20 * time.Minute} {
			t.Run(fmt.Sprint(keep, " clock ", ahead), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					random := rand.New(rand.NewPCG(1, 2))
					table := &finished{page: sweepTime / 20}
					repo := &Repository{database: table}
					end := time.Now().Add(keep + 2*time.Hour)
					for time.Now().Before(end) {
						for range 60 {
							time.Sleep(time.Second)
							for range perSecond {
								var id core.RowID
								binary.BigEndian.PutUint64(id[:], uint64(time.Now().Add(ahead).UnixMilli())<<16)
								binary.BigEndian.PutUint64(id[8:], random.Uint64())
								table.add(id)
							}
						}
						for n := limit; 2*n >= limit; {
							var err error
							if n, _, err = repo.Cleanup(t.Context(), cleanupOf(keep, limit)); err != nil {
								t.Fatal(err)
							}
						}
					}
					old := 0
					for _, r := range table.rows {
						if time.Since(r.at) > keep+30*time.Minute {
							old++
						}
					}
					if old > limit {
						t.Errorf("%d rows stayed for half an hour longer than %s", old, keep)
					}
				})
			})
		}
	}
}

// lateTable has n rows that ended just now, one for each millisecond from three hours ago on. The
// row behind them ended an hour ago.
func lateTable(n int, page time.Duration) *finished {
	table := &finished{page: page, rows: make([]finishedRow, n+1)}
	now := time.Now()
	first := now.Add(-3 * time.Hour).UnixMilli()
	for i := range table.rows {
		binary.BigEndian.PutUint64(table.rows[i].id[:], uint64(first+int64(i))<<16)
		table.rows[i].at = now
	}
	table.rows[n].at = now.Add(-time.Hour)
	return table
}

// An event that is published long after it was written leaves a row with an old id and a recent
// end. A walk has to pass such rows. A call passes as many as it can read in its time, and no more.
func TestCleanupPassesRowsOfLateEvents(t *testing.T) {
	const limit, rows = 10, 30_000
	for _, c := range []struct {
		name    string
		page    time.Duration
		deleted []int // by each call
	}{
		{"a fast server", time.Microsecond, []int{1}},
		{"a slow server", time.Millisecond, []int{0, 0, 0, 1}}, // a thousand pages in each call
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				repo := &Repository{database: lateTable(rows, c.page)}
				for call, want := range c.deleted {
					start := time.Now()
					if n, _, err := repo.Cleanup(t.Context(), cleanupOf(time.Minute, limit)); n != want || err != nil {
						t.Fatalf("call %d deleted %d rows, want %d; %v", call, n, want, err)
					}
					if took := time.Since(start); took > sweepTime+c.page {
						t.Fatalf("call %d took %s, want at most %s", call, took, sweepTime+c.page)
					}
				}
			})
		})
	}
}

// A call ends well before its context does.
func TestCleanupLeavesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &Repository{database: lateTable(3000, 10*time.Millisecond)}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		start := time.Now()
		if n, _, err := repo.Cleanup(ctx, cleanupOf(time.Minute, 10)); n != 0 || err != nil {
			t.Fatalf("deleted %d rows, %v", n, err)
		}
		if took := time.Since(start); took != 100*time.Millisecond {
			t.Errorf("the call took %s of 200ms, want half of it", took)
		}
	})
}

// One row of ten is old. A call that went on to its limit would read many pages for the last ones.
func TestCleanupStopsBeforePagesAreTiny(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := lateTable(100_000, time.Microsecond)
		for i := range table.rows {
			if i%10 == 0 {
				table.rows[i].at = time.Now().Add(-time.Hour)
			}
		}
		repo := &Repository{database: table}
		start := time.Now()
		n, _, err := repo.Cleanup(t.Context(), cleanupOf(time.Minute, 1000))
		if pages := time.Since(start) / table.page; n <= 500 || n > 1000 || pages > 10 || err != nil {
			t.Errorf("deleted %d rows in %d pages, want more than half of 1000 in at most 10; %v", n, pages, err)
		}
	})
}

// A call whose pages are half full of rows to delete never deletes more than its limit.
func TestCleanupAsksForWhatIsLeft(t *testing.T) {
	var half halfOld
	var s sweep
	c := cleaning{keep: keeps{time.Hour, time.Hour}, end: time.Now().Add(time.Hour)}
	deleted, cut, whole, err := s.run(t.Context(), c, 8, &half)
	if err != nil || cut || whole || deleted != 6 || !slices.Equal(half.sizes, []int{8, 4}) {
		t.Errorf("deleted %d of 8 in pages of %v, at the end %t, %v", deleted, half.sizes, whole, err)
	}
}

// halfOld is a table of which each page is half full of old rows.
type halfOld struct {
	database
	sizes []int // number of rows of each page
}

func (h *halfOld) cleanup(_ context.Context, _ keeps, after core.RowID, limit int) (page, error) {
	h.sizes = append(h.sizes, limit)
	after[0]++
	return page{deleted: (limit + 1) / 2, seen: limit, last: after}, nil
}
