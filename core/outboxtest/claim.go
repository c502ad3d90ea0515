package outboxtest

import (
	"context"
	"math"
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
	var heads []laneHead
	var next core.KeyID
	visited := 0
	lanes := r.table.lanesAfter(after)
	for i, l := range lanes {
		if !serves(req, r.table.lanes[l][0]) {
			continue
		}
		if h, ok := r.headOf(req, l); ok {
			heads = append(heads, h)
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
	var heads []laneHead
	if rows := r.table.lanes[lane]; len(rows) > 0 && serves(req, rows[0]) {
		if h, ok := r.headOf(req, lane); ok {
			heads = append(heads, h)
		}
	}
	r.mu.Unlock()
	rows, _, err := r.claimRuns(ctx, req, heads)
	return rows, err
}

// laneHead is a key whose head may be claimed, in the state that a statement saw.
type laneHead struct {
	lane core.KeyID
	dead int64 // number of the first dead row if dead rows block; otherwise the largest number
}

// headOf returns the head of a key. The caller holds r.mu.
func (r *Repository) headOf(req core.ClaimRequest, l core.KeyID) (laneHead, bool) {
	h := laneHead{lane: l, dead: math.MaxInt64}
	var head *Row
	now := r.now()
	for _, row := range r.table.lanes[l] {
		switch {
		case row.Status == StatusDead:
			if !req.SkipDead {
				h.dead = min(h.dead, row.KeySeq)
			}
		case head == nil:
			head = row
		}
	}
	return h, head != nil && head.KeySeq < h.dead && head.claimable(now, req.MaxLease)
}

// claimRuns reads the rows that follow the heads, and leases those that still follow them. If the
// claim reached its limits before the last key, claimRuns returns the key where it did.
func (r *Repository) claimRuns(ctx context.Context, req core.ClaimRequest,
	heads []laneHead,
) (rows []core.Claimed, last core.KeyID, err error) {
	if len(heads) == 0 {
		return nil, last, nil
	}
	if err := r.begin(ctx); err != nil {
		return nil, last, err
	}
	c := newClaimer(req, r.now())
	for i, h := range heads {
		c.wantLane(r.table.lanes[h.lane], h.dead)
		if c.full() && i < len(heads)-1 {
			last = h.lane
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

// leaseWanted leases wanted rows. It checks the current state of their keys, which earlier
// statements cannot know. A row that cannot be claimed, or that no longer follows the one before
// it, ends the run of its key. The caller holds r.mu.
func (r *Repository) leaseWanted(req core.ClaimRequest, wanted []*Row) (rows []core.Claimed) {
	now := r.now()
	broken, before := map[core.KeyID]bool{}, map[core.KeyID]*Row{}
	for _, row := range wanted {
		l := row.KeyID
		if broken[l] || r.table.rows[row.ID] != row || !row.claimable(now, req.MaxLease) || r.locked(row.ID) ||
			!r.follows(req, row, before[l]) {
			broken[l] = true
			continue
		}
		before[l] = row
		rows = append(rows, row.claim(req, now))
	}
	return rows
}

// follows reports whether row comes next in its key after before. If before is nil, it reports
// whether row comes first.
func (r *Repository) follows(req core.ClaimRequest, row, before *Row) bool {
	var last *Row
	for _, o := range r.table.lanes[row.KeyID] {
		switch {
		case o == row:
			return last == before
		case o.Status.open():
			last = o
		case !req.SkipDead:
			return false
		}
	}
	return false
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
	for _, l := range r.table.laneOrder {
		if i := head(r.table.lanes[l], req.SkipDead); i >= 0 {
			look(r.table.lanes[l][i])
		}
	}
	return least, found, nil
}

// serves reports whether the request wants rows of the topic and the tenant of this one.
func serves(req core.ClaimRequest, row *Row) bool {
	return req.Wants(row.Event.Topic, row.Event.TenantID)
}

// head returns the index of the first row of a key that is not passed over.
func head(rows []*Row, skipDead bool) int {
	return slices.IndexFunc(rows, func(r *Row) bool { return r.Status.open() || !skipDead })
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

// wantLane adds the open rows of a key from its start. It stops at the first row that cannot be
// claimed or that comes after a dead row.
func (c *claimer) wantLane(rows []*Row, dead int64) {
	run := 0
	for _, row := range rows {
		if row.Status == StatusDead {
			continue
		}
		if run >= max(1, c.req.Run) || row.KeySeq > dead || !row.claimable(c.now, c.req.MaxLease) || !c.want(row) {
			return
		}
		run++
	}
}
