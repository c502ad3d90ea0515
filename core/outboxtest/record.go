package outboxtest

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
)

// RecordAudit implements ops.Store.
func (r *Repository) RecordAudit(ctx context.Context, detail string, records ...core.AuditRecord) error {
	for _, a := range records {
		if err := checkWho(a.Actor, a.Reason); err != nil {
			return err
		}
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer r.mu.Unlock()
	for _, a := range records {
		r.audits = append(r.audits, Audit{
			RowID: a.RowID, Action: a.Action, Actor: a.Actor, Reason: a.Reason, At: r.now(), EventID: a.EventID,
			Topic: a.Topic, detail: detail,
		})
	}
	return nil
}
