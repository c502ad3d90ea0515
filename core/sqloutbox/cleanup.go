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
// first, and those of the last Keep can be jumped over. Rows with other ids are met on the way.
type sweep struct {
	mu    sync.Mutex
	after core.RowID
}

// sweepTime is how long one call of Cleanup goes on. Rows that ended much later than their ids say
// are read in every walk until they are old, so a walk must be able to pass many of them.
const sweepTime = time.Second

// page is what a cleanup found in one part of the primary key.
type page struct {
	deleted, seen int
	last          core.RowID // of the rows seen
}

// Cleanup implements core.Repository. It reads the table in pages of at most limit rows, each in a
// transaction of its own, for about a second, and goes on there in the next call. It stops when it
// has deleted more than half of limit, because the next pages would be small.
func (r *Repository) Cleanup(ctx context.Context, keep time.Duration, limit int) (deleted int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	limit = min(limit, 10*chunkRows)
	end := sweepEnd(ctx)
	if r.partitions != nil {
		return r.partitions.cleanup(ctx, keep, limit, end)
	}
	deleted, _, err = r.sweep.run(ctx, keep, limit, end, r.database.cleanup)
	return deleted, err
}

// readPage is the method cleanup of database.
type readPage func(ctx context.Context, keep time.Duration, after core.RowID, limit int) (page, error)

// run goes on with the walk until end. It reports whether it came to the end of the table.
func (s *sweep) run(ctx context.Context, keep time.Duration, limit int, end time.Time, read readPage,
) (deleted int, whole bool, err error) {
	s.mu.Lock()
	after := s.after
	s.mu.Unlock()
	for more := true; more; more = 2*deleted <= limit && ctx.Err() == nil && time.Now().Before(end) {
		size := limit - deleted
		var p page
		p, err = read(ctx, keep, after, size)
		deleted += p.deleted
		if err != nil {
			break
		}
		if p.seen < size { // the end
			after, whole = core.RowID{}, true
			break
		}
		after = sweepNext(p.last, time.Now(), keep)
	}
	s.mu.Lock()
	s.after = after
	s.mu.Unlock()
	return deleted, whole, err
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
