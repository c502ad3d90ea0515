package core

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// maxProbes is how many stopped destinations one round probes. A probe is a statement or two of its
// own, and must not keep the other destinations from the table.
const maxProbes = 16

// probesDue returns the stopped destinations that are due for a probe, at most maxProbes. Those
// that wait longest come first.
func (r *relay) probesDue(now time.Time) (due []*destination, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.life.phase >= phaseClosing || r.crew.noneLeft() {
		return nil, false
	}
	for _, d := range r.dests.stopped {
		if r.dests.probes(d) && !now.Before(d.nextAsk()) {
			due = append(due, d)
		}
	}
	slices.SortFunc(due, func(a, b *destination) int {
		if c := a.nextAsk().Compare(b.nextAsk()); c != 0 {
			return c
		}
		return strings.Compare(a.topic, b.topic)
	})
	if len(due) > maxProbes {
		return due[:maxProbes], true
	}
	return due, false
}

// claimProbes takes one row for each stopped destination that is due for a probe. A destination
// whose claim fails does not hold up the others.
func (r *relay) claimProbes(ctx context.Context) (res stepResult, err error) {
	due, more := r.probesDue(time.Now())
	var errs []error
	for _, d := range due {
		rows, err := r.claimProbe(ctx, d)
		res.rows += len(rows)
		errs = append(errs, err)
	}
	err = errors.Join(errs...)
	res.more = more && err == nil
	return res, err
}

// claimProbe takes a row to probe the destination with. Unordered rows and keys take turns, and so
// do the keys. So events that fail the probe again and again leave the other events their turn.
func (r *relay) claimProbe(ctx context.Context, d *destination) ([]Claimed, error) {
	req, _ := r.claimRequest() // the verdict does not matter: it is one row
	req.ClaimNo = r.o.claimNo()
	req.Only, req.Except, req.Limit, req.Run = []string{d.topic}, nil, 1, 1
	r.mu.Lock()
	if !r.dests.probes(d) { // it has become paused, or is being probed, since it was due
		r.mu.Unlock()
		return nil, nil
	}
	after := d.turn.cursor
	steps := []func(context.Context) ([]Claimed, error){
		func(ctx context.Context) ([]Claimed, error) { return r.repo().ClaimUnordered(ctx, req) },
		func(ctx context.Context) ([]Claimed, error) { return r.claimHeadAfter(ctx, req, d, after) },
	}
	if d.turn.count++; d.turn.count%2 == 0 {
		slices.Reverse(steps)
	}
	r.mu.Unlock()
	rows, err := r.claim(ctx, false, func(ctx context.Context) ([]Claimed, error) {
		for _, step := range steps {
			if rows, err := step(ctx); err != nil || len(rows) > 0 {
				return rows, err
			}
		}
		return nil, nil
	})
	r.mu.Lock()
	defer r.unlock()
	// there is no event to probe with, or it was given back: the next event that commits will probe
	if !d.probing {
		d.turn.askedAt = time.Now()
	}
	return rows, err
}

// claimHeadAfter takes the head of the key after the one that was tried last. After the last key it
// takes the first one.
func (r *relay) claimHeadAfter(ctx context.Context, req ClaimRequest, d *destination,
	after KeyID,
) (rows []Claimed, err error) {
	var next KeyID
	for wrapped := after.IsZero(); ; {
		rows, next, err = r.repo().ClaimHeads(ctx, req, after)
		switch {
		case err != nil:
			return nil, err
		case len(rows) > 0:
			next = rows[0].KeyID
		case next.IsZero() && !wrapped:
			after, wrapped = next, true
			continue
		}
		r.mu.Lock()
		d.turn.cursor = next
		r.mu.Unlock()
		return rows, nil
	}
}
