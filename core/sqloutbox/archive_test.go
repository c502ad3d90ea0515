package sqloutbox

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// archivedTable is a table of rows that are all old.
type archivedTable struct {
	database
	left []core.RowID
}

func newArchivedTable(n int) *archivedTable {
	t := &archivedTable{left: make([]core.RowID, n)}
	for i := range t.left {
		binary.BigEndian.PutUint64(t.left[i][8:], uint64(i+1))
	}
	return t
}

func (t *archivedTable) archivable(_ context.Context, _ keeps, after core.RowID, limit int,
) (old []archivable, p page, err error) {
	for _, id := range t.left {
		if slices.Compare(id[:], after[:]) > 0 && p.seen < limit {
			old = append(old, archivable{id, 1})
			p.seen, p.last = p.seen+1, id
		}
	}
	return old, p, nil
}

func (t *archivedTable) archive(ctx context.Context, _ keeps, ids []core.RowID, hook archiver) (int, error) {
	rows := make([]core.ArchivedEvent, len(ids))
	for i, id := range ids {
		rows[i].ID = id
	}
	if err := hook(ctx, rows); err != nil {
		return 0, err
	}
	t.left = slices.DeleteFunc(t.left, func(id core.RowID) bool { return slices.Contains(ids, id) })
	return len(ids), nil
}

// A call whose archive is slow ends in the middle of a page and says that there is more. The next
// call goes on there.
func TestArchiveTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &Repository{database: newArchivedTable(1000)}
		var first core.RowID
		req := core.CleanupRequest{Limit: 10_000, Archive: func(_ context.Context, rows []core.ArchivedEvent) error {
			first = rows[0].ID
			time.Sleep(400 * time.Millisecond)
			return nil
		}}
		total, calls := 0, 0
		for more := true; more; calls++ {
			start := time.Now()
			n, again, err := repo.Cleanup(t.Context(), req)
			if took := time.Since(start); err != nil || took > sweepTime+400*time.Millisecond {
				t.Fatalf("call %d took %s, %v", calls, took, err)
			}
			if want := uint64(total + n - core.ArchiveRows + 1); binary.BigEndian.Uint64(first[8:]) != want {
				t.Errorf("call %d ended with the rows from %s, want those from %d", calls, first, want)
			}
			total += n
			more = again
		}
		if total != 1000 || calls != 4 { // three parts in each call, and one in the last
			t.Errorf("%d rows in %d calls, want 1000 in 4", total, calls)
		}
	})
}

// The walk does not go past rows that could not be archived.
func TestArchiveComesBack(t *testing.T) {
	table := newArchivedTable(50)
	repo := &Repository{database: table}
	broken := errors.New("the disk is full")
	for call := range 3 {
		n, more, err := repo.Cleanup(t.Context(), core.CleanupRequest{
			Limit: 10,
			Archive: func(_ context.Context, rows []core.ArchivedEvent) error {
				if rows[0].ID != table.left[0] || len(rows) != 10 {
					t.Errorf("call %d began with %s and %d rows, want the first 10", call, rows[0].ID, len(rows))
				}
				return broken
			},
		})
		if n != 0 || more || !errors.Is(err, broken) {
			t.Errorf("call %d deleted %d rows, more %t, %v", call, n, more, err)
		}
	}
}
