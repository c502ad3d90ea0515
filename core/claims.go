package core

import (
	"context"
	"time"
)

// killerLosses is how many lost leases make a row be published alone.
const killerLosses = 3

// A suspect that finds another one before it comes back after suspectTurn for each that was sent back since, so that many
// innocent ones, such as all that a process held when it was killed again and again, are through in no time.
const (
	suspectTurn    = 20 * time.Millisecond
	maxSuspectWait = 5 * time.Second
)

// claim runs a claim statement and hands what it returned to the dispatcher.
func (r *relay) claim(ctx context.Context, ordered bool, fn func(context.Context) ([]Claimed, error)) ([]Claimed, error) {
	start := time.Now()
	callCtx, cancel := context.WithTimeout(ctx, dbTimeout)
	defer cancel()
	rows, err := fn(callCtx)
	r.o.obs.Claimed(ClaimInfo{Ordered: ordered, Rows: len(rows), Duration: time.Since(start), Err: err})
	r.admit(rows, start.Add(r.cfg.ClaimLease))
	return rows, err
}

// admit enters claimed rows in the tracker and hands them to the dispatcher.
func (r *relay) admit(rows []Claimed, deadline time.Time) {
	if len(rows) == 0 {
		return
	}
	now := time.Now()
	r.mu.Lock()
	defer r.unlock()
	var lane Lane    // of the run that is being admitted
	var before RowID // the row before in that run
	var broken bool  // the run has lost a row: the rest is given back
	for i := range rows {
		c := &rows[i]
		if c.Lane.IsZero() || c.Lane != lane {
			lane, before, broken = c.Lane, RowID{}, false
		}
		if it := r.items[c.ID]; it != nil && it.state != itemFailed && it.state != itemReleasing {
			// This process had it and lost the lease. An acknowledged row is only marked; one in hand goes on under the new claim.
			it.claimNo, it.deadline, it.lost = c.ClaimNo, deadline, false
			before = c.ID
			continue
		}
		it := r.claimedItem(c, deadline, now)
		it.dest.refusals.claimed(it.id, it.attempts)
		it.head, it.after = before.IsZero(), before
		it.wake = !c.Lane.IsZero() && (i+1 == len(rows) || rows[i+1].Lane != c.Lane) // claims shorten runs: there may be more
		before = c.ID
		r.track(it)
		switch {
		case broken || r.closing:
			r.release(it, DropStopped, false)
		case c.Err != nil:
			r.giveUp(it, Failure{Code: codeUndecodable, Message: errorText(c.Err)})
			broken = true
		case it.dest.open && !r.probeWith(it, now):
			r.release(it, DropStopped, false)
			broken = true
		case c.LostClaims >= killerLosses && !r.suspect(it, c):
			broken = true
		default:
			r.enqueue(it)
		}
	}
}

func (r *relay) claimedItem(c *Claimed, deadline, now time.Time) *item {
	return &item{
		delivery: Delivery{Event: c.Event, RowID: c.ID, KeySeq: c.KeySeq, Attempt: c.Attempts + 1, ReplayOf: c.ReplayOf},
		id:       c.ID, lane: c.Lane, dest: r.dest(c.Event.Topic), path: PathCold, state: itemWaiting,
		size: int64(len(c.Event.Payload)) + itemOverhead, claimNo: c.ClaimNo, deadline: deadline,
		attempts: c.Attempts, since: now, age: c.Age,
	}
}

// codeUndecodable is the error code of a row that cannot be read.
const codeUndecodable = "undecodable"

// giveUp makes a claimed row DEAD without a publish.
func (r *relay) giveUp(it *item, f Failure) {
	f.Kind, f.ClaimRef = FailDead, ClaimRef{ID: it.id, ClaimNo: it.claimNo}
	r.noteDead(it, f)
	it.failure, it.state = f, itemFailed
	r.failed = append(r.failed, it)
	r.unwritten++
	r.kickWriter()
}

func (r *relay) probeWith(it *item, now time.Time) bool {
	if !it.dest.mayProbe(now) {
		return false
	}
	r.startProbe(it)
	return true
}

// suspect deals with a row whose holders vanished again and again. It is published alone, so that only its own
// losses count from now on; one at a time, so that a killer takes no other suspect with it; and after too many it is
// DEAD. It reports whether the row is to be published now.
func (r *relay) suspect(it *item, c *Claimed) bool {
	fail := func(f Failure) {
		f.ClaimRef = ClaimRef{ID: it.id, ClaimNo: it.claimNo}
		f.Code = "lost_claims"
		it.failure, it.state = f, itemFailed
		r.failed = append(r.failed, it)
		r.unwritten++
		r.kickWriter()
	}
	if c.LostClaims >= killerLosses+r.cfg.MaxLoneLosses {
		f := Failure{Kind: FailDead, Message: "no outcome after repeated claims: publishing it seems to end the process"}
		r.noteDead(it, f)
		fail(f)
		return false
	}
	if r.exclusive || r.lone.len() > 0 || r.suspectWaits(it) {
		r.sentBack++
		wait := min(time.Duration(r.sentBack)*suspectTurn, maxSuspectWait)
		fail(Failure{Kind: FailUnavailable, Delay: jittered(wait, 0.5+r.random()/2), Message: "waits until another suspect is done"})
		return false
	}
	it.lone = true
	r.sentBack = 0
	return true
}

func (r *relay) suspectWaits(except *item) bool {
	for _, it := range r.items {
		if it.lone && it != except && it.state != itemAcked && it.state != itemFailed && it.state != itemReleasing {
			return true
		}
	}
	return false
}
