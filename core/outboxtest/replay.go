package outboxtest

import (
	"cmp"
	"context"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// replay gives each done row of the request a new row, in the order of its key.
func (r *Repository) replay(ctx context.Context, p *ops.StoredPlan, req core.AdminRequest) (int, error) {
	tx, err := r.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	var rows []core.NewRow // copies that replay the rows
	var of []*Row
	r.mu.Lock()
	for _, id := range req.IDs {
		row := r.table.rows[id]
		if row != nil && row.Status == StatusDone && row.ReplayOf.IsZero() && !slices.Contains(of, row) {
			of = append(of, row)
		}
	}
	slices.SortFunc(of, func(a, b *Row) int {
		return cmp.Or(compareLanes(a.KeyID, b.KeyID), cmp.Compare(a.KeySeq, b.KeySeq), byID(a, b))
	})
	for _, row := range of {
		n := core.NewRow{ID: p.ReplayID(row.ID)}
		if !row.KeyID.IsZero() {
			n.KeyID = core.ReplayKeyID(row.KeyID)
		}
		rows = append(rows, n)
	}
	r.mu.Unlock()
	if err := tx.lockLanes(ctx, rows); err != nil { // as every writer of a key does
		return 0, err
	}
	r.mu.Lock()
	now := r.now()
	for i, row := range of {
		if err = tx.copyRow(row, rows[i].ID, rows[i].KeyID, now); err != nil {
			break
		}
		tx.inserted[len(tx.inserted)-1].ReplayOf = row.ID
	}
	r.mu.Unlock()
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, row := range of {
		r.audit(string(ops.ActionReplay), req, row, now)
		r.audits[len(r.audits)-1].newID = rows[i].ID
	}
	return len(of), nil
}
