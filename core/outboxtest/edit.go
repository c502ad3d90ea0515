package outboxtest

import (
	"context"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// EditEvent implements ops.Store.
func (r *Repository) EditEvent(ctx context.Context, c ops.Edit) (keySeq int64, diff string, err error) {
	if err := checkWho(c.Actor, c.Reason); err != nil {
		return 0, "", err
	}
	tx, err := r.Begin(ctx)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = tx.Rollback() }()
	r.mu.Lock()
	row := r.table.rows[c.ID]
	var key core.KeyID
	if row != nil {
		key = row.KeyID
	}
	r.mu.Unlock()
	if err := tx.lockLanes(ctx, []core.NewRow{{KeyID: key}}); err != nil {
		return 0, "", err
	}
	if keySeq, diff, err = r.edit(tx, c); err != nil {
		return 0, "", err
	}
	return keySeq, diff, tx.Commit()
}

// edit makes the change in one step, once the key row is locked.
func (r *Repository) edit(tx *Tx, c ops.Edit) (keySeq int64, diff string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	row, now := r.table.rows[c.ID], r.now()
	if row == nil {
		return 0, "", fmt.Errorf("%w: row %s", ops.ErrNotFound, c.ID)
	}
	e := r.opsEvent(row)
	if err := c.CheckDead(&e); err != nil {
		return 0, "", err
	}
	event := cloneEvent(row.Event)
	content, diff, err := c.Apply(e, ops.Content{
		ContentType: event.ContentType, Headers: event.Headers, Payload: event.Payload,
	})
	if err != nil {
		return 0, "", err
	}
	event.ContentType, event.Headers, event.Payload = content.ContentType, content.Headers, content.Payload
	edited := &Row{
		ID: c.NewID, Event: cloneEvent(event), KeyID: row.KeyID, KeySeq: row.KeySeq, CreatedAt: now, AvailableAt: now,
		ReplayOf: row.ReplayOf,
	}
	if key := r.keys[row.KeyID]; c.Appends(e) {
		edited.KeySeq = tx.next(row.KeyID, c.NewID, now).KeySeq
	} else if key != nil && key.lastID == c.ID {
		key.lastID = c.NewID
	}
	r.table.insert(edited)
	r.discard(row, now)
	r.audit(ops.AuditEdit, core.AdminRequest{Actor: c.Actor, Reason: c.Reason}, row, now)
	audit := &r.audits[len(r.audits)-1]
	audit.newID, audit.detail = c.NewID, c.Detail(e, diff)
	return edited.KeySeq, diff, nil
}
