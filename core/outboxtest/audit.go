package outboxtest

import (
	"context"
	"fmt"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
)

// ListAudit implements core.Repository.
func (r *Repository) ListAudit(ctx context.Context, q core.AuditQuery) (records []core.AuditRecord, err error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	for i, a := range slices.Backward(r.audits) {
		no := int64(i + 1)
		if len(records) == max(q.Limit, 1) {
			break
		}
		if q.Before > 0 && no >= q.Before || !q.RowID.IsZero() && a.RowID != q.RowID {
			continue
		}
		records = append(records, core.AuditRecord{
			No: no, At: a.At, Action: a.Action, Actor: a.Actor, Reason: a.Reason, RowID: a.RowID, EventID: a.EventID,
			Topic: a.Topic, NewID: a.newID,
		})
	}
	return records, nil
}

// CountAudit implements core.Repository.
func (r *Repository) CountAudit(ctx context.Context, after, upTo int64) (map[string]int64, error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	rows := map[string]int64{}
	for i, a := range r.audits {
		if no := int64(i + 1); no > after && no <= upTo {
			rows[a.Action]++
		}
	}
	return rows, nil
}

func checkWho(actor, reason string) error {
	if actor == "" || reason == "" {
		return fmt.Errorf("outboxtest: %w: actor and reason are required", core.ErrInvalidRequest)
	}
	return nil
}
