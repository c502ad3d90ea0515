package relay

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// maxProbes is how many stopped destinations one round probes. A probe is a statement or two of its
// own, and must not keep the other destinations from the table.
const maxProbes = 16

// probesDue returns the stopped destinations that are due for a probe, at most maxProbes. Those
// that wait longest come first.
func (s *state) probesDue(now time.Time) (due []*destination, more bool) {
	if s.phase >= phaseClosing || s.crew.noneLeft() {
		return nil, false
	}
	for _, d := range s.dests.stopped {
		if s.dests.probes(d) && !now.Before(d.nextAsk()) {
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
func (r *engine) claimProbes(ctx context.Context) (res stepResult, err error) {
	var due []*destination
	more := ask(r, func(s *state) (more bool) {
		due, more = s.probesDue(time.Now())
		return more
	})
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
func (r *engine) claimProbe(ctx context.Context, d *destination) ([]core.Claimed, error) {
	req, verdict := r.claimRequest(ctx)
	if verdict == claimUnsure { // another verdict does not matter: it is one row
		return nil, nil
	}
	req.ClaimNo = r.claimNo()
	var after core.KeyID
	var reverse bool
	var started uint
	if !ask(r, func(s *state) bool {
		if !s.dests.probes(d) { // it has become paused, or is being probed, since it was due
			return false
		}
		d.turn.count++
		req.Only, req.Except, req.Limit, req.Run = []string{d.topic}, nil, 1, 1
		after, reverse, started = d.turn.cursor, d.turn.count%2 == 0, d.turn.started
		return true
	}) {
		return nil, nil
	}
	steps := []func(context.Context) ([]core.Claimed, error){
		func(ctx context.Context) ([]core.Claimed, error) { return r.repo().ClaimUnordered(ctx, req) },
		func(ctx context.Context) ([]core.Claimed, error) { return r.claimHeadAfter(ctx, req, d, after) },
	}
	if reverse {
		slices.Reverse(steps)
	}
	rows, err := r.claim(ctx, false, func(ctx context.Context) ([]core.Claimed, error) {
		for _, step := range steps {
			if rows, err := step(ctx); err != nil || len(rows) > 0 {
				return rows, err
			}
		}
		return nil, nil
	})
	r.do(func(s *state) {
		// There is no event to probe with, or it was given back: the next event that commits will
		// probe. A probe that began may have ended already, and has set the time of the next one.
		if d.turn.started != started {
			return
		}
		d.turn.askedAt = time.Now()
		if err == nil && len(rows) == 0 {
			s.noProbe(d, d.turn.askedAt)
		}
	})
	return rows, err
}

// claimHeadAfter claims the head of the key after the last tried key. After the last key it takes
// the first one.
func (r *engine) claimHeadAfter(ctx context.Context, req core.ClaimRequest, d *destination,
	after core.KeyID,
) (rows []core.Claimed, err error) {
	var next core.KeyID
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
		r.do(func(*state) { d.turn.cursor = next })
		return rows, nil
	}
}
