package outboxtest

import (
	"context"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/mutant"
)

// MarkDone implements core.Repository.
func (r *Repository) MarkDone(ctx context.Context, done []core.Done, deleteRows bool) (int, error) {
	if err := r.begin(ctx); err != nil {
		return 0, err
	}
	defer r.mu.Unlock()
	now, changed := r.now(), 0
	for _, d := range done {
		row := r.table.rows[d.ID]
		if row == nil || !row.Status.open() && row.Status != StatusDead {
			continue
		}
		changed++
		if deleteRows {
			r.table.delete(row)
			continue
		}
		r.table.change(row, func() {
			row.Status, row.DoneAt, row.LeaseUntil, row.Receipt = StatusDone, now, time.Time{}, d.Receipt
			row.ErrorCode, row.Error = "", ""
		})
	}
	return changed, nil
}

// MarkFailed implements core.Repository.
func (r *Repository) MarkFailed(ctx context.Context, node string, failures []core.Failure) ([]bool, error) {
	for _, f := range failures {
		if f.Kind < core.FailRetry || f.Kind > core.FailUnavailable {
			return nil, fmt.Errorf("outboxtest: row %s: unknown kind of failure %d", f.ID, f.Kind)
		}
	}
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	now, changed := r.now(), make([]bool, len(failures))
	for i, f := range failures {
		row := r.table.rows[f.ID]
		if row == nil || !row.heldBy(node, f.ClaimNo) && mutant.Active != mutant.Unfenced {
			continue
		}
		changed[i] = true
		r.table.change(row, func() { row.fail(f, now) })
	}
	return changed, nil
}

func (r *Row) fail(f core.Failure, now time.Time) {
	r.LeaseUntil, r.ErrorCode, r.Error = time.Time{}, f.Code, f.Message
	switch f.Kind {
	case core.FailRetry:
		r.Status, r.AvailableAt = StatusRetry, now.Add(f.Delay)
		r.Attempts++
	case core.FailDead:
		r.Status = StatusDead
		r.Attempts++
	case core.FailUnavailable:
		r.AvailableAt = now.Add(f.Delay)
	}
}

// Renew implements core.Repository.
func (r *Repository) Renew(ctx context.Context, node string, lease time.Duration, claims []core.ClaimRef) ([]bool, error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	now, held := r.now(), make([]bool, len(claims))
	for i, c := range claims {
		if row := r.table.rows[c.ID]; row != nil && row.heldBy(node, c.ClaimNo) {
			held[i], row.LeaseUntil = true, now.Add(lease)
		}
	}
	return held, nil
}

// Release implements core.Repository.
func (r *Repository) Release(ctx context.Context, node string, claims []core.ClaimRef) (int, error) {
	if err := r.begin(ctx); err != nil {
		return 0, err
	}
	defer r.mu.Unlock()
	changed := 0
	for _, c := range claims {
		if row := r.table.rows[c.ID]; row != nil && row.heldBy(node, c.ClaimNo) && !row.LeaseUntil.IsZero() {
			row.LeaseUntil = time.Time{}
			changed++
		}
	}
	return changed, nil
}
