package outboxtest

import (
	"context"
	"fmt"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// EraseEvents implements ops.Store.
func (r *Repository) EraseEvents(ctx context.Context, c ops.EraseChange) (done ops.EraseOutcome, err error) {
	if err := checkWho(c.Actor, c.Reason); err != nil {
		return done, err
	}
	if err := r.begin(ctx); err != nil {
		return done, err
	}
	defer r.mu.Unlock()
	now := r.now()
	for _, id := range c.IDs {
		row := r.table.rows[id]
		if row == nil || row.Status.open() && (!c.Open || row.leased(now, 0)) {
			continue
		}
		if _, already := row.Event.Headers[core.HeaderErased]; already {
			done.Already++
			continue
		}
		row.Event.Payload, row.Event.ContentType = []byte{}, ""
		row.Event.Headers = ops.KeptHeaders(row.Event.Headers, now)
		row.failures = ""
		if row.Error != "" {
			row.Error = ops.Erased
		}
		r.audit(ops.AuditErase, core.AdminRequest{Actor: c.Actor, Reason: c.Reason}, row, now)
		done.Erased++
	}
	return done, nil
}

// EraseAudit implements ops.Store.
func (r *Repository) EraseAudit(ctx context.Context, after int64, head string, dryRun bool,
) (erased int, next int64, err error) {
	if err := r.begin(ctx); err != nil {
		return 0, 0, err
	}
	defer r.mu.Unlock()
	for i := range r.audits {
		if int64(i) < after || !strings.HasPrefix(r.audits[i].detail, head) {
			continue
		}
		if erased++; !dryRun {
			r.audits[i].detail = ops.Erased
		}
	}
	return erased, 0, nil
}

// RecordErase implements ops.Store.
func (r *Repository) RecordErase(ctx context.Context, c ops.EraseChange) error {
	if err := checkWho(c.Actor, c.Reason); err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer r.mu.Unlock()
	r.auditNoRow(ops.AuditErase, "", c.Actor, fmt.Sprintf("%s (%s)", c.Reason, c.Subject))
	return nil
}
