package outboxtest

import (
	"context"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// ClaimUnordered implements core.Repository. The rows of all topics share the limit, oldest first.
func (r *Repository) ClaimUnordered(ctx context.Context, req core.ClaimRequest) ([]core.Claimed, error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	c := newClaimer(req, r.now())
	for _, row := range r.table.unordered {
		if row.AvailableAt.After(c.now) || c.full() {
			break // sorted by due time
		}
		if serves(req, row) && row.claimable(c.now, req.MaxLease) && !r.locked(row.ID) && !c.want(row) {
			break
		}
	}
	rows := make([]core.Claimed, len(c.wanted))
	for i, row := range c.wanted {
		rows[i] = row.claim(req, c.now)
	}
	return rows, nil
}

// ClaimHeads implements core.Repository. As in most databases, a claim is several statements: one
// finds heads, one reads the rows that follow them, and one leases the rows that have not changed
// since.
func (r *Repository) ClaimHeads(ctx context.Context, req core.ClaimRequest,
	after core.KeyID,
) ([]core.Claimed, core.KeyID, error) {
	if err := r.begin(ctx); err != nil {
		return nil, core.KeyID{}, err
	}
	var heads []core.KeyID
	var next core.KeyID
	visited := 0
	lanes := slices.Clone(r.table.lanesAfter(after)) // dead rows may be the last ones of their keys
	for i, l := range lanes {
		if !serves(req, r.table.lanes[l][0]) {
			continue
		}
		if r.headOf(req, l) {
			heads = append(heads, l)
		}
		visited++
		if (visited >= req.Keys || len(heads) >= req.Limit) && i < len(lanes)-1 {
			next = l
			break
		}
	}
	r.mu.Unlock()
	rows, last, err := r.claimRuns(ctx, req, heads)
	if err != nil {
		return nil, core.KeyID{}, err
	}
	if !last.IsZero() {
		next = last
	}
	return rows, next, nil
}

// ClaimKey implements core.Repository.
func (r *Repository) ClaimKey(ctx context.Context, req core.ClaimRequest, lane core.KeyID) ([]core.Claimed, error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	var heads []core.KeyID
	if rows := r.table.lanes[lane]; len(rows) > 0 && serves(req, rows[0]) && r.headOf(req, lane) {
		heads = append(heads, lane)
	}
	r.mu.Unlock()
	rows, _, err := r.claimRuns(ctx, req, heads)
	return rows, err
}

// headOf reports whether the head of a key may be claimed. Where dead rows are skipped, dead rows
// at the beginning leave the key. The caller holds r.mu.
func (r *Repository) headOf(req core.ClaimRequest, l core.KeyID) bool {
	for len(r.table.lanes[l]) > 0 {
		head := r.table.lanes[l][0]
		if head.Status != StatusDead || !req.SkipDead || r.locked(head.ID) {
			return head.claimable(r.now(), req.MaxLease)
		}
		r.table.change(head, func() { head.leftKey = true })
	}
	return false
}

// claimRuns reads the rows that follow the heads, and leases the rows that still follow them. If
// the claim reached its limits before the last key, claimRuns returns the key where it did.
func (r *Repository) claimRuns(ctx context.Context, req core.ClaimRequest,
	heads []core.KeyID,
) (rows []core.Claimed, last core.KeyID, err error) {
	if len(heads) == 0 {
		return nil, last, nil
	}
	if err := r.begin(ctx); err != nil {
		return nil, last, err
	}
	c := newClaimer(req, r.now())
	for i, l := range heads {
		c.wantLane(r.table.lanes[l])
		if c.full() && i < len(heads)-1 {
			last = l
			break
		}
	}
	r.mu.Unlock()
	if len(c.wanted) == 0 {
		return nil, last, nil
	}
	if err := r.begin(ctx); err != nil {
		return nil, last, err
	}
	defer r.mu.Unlock()
	return r.leaseWanted(req, c.wanted), last, nil
}

// leaseWanted leases wanted rows. The wanted rows of a key are its first ones, without a gap, as
// one statement saw them. No open row comes before one of them later, because a dead row there
// would be the head. So it is enough that each row can still be claimed. A row that cannot be
// claimed ends the run of its key. The caller holds r.mu.
func (r *Repository) leaseWanted(req core.ClaimRequest, wanted []*Row) (rows []core.Claimed) {
	now, broken := r.now(), map[core.KeyID]bool{}
	for _, row := range wanted {
		l := row.KeyID
		if broken[l] || r.table.rows[row.ID] != row || !row.claimable(now, req.MaxLease) || r.locked(row.ID) {
			broken[l] = true
			continue
		}
		rows = append(rows, row.claim(req, now))
	}
	return rows
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
		if !row.Status.open() || !serves(req, row) {
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
	lanes := r.table.laneOrder
	if req.Keys <= 0 {
		lanes = nil
	}
	for _, l := range lanes {
		head := r.table.lanes[l][0]
		if head.Status == StatusDead && req.SkipDead && serves(req, head) {
			return 0, true, nil // a claim takes it out of its key
		}
		look(head)
	}
	return least, found, nil
}

// serves reports whether the request wants rows of the topic and the tenant of this one.
func serves(req core.ClaimRequest, row *Row) bool {
	return req.Wants(row.Event.Topic, row.Event.TenantID)
}

// claimer collects the rows of a claim within the limits of the request.
type claimer struct {
	req    core.ClaimRequest
	now    time.Time
	wanted []*Row
	bytes  int64
}

func newClaimer(req core.ClaimRequest, now time.Time) *claimer { return &claimer{req: req, now: now} }

func (c *claimer) full() bool {
	return len(c.wanted) >= c.req.Limit || len(c.wanted) > 0 && c.bytes >= c.req.MaxBytes
}

// want adds the row if it is within the limits.
func (c *claimer) want(row *Row) bool {
	size := int64(len(row.Event.Payload))
	if len(c.wanted) >= c.req.Limit || len(c.wanted) > 0 && c.bytes+size > c.req.MaxBytes {
		return false
	}
	c.bytes += size
	c.wanted = append(c.wanted, row)
	return true
}

// wantLane adds the rows of a key from its start. It stops at the first row that cannot be claimed.
func (c *claimer) wantLane(rows []*Row) {
	for i, row := range rows {
		if i >= max(1, c.req.Run) || !row.claimable(c.now, c.req.MaxLease) || !c.want(row) {
			return
		}
	}
}
