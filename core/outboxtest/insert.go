package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// Insert implements core.Repository.
func (r *Repository) Insert(ctx context.Context, tx core.Tx, req core.InsertRequest) ([]core.Inserted, error) {
	if len(req.Rows) == 0 {
		return nil, nil
	}
	t, err := r.txOf(tx)
	if err != nil {
		if _, own := tx.(interface{ fake() *Tx }); !own && tx.Tracked() {
			return r.insertElsewhere(ctx, tx, req)
		}
		return nil, err
	}
	if err := t.Err(); err != nil {
		return nil, err
	}
	inserted, err := t.insert(ctx, req)
	t.tracker.Observe("INSERT INTO outbox_event", err)
	return inserted, err
}

// insertElsewhere inserts rows for a transaction of another package, such as an ORM's. The rows
// exist once that transaction has committed. insertElsewhere waits for no locks.
func (r *Repository) insertElsewhere(ctx context.Context, tx core.Tx, req core.InsertRequest) ([]core.Inserted, error) {
	t, err := r.Begin(ctx)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	places, err := t.write(req, r.now())
	r.mu.Unlock()
	if err != nil {
		_ = t.Rollback()
		return nil, err
	}
	tx.OnOutcome(func(o core.Outcome) {
		if o == core.Committed {
			_ = t.Commit()
		} else {
			_ = t.Rollback()
		}
	})
	return places, nil
}

// insert is one statement: it takes effect as a whole or not at all.
func (t *Tx) insert(ctx context.Context, req core.InsertRequest) (places []core.Inserted, err error) {
	r := t.repo
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	state, mark := t.state, len(t.undo)
	r.mu.Unlock()
	if state != txOpen {
		return nil, fmt.Errorf("%w: %w", core.ErrTxAborted, databaseError(r.dialect, errTxAborted))
	}
	err = t.lockLanes(ctx, req.Rows)
	for i := 0; err == nil && i < len(req.Rows); i++ { // another transaction may be about to insert the same row
		err = r.lock(ctx, t, lockKey{event: true, id: req.Rows[i].ID})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		places, err = t.write(req, r.now())
	}
	if err != nil {
		t.undoTo(mark)
		if r.dialect == core.Postgres || !errors.Is(err, core.ErrDuplicateEvent) {
			t.abort()
		}
		return nil, err
	}
	return places, nil
}

// lockLanes locks each key row once, in ascending order of the keys.
func (t *Tx) lockLanes(ctx context.Context, rows []core.NewRow) error {
	var lanes []core.KeyID
	for _, row := range rows {
		if !row.KeyID.IsZero() {
			lanes = append(lanes, row.KeyID)
		}
	}
	slices.SortFunc(lanes, compareLanes)
	for _, l := range slices.Compact(lanes) {
		if err := t.repo.lock(ctx, t, lockKey{id: l}); err != nil {
			return err
		}
	}
	return nil
}

// write inserts the rows. The caller holds the mutex, and the transaction holds all locks it needs.
func (t *Tx) write(req core.InsertRequest, now time.Time) ([]core.Inserted, error) {
	places := make([]core.Inserted, len(req.Rows))
	for i, n := range req.Rows {
		if t.exists(n.ID) {
			return nil, fmt.Errorf("%w: event %s, topic %q: %w", core.ErrDuplicateEvent, n.Event.ID, n.Event.Topic,
				databaseError(t.repo.dialect, errUnique))
		}
		row := &Row{
			ID: n.ID, Event: cloneEvent(n.Event), KeyID: n.KeyID, CreatedAt: now, AvailableAt: now.Add(n.Event.Delay),
		}
		if n.Hot {
			row.ClaimNo, row.ClaimedBy, row.LeaseUntil = req.ClaimNo, req.Node, now.Add(req.Lease)
		}
		if n.ByLog {
			row.byLog(now)
		}
		if !n.KeyID.IsZero() {
			places[i] = t.next(n.KeyID, n.ID, now)
			row.KeySeq = places[i].KeySeq
		}
		count := len(t.inserted)
		t.inserted = append(t.inserted, row)
		t.undo = append(t.undo, func() { t.inserted = t.inserted[:count] })
	}
	return places, nil
}

// exists reports whether the transaction sees a row with that id.
func (t *Tx) exists(id core.RowID) bool {
	if _, ok := t.repo.table.rows[id]; ok {
		return true
	}
	return slices.ContainsFunc(t.inserted, func(r *Row) bool { return r.ID == id })
}

// next is the upsert of the key row. It takes the next number of the key for the row with that id.
func (t *Tx) next(lane core.KeyID, id core.RowID, now time.Time) core.Inserted {
	r := t.repo
	key, ok := r.keys[lane]
	if !ok {
		// The number begins at the clock. So a key that was collected gets a higher number than it
		// ever had, even if the clock stands still.
		seq := max(now.UnixMicro(), r.floor+1)
		r.keys[lane] = &keyRow{lastSeq: seq, firstSeq: seq, lastID: id, usedAt: now, timeline: r.timeline}
		t.undo = append(t.undo, func() { delete(r.keys, lane) })
		return core.Inserted{KeySeq: seq, Opened: true}
	}
	before := *key
	t.undo = append(t.undo, func() { *key = before })
	if key.timeline != r.timeline {
		key.lastSeq, key.timeline = max(key.lastSeq, now.UnixMicro()), r.timeline
	}
	key.lastSeq++
	key.lastID = id
	key.usedAt = now
	return core.Inserted{KeySeq: key.lastSeq, Prev: before.lastID}
}
