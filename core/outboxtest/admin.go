package outboxtest

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// Backlog implements core.Repository.
func (r *Repository) Backlog(ctx context.Context, limit int) (core.Backlog, error) {
	if err := r.begin(ctx); err != nil {
		return core.Backlog{}, err
	}
	defer r.mu.Unlock()
	b := core.Backlog{Limit: int64(limit)}
	now, blocked, keyed, ready := r.now(), map[core.KeyID]bool{}, 0, 0
	r.table.pending(func(row *Row) {
		inKey := !row.KeyID.IsZero() && !row.leftKey
		if inKey {
			keyed++
		}
		switch {
		case row.Status == StatusDead && b.Dead < b.Limit:
			b.Dead++
			if inKey {
				blocked[row.KeyID] = true
			}
		case row.Status == StatusDead, inKey && keyed > limit:
		default:
			if !inKey {
				ready++
			}
			b.Pending++
			b.OldestAge = max(b.OldestAge, now.Sub(row.CreatedAt))
		}
	})
	b.More = max(keyed, ready, int(b.Dead)) >= limit || b.Pending > b.Limit
	b.Pending, b.BlockedKeys = min(b.Pending, b.Limit), int64(len(blocked))
	return b, nil
}

// TypeBacklog implements core.Repository.
func (r *Repository) TypeBacklog(ctx context.Context, limit int) (all []core.TypeBacklog, err error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	types, seen := map[string]*core.TypeBacklog{}, [3]int{}
	r.table.pending(func(row *Row) {
		kind := 0 // without a key
		switch {
		case row.Status == StatusDead:
			kind = 2
		case !row.KeyID.IsZero():
			kind = 1
		}
		if seen[kind]++; seen[kind] > limit {
			return
		}
		t := types[row.Event.Type]
		if t == nil {
			t = &core.TypeBacklog{Type: row.Event.Type}
			types[row.Event.Type] = t
		}
		switch row.Status {
		case StatusDead:
			t.Dead++
		case StatusRetry:
			t.Retry++
		default:
			t.New++
		}
	})
	for _, t := range types {
		all = append(all, *t)
	}
	slices.SortFunc(all, func(a, b core.TypeBacklog) int {
		return cmp.Or(cmp.Compare(b.New+b.Retry+b.Dead, a.New+a.Retry+a.Dead), cmp.Compare(a.Type, b.Type))
	})
	return all[:min(len(all), 1000)], nil
}

// ListDead implements core.Repository.
func (r *Repository) ListDead(ctx context.Context, q core.DeadQuery) ([]core.DeadEvent, error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	limit := q.Limit
	if limit <= 0 {
		limit = 100
	}
	var dead []*Row
	r.table.pending(func(row *Row) {
		if row.Status == StatusDead && matches(q.Topic, row.Event.Topic) && matches(q.Type, row.Event.Type) &&
			matches(q.TenantID, row.Event.TenantID) && compareIDs(row.ID, q.After) > 0 {
			dead = append(dead, row)
		}
	})
	slices.SortFunc(dead, byID)
	dead = dead[:min(len(dead), limit, 1000)]
	events := make([]core.DeadEvent, len(dead))
	for i, row := range dead {
		events[i] = core.DeadEvent{
			ID: row.ID, Event: cloneEvent(row.Event), KeySeq: row.KeySeq, Attempts: row.Attempts,
			LostClaims: row.LostClaims, ErrorCode: row.ErrorCode, Error: row.Error, CreatedAt: row.CreatedAt,
		}
	}
	return events, nil
}

func matches(want, is string) bool { return want == "" || want == is }

// Redrive implements core.Repository.
func (r *Repository) Redrive(ctx context.Context, req core.AdminRequest) (int, error) {
	tx, err := r.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	r.mu.Lock()
	var rows, overtaken []core.NewRow
	for _, id := range req.IDs {
		row := r.table.rows[id]
		if row == nil || row.Status != StatusDead || r.changed(row, req.Seen) {
			continue
		}
		rows = append(rows, core.NewRow{ID: id, KeyID: row.KeyID})
		if row.overtaken(req) {
			overtaken = append(overtaken, rows[len(rows)-1])
		}
	}
	r.mu.Unlock()
	if err := tx.lockLanes(ctx, overtaken); err != nil { // as every writer of a key does
		return 0, err
	}
	changed, err := r.redrive(tx, rows, req)
	if err != nil {
		return 0, err
	}
	return changed, tx.Commit()
}

// overtaken reports whether the key of a dead row may have gone on. Such a row comes back at the
// end of its key, under a new id.
func (r *Row) overtaken(req core.AdminRequest) bool {
	return !r.KeyID.IsZero() && (req.SkipDead || r.leftKey)
}

func (r *Repository) reopen(row *Row, now time.Time) {
	r.table.change(row, func() {
		row.Status, row.Attempts, row.LostClaims, row.AvailableAt = StatusRetry, 0, 0, now
		row.ClaimedBy, row.ClaimNo, row.LeaseUntil = "", 0, time.Time{}
	})
}

// redrive changes the rows that are still dead after their key rows were locked.
func (r *Repository) redrive(tx *Tx, rows []core.NewRow, req core.AdminRequest) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, changed := r.now(), 0
	for _, n := range rows {
		row := r.table.rows[n.ID]
		if row == nil || row.Status != StatusDead || r.changed(row, req.Seen) {
			continue
		}
		changed++
		r.audit("redrive", req, row, now)
		if !row.overtaken(req) {
			r.reopen(row, now)
			continue
		}
		id, err := core.FreshRowID(row.Event.ID)
		if err != nil {
			return 0, err
		}
		r.audits[len(r.audits)-1].newID = id
		if err := tx.copyRow(row, id, row.KeyID, now); err != nil {
			return 0, err
		}
		copied := tx.inserted[len(tx.inserted)-1]
		copied.ReplayOf, copied.failures = row.ReplayOf, row.failures
		r.discard(row, now)
	}
	return changed, nil
}

// copyRow inserts a copy of a row at the end of a key. Its header has the first number of the
// event.
func (t *Tx) copyRow(row *Row, id core.RowID, key core.KeyID, now time.Time) error {
	event := cloneEvent(row.Event)
	event.Delay = 0
	if _, copied := event.Headers[core.HeaderFirstKeySeq]; !copied && !key.IsZero() {
		if event.Headers == nil {
			event.Headers = map[string]string{}
		}
		event.Headers[core.HeaderFirstKeySeq] = strconv.FormatInt(row.KeySeq, 10)
	}
	byLog := row.Status == StatusDone && row.ClaimedBy == core.LogReader
	copied := core.NewRow{ID: id, Event: event, KeyID: key, ByLog: byLog}
	_, err := t.write(core.InsertRequest{Rows: []core.NewRow{copied}}, now)
	return err
}

// Discard implements core.Repository.
func (r *Repository) Discard(ctx context.Context, req core.AdminRequest) (int, error) {
	if err := r.begin(ctx); err != nil {
		return 0, err
	}
	defer r.mu.Unlock()
	now, changed := r.now(), 0
	for _, id := range req.IDs {
		row := r.table.rows[id]
		if row == nil || row.Status != StatusDead && (!row.Status.open() || row.leased(now, 0) && !req.Force) ||
			r.changed(row, req.Seen) {
			continue
		}
		r.discard(row, now)
		r.audit("discard", req, row, now)
		changed++
	}
	return changed, nil
}

// changed reports whether a row is not as somebody has seen it.
func (r *Repository) changed(row *Row, seen map[core.RowID]core.Sight) bool {
	return len(ops.Unchanged([]ops.Event{r.opsEvent(row)}, seen)) == 0
}

func (r *Repository) discard(row *Row, now time.Time) {
	r.table.change(row, func() {
		row.Status, row.DoneAt = StatusDiscarded, now
		row.ClaimedBy, row.ClaimNo, row.LeaseUntil = "", 0, time.Time{}
	})
}

func (r *Repository) audit(action string, req core.AdminRequest, row *Row, now time.Time) {
	r.audits = append(r.audits, Audit{
		RowID: row.ID, Action: action, Actor: req.Actor, Reason: req.Reason, At: now, EventID: row.Event.ID,
		Topic: row.Event.Topic,
	})
}
