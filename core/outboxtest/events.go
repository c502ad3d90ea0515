package outboxtest

import (
	"context"
	"maps"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

var _ ops.Store = (*Repository)(nil)

// ScanEvents implements ops.Store. The order is that of the row ids, and for Scan.KeyID that of the
// key, of which there is one page.
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
		ID: row.ID, EventID: row.Event.ID, Type: row.Event.Type, SchemaVersion: row.Event.SchemaVersion,
		Topic: row.Event.Topic, TenantID: row.Event.TenantID, Key: row.Event.Key, KeySeq: row.KeySeq,
		AggregateType: row.Event.AggregateType, AggregateID: row.Event.AggregateID,
		AggregateVersion: row.Event.AggregateVersion, KeyID: row.KeyID, Status: ops.Status(row.Status),
		Attempts: row.Attempts, LostClaims: row.LostClaims, ClaimedBy: row.ClaimedBy, LeaseUntil: row.LeaseUntil,
		AvailableAt: row.AvailableAt, OccurredAt: row.Event.OccurredAt, CreatedAt: row.CreatedAt, DoneAt: row.DoneAt,
		ErrorCode: row.ErrorCode, Error: row.Error, ErrorGroup: row.ErrorGroup, Receipt: row.Receipt,
		CausationID: row.Event.Headers[core.HeaderCausationID], ReplayOf: row.ReplayOf, ReadAt: r.now(),
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
			})
		}
	}
	return entries, nil
}
