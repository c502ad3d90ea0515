package sqloutbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// sweep is where the cleanup goes on. The table has no index on the time when a row ended, because
// each mark would pay for it: the cleanup walks the primary key instead, from call to call. Row ids
// begin with the time of their event if the event has a UUIDv7 or a ULID. So the oldest rows come
// first, and rows of the last Keep can be jumped over. Rows with other ids are met on the way.
type sweep struct {
	mu    sync.Mutex
	after core.RowID
}

// sweepTime is how long one call of Cleanup goes on. Rows that ended much later than the time in
// their ids are read in every walk until they are old, so a walk must be able to pass many of them.
const sweepTime = time.Second

// run goes on with the walk until the end of c. It reports whether a page has old rows that there
// was no time for, and whether it came to the end of the table.
func (s *sweep) run(ctx context.Context, c cleaning, limit int, db sweeper,
) (deleted int, cut, whole bool, err error) {
	s.mu.Lock()
	after := s.after
	s.mu.Unlock()
	for more := true; more; more = 2*deleted <= limit && ctx.Err() == nil && time.Now().Before(c.end) {
		size := limit - deleted
		var p page
		p, err = c.page(ctx, db, after, size)
		deleted += p.deleted
		if err != nil {
			break
		}
		if cut = p.cut; cut {
			after = p.last
			break
		}
		if p.seen < size { // the end
			after, whole = core.RowID{}, true
			break
		}
		after = sweepNext(p.last, time.Now(), c.keep.least())
	}
	s.mu.Lock()
	s.after = after
	s.mu.Unlock()
	return deleted, cut, whole, err
}

// page cleans up one page.
func (c cleaning) page(ctx context.Context, db sweeper, after core.RowID, limit int) (page, error) {
	if c.hook != nil {
		return c.archivePage(ctx, db, after, limit)
	}
	return db.cleanup(ctx, c.keep, after, limit)
}

// sweepEnd returns when a call ends: after sweepTime, or in the middle of the time that ctx leaves,
// so that a page that is slow does not cost the call.
func sweepEnd(ctx context.Context) time.Time {
	budget := sweepTime
	if d, ok := ctx.Deadline(); ok {
		budget = min(budget, time.Until(d)/2)
	}
	return time.Now().Add(budget)
}

// sweepNext returns the id behind which a cleanup goes on after the row with the id last. If that
// id has a time within the retention, all ids with such a time are jumped over: their events are
// too young. Clocks that differ by up to an hour delay the cleanup by as much. Young rows that are
// walked instead would be left behind: when they are old, the walk is further on, and if events
// come in fast, it never comes to the end.
func sweepNext(last core.RowID, now time.Time, keep time.Duration) core.RowID {
	at := time.UnixMilli(int64(binary.BigEndian.Uint64(last[:]) >> 16))
	end := now.Add(time.Hour)
	if at.Before(now.Add(-keep)) || at.After(end) {
		return last
	}
	var next core.RowID
	binary.BigEndian.PutUint64(next[:], uint64(end.UnixMilli())<<16)
	if bytes.Compare(next[:], last[:]) < 0 { // both have the millisecond of end
		return last
	}
	return next
}

// page is what a cleanup found in one part of the primary key.
type page struct {
	deleted, seen int
	last          core.RowID // of the rows seen
	cut           bool       // there was no time for all of them: last is where to go on
}

// keeps is how long rows stay after they ended.
type keeps struct{ done, discarded time.Duration }

// least is the time after which the first rows may go.
func (k keeps) least() time.Duration { return min(k.done, k.discarded) }

// args are the parameters of the condition on a row to be old, in the order of rowwise.
func (k keeps) args() []any { return []any{micros(k.done), micros(k.discarded)} }

// cleaning has the parameters of a call of Cleanup.
type cleaning struct {
	keep keeps
	end  time.Time // when it ends
	hook archiver  // nil: none
}

// archiver is core.CleanupRequest.Archive.
type archiver func(ctx context.Context, rows []core.ArchivedEvent) error

// archivable is a row that is old.
type archivable struct {
	id    core.RowID
	bytes int64 // of its payload
}

// sweeper deletes the old rows of a table, or of a partition.
type sweeper interface {
	// cleanup reads the next limit rows behind the id after, and deletes the old ones.
	cleanup(ctx context.Context, keep keeps, after core.RowID, limit int) (page, error)
	// archivable reads the same rows and returns the old ones. archive gives rows to the hook and
	// deletes them if it returns nil. It leaves out rows that another transaction holds, and rows
	// that are not old.
	archivable(ctx context.Context, keep keeps, after core.RowID, limit int) (old []archivable, found page, err error)
	archive(ctx context.Context, keep keeps, ids []core.RowID, hook archiver) (deleted int, err error)
}

// Cleanup implements core.Repository. It reads the table in pages of at most req.Limit rows, each
// in a transaction of its own, for about a second, and goes on there in the next call. It stops
// when it has deleted more than half of req.Limit, because the next pages would be small. On
// PostgreSQL, MariaDB and MySQL the rows that req.Archive gets are locked until they are deleted,
// and a row that is locked already is left for the next walk.
func (r *Repository) Cleanup(ctx context.Context, req core.CleanupRequest) (deleted int, more bool, err error) {
	limit := min(req.Limit, 10*chunkRows)
	if limit <= 0 {
		return 0, false, nil
	}
	c := cleaning{keep: keeps{done: req.Keep, discarded: req.KeepDiscarded}, end: sweepEnd(ctx), hook: req.Archive}
	if r.partitions != nil {
		deleted, more, err = r.partitions.cleanup(ctx, c, limit)
	} else {
		deleted, more, _, err = r.sweep.run(ctx, c, limit, r.database)
	}
	return deleted, more || 2*deleted >= limit, err
}
