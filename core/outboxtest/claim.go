package outboxtest

import (
	"context"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/mutant"
)

// ClaimUnordered implements core.Repository. Topics share the limit by age.
func (r *Repository) ClaimUnordered(ctx context.Context, req core.ClaimRequest) ([]core.Claimed, error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	c := r.newClaimer(req)
	for _, row := range r.table.unordered {
		if row.AvailableAt.After(c.now) || c.full() {
			break // sorted by due time
		}
		if serves(req, row.Event.Topic) && row.claimable(c.now, req.MaxLease) && !r.locked(row.ID) && !c.take(row) {
			break
		}
	}
	return c.rows, nil
}

// ClaimHeads implements core.Repository.
func (r *Repository) ClaimHeads(ctx context.Context, req core.ClaimRequest, after core.Lane) ([]core.Claimed, core.Lane, error) {
	if err := r.begin(ctx); err != nil {
		return nil, core.Lane{}, err
	}
	defer r.mu.Unlock()
	c := r.newClaimer(req)
	lanes := r.table.lanesAfter(after)
	visited := 0
	for i, l := range lanes {
		if !serves(req, r.table.lanes[l][0].Event.Topic) {
			continue
		}
		c.takeLane(r.table.lanes[l])
		visited++
		if (visited >= req.Lanes || c.full()) && i < len(lanes)-1 {
			return c.rows, l, nil
		}
	}
	return c.rows, core.Lane{}, nil
}

// ClaimLane implements core.Repository.
func (r *Repository) ClaimLane(ctx context.Context, req core.ClaimRequest, lane core.Lane) ([]core.Claimed, error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	c := r.newClaimer(req)
	if rows := r.table.lanes[lane]; len(rows) > 0 && serves(req, rows[0].Event.Topic) {
		c.takeLane(rows)
	}
	return c.rows, nil
}

// NextDue implements core.Repository.
func (r *Repository) NextDue(ctx context.Context, req core.ClaimRequest) (time.Duration, bool, error) {
	if err := r.begin(ctx); err != nil {
		return 0, false, err
	}
	defer r.mu.Unlock()
	now := r.now()
	var least time.Duration
	found := false
	look := func(row *Row) {
		if !row.Status.open() || !serves(req, row.Event.Topic) {
			return
		}
		at := row.AvailableAt
		if row.leased(now, req.MaxLease) && row.LeaseUntil.After(at) {
			at = row.LeaseUntil
		}
		if d := max(0, at.Sub(now)); !found || d < least {
			least, found = d, true
		}
	}
	for _, row := range r.table.unordered {
		look(row)
	}
	for _, l := range r.table.laneOrder {
		if i := head(r.table.lanes[l], req.SkipDead); i >= 0 {
			look(r.table.lanes[l][i])
		}
	}
	return least, found, nil
}

// serves reports whether the request wants rows of the topic.
func serves(req core.ClaimRequest, topic string) bool {
	return (req.Only == nil || slices.Contains(req.Only, topic)) && !slices.Contains(req.Except, topic)
}

// head returns the index of the first row of a lane that is not passed over.
func head(rows []*Row, skipDead bool) int {
	return slices.IndexFunc(rows, func(r *Row) bool { return r.Status.open() || !skipDead })
}

// claimer collects the rows of one claim within its limits.
type claimer struct {
	req    core.ClaimRequest
	now    time.Time
	locked func(core.RowID) bool
	rows   []core.Claimed
	bytes  int64
}

func (r *Repository) newClaimer(req core.ClaimRequest) *claimer {
	return &claimer{req: req, now: r.now(), locked: r.locked}
}

func (c *claimer) full() bool {
	return len(c.rows) >= c.req.Limit || len(c.rows) > 0 && c.bytes >= c.req.MaxBytes
}

// take leases the row unless it does not fit.
func (c *claimer) take(row *Row) bool {
	size := int64(len(row.Event.Payload))
	if len(c.rows) >= c.req.Limit || len(c.rows) > 0 && c.bytes+size > c.req.MaxBytes {
		return false
	}
	c.bytes += size
	c.rows = append(c.rows, row.claim(c.req, c.now))
	return true
}

// takeLane leases the head of a lane and the rows that follow it, up to the first that cannot be had.
func (c *claimer) takeLane(rows []*Row) {
	run := 0
	for _, row := range rows {
		if row.Status == StatusDead && (c.req.SkipDead || mutant.Active == mutant.DeadPassed) {
			continue
		}
		if mutant.Active == mutant.NoHeadCheck && !row.claimable(c.now, c.req.MaxLease) {
			continue
		}
		if run >= max(1, c.req.Run) || !row.claimable(c.now, c.req.MaxLease) || c.locked(row.ID) || !c.take(row) {
			return
		}
		run++
	}
}
