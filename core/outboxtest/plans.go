package outboxtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// InsertPlan implements ops.Store.
func (r *Repository) InsertPlan(ctx context.Context, p ops.StoredPlan, audit string, keep time.Duration) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	defer r.mu.Unlock()
	if _, exists := r.plans[p.ID]; exists {
		return fmt.Errorf("outboxtest: plan %s exists", p.ID)
	}
	now := r.now()
	if r.plans == nil {
		r.plans = map[string]ops.StoredPlan{}
	}
	maps.DeleteFunc(r.plans, func(_ string, p ops.StoredPlan) bool {
		return p.State.Ended() && p.UpdatedAt.Before(now.Add(-keep))
	})
	p.Version, p.CreatedAt, p.UpdatedAt = 1, now, now
	p.IDs, p.Seen = slices.Clone(p.IDs), slices.Clone(p.Seen)
	r.plans[p.ID] = p
	r.audit(audit, core.AdminRequest{Actor: p.Actor, Reason: p.Reason}, &Row{}, now)
	return nil
}

// ReadPlan implements ops.Store.
func (r *Repository) ReadPlan(ctx context.Context, id string) (p ops.StoredPlan, found bool, err error) {
	if err := r.begin(ctx); err != nil {
		return p, false, err
	}
	defer r.mu.Unlock()
	p, found = r.plans[id]
	p.IDs, p.Seen, p.ReadAt = slices.Clone(p.IDs), slices.Clone(p.Seen), r.now()
	return p, found, nil
}

// ReadPlans implements ops.Store.
func (r *Repository) ReadPlans(ctx context.Context, limit int) ([]ops.StoredPlan, error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	all := slices.SortedFunc(maps.Values(r.plans), func(a, b ops.StoredPlan) int {
		if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	all = all[:min(len(all), limit)]
	for i := range all {
		all[i].IDs, all[i].Seen, all[i].ReadAt = nil, nil, r.now()
	}
	return all, nil
}

// ChangePlan implements ops.Store. Changes of plans wait for each other.
func (r *Repository) ChangePlan(ctx context.Context, c ops.PlanChange) (p ops.StoredPlan, ok bool, err error) {
	r.planning.Lock()
	defer r.planning.Unlock()
	if err := r.begin(ctx); err != nil {
		return c.Plan, false, err
	}
	stored, ok := r.plans[c.Plan.ID]
	r.mu.Unlock()
	if !ok || stored.Version != c.Plan.Version {
		return c.Plan, false, nil
	}
	n := 0
	if len(c.IDs) > 0 {
		do := r.Redrive
		switch c.Plan.Action {
		case ops.ActionDiscard:
			do = r.Discard
		case ops.ActionRedrive:
		case ops.ActionReplay:
			do = func(ctx context.Context, req core.AdminRequest) (int, error) { return r.replay(ctx, &c.Plan, req) }
		}
		req := c.Request
		req.IDs = c.IDs
		if n, err = do(ctx, req); err != nil {
			return c.Plan, false, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p = c.Plan
	p.Version, p.Changed, p.UpdatedAt, p.ReadAt = p.Version+1, p.Changed+n, r.now(), r.now()
	p.WorkerUntil = p.UpdatedAt.Add(c.Lease)
	p.IDs, p.Seen = stored.IDs, stored.Seen
	r.plans[p.ID] = p
	if c.Audit != "" {
		r.audit(c.Audit, c.Request, &Row{}, p.UpdatedAt)
	}
	p.IDs, p.Seen = nil, nil
	return p, true, nil
}

// ReadStatuses implements ops.Store.
func (r *Repository) ReadStatuses(ctx context.Context, ids []core.RowID, reason string,
) (all []ops.RowStatus, err error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	for _, id := range ids {
		row, redriven := r.table.rows[id], reason == ""
		for _, a := range r.audits {
			if a.RowID != id || a.Action != "redrive" {
				continue
			}
			redriven = redriven || a.Reason == reason
			if !a.newID.IsZero() {
				row = r.table.rows[a.newID]
			}
		}
		if row != nil && redriven {
			all = append(all, ops.RowStatus{ID: id, Status: ops.Status(row.Status), Attempts: row.Attempts})
		}
	}
	return all, nil
}
