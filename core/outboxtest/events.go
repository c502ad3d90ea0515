package outboxtest

import (
	"context"
	"maps"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

var _ ops.Store = (*Repository)(nil)

// ScanEvents implements ops.Store. Rows are in the order of their ids, and for Scan.KeyID in the
// order of the key, in one page.
func (r *Repository) ScanEvents(ctx context.Context, s ops.Scan) (ops.Scanned, error) {
	if err := r.begin(ctx); err != nil {
		return ops.Scanned{}, err
	}
	defer r.mu.Unlock()
	rows := slices.SortedFunc(maps.Values(r.table.rows), byID)
	if !s.KeyID.IsZero() {
		rows = slices.DeleteFunc(slices.Clone(r.table.lanes[s.KeyID]), func(row *Row) bool {
			return row.KeySeq <= s.AfterSeq || s.BeforeSeq > 0 && row.KeySeq >= s.BeforeSeq
		})
	}
	if !s.ID.IsZero() {
		rows = slices.DeleteFunc(rows, func(row *Row) bool { return row.ID != s.ID })
	}
	if s.Newest {
		slices.Reverse(rows)
	}
	if s.After != "" {
		after, err := core.ParseRowID(s.After)
		if err != nil {
			return ops.Scanned{}, err
		}
		rows = slices.DeleteFunc(rows, func(row *Row) bool {
			c := compareIDs(row.ID, after)
			return c == 0 || (c > 0) == s.Newest
		})
	}
	var found ops.Scanned
	for i, row := range rows {
		if i == s.Look {
			found.Next, found.Truncated = rows[i-1].ID.String(), true
			break
		}
		e := r.opsEvent(row)
		if !s.Match(&e) {
			continue
		}
		if len(found.Events) == s.Limit {
			found.Next = found.Events[s.Limit-1].ID.String()
			break
		}
		found.Events = append(found.Events, e)
	}
	return found, nil
}

// opsEvent returns a row as people see it. The caller holds r.mu.
func (r *Repository) opsEvent(row *Row) ops.Event {
	e := ops.Event{
		ID:               row.ID,
		EventID:          row.Event.ID,
		Type:             row.Event.Type,
		SchemaVersion:    row.Event.SchemaVersion,
		Topic:            row.Event.Topic,
		TenantID:         row.Event.TenantID,
		Key:              row.Event.Key,
		KeySeq:           row.KeySeq,
		AggregateType:    row.Event.AggregateType,
		AggregateID:      row.Event.AggregateID,
		AggregateVersion: row.Event.AggregateVersion,
		KeyID:            row.KeyID,
		Status:           ops.Status(row.Status),
		Attempts:         row.Attempts,
		LostClaims:       row.LostClaims,
		ClaimedBy:        row.ClaimedBy,
		LeaseUntil:       row.LeaseUntil,
		AvailableAt:      row.AvailableAt,
		OccurredAt:       row.Event.OccurredAt,
		CreatedAt:        row.CreatedAt,
		DoneAt:           row.DoneAt,
		ErrorCode:        row.ErrorCode,
		Error:            row.Error,
		ErrorGroup:       row.ErrorGroup,
		Receipt:          row.Receipt,
		Path: core.PathOf(
			row.ClaimNo,
		),
		CausationID: row.Event.Headers[core.HeaderCausationID],
		ReplayOf:    row.ReplayOf,
		ReadAt:      r.now(),
	}
	if row.leftKey {
		e.KeyID = core.KeyID{}
	}
	return e
}

// ReadContent implements ops.Store.
func (r *Repository) ReadContent(ctx context.Context, id core.RowID) (c ops.Content, found bool, err error) {
	if err := r.begin(ctx); err != nil {
		return c, false, err
	}
	defer r.mu.Unlock()
	row, found := r.table.rows[id]
	if found {
		e := cloneEvent(row.Event)
		c = ops.Content{ContentType: e.ContentType, Headers: e.Headers, Payload: e.Payload}
	}
	return c, found, nil
}

// ReadFailures implements ops.Store.
func (r *Repository) ReadFailures(ctx context.Context, id core.RowID) ([]ops.Attempt, error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	if row, ok := r.table.rows[id]; ok {
		return outboxsql.Attempts(row.failures), nil
	}
	return nil, nil
}

// Reveal implements ops.Store.
func (r *Repository) Reveal(ctx context.Context, id core.RowID, req core.AdminRequest,
) (c ops.Content, found bool, err error) {
	if c, found, err = r.ReadContent(ctx, id); err != nil || !found {
		return c, found, err
	}
	if err := r.begin(ctx); err != nil {
		return ops.Content{}, false, err
	}
	defer r.mu.Unlock()
	row := r.table.rows[id]
	if row == nil { // deleted meanwhile
		return ops.Content{}, false, nil
	}
	r.audit(ops.AuditReveal, req, row, r.now())
	return c, true, nil
}

// ReadDestinations implements ops.Store.
func (r *Repository) ReadDestinations(ctx context.Context, limit int) (all []ops.Destination, more bool, err error) {
	if err := r.begin(ctx); err != nil {
		return nil, false, err
	}
	defer r.mu.Unlock()
	now, byTopic, looked := r.now(), map[string]*ops.Destination{}, 0
	for _, row := range r.table.rows {
		e := r.opsEvent(row)
		if !e.Status.Open() && e.Status != ops.StatusDead {
			continue
		}
		if looked++; looked > limit {
			more = true
			break
		}
		d := byTopic[e.Topic]
		if d == nil {
			d = &ops.Destination{Topic: e.Topic}
			byTopic[e.Topic] = d
		}
		if e.Status == ops.StatusDead {
			d.Dead++
			continue
		}
		d.Pending++
		d.Oldest = max(d.Oldest, now.Sub(e.CreatedAt))
		switch leased := e.LeaseUntil.After(now); {
		case leased:
			d.Leased++
		case !e.AvailableAt.After(now):
			d.Due++
		}
		if e.Status == ops.StatusRetry {
			d.Retrying++
		}
	}
	all = []ops.Destination{}
	for _, topic := range slices.Sorted(maps.Keys(byTopic)) {
		all = append(all, *byTopic[topic])
	}
	return all, more, nil
}

// ReadAudit implements ops.Store.
func (r *Repository) ReadAudit(ctx context.Context, id core.RowID) (entries []ops.AuditEntry, err error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	for _, a := range r.audits {
		if a.RowID == id {
			entries = append(entries, ops.AuditEntry{
				At: a.At, Action: a.Action, Actor: a.Actor, Reason: a.Reason, NewID: a.newID,
				Detail: a.detail,
			})
		}
	}
	return entries, nil
}
