package relay

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// claimEnd is how long a claim goes on after the context of Run ended. If it was cancelled while
// the database commits it, its rows would not be known, and they would wait until their lease ends.
const claimEnd = time.Second

// claim runs a claim statement and hands the claimed rows to the dispatcher.
func (r *engine) claim(ctx context.Context, ordered bool,
	fn func(context.Context) ([]core.Claimed, error),
) ([]core.Claimed, error) {
	start := time.Now()
	callCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dbTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		late := time.NewTimer(min(claimEnd, r.cfg.ShutdownTimeout/4))
		defer late.Stop()
		select {
		case <-late.C:
			cancel()
		case <-callCtx.Done():
		}
	})()
	rows, err := fn(callCtx)
	if err != nil {
		rows = nil // whether their claim was committed is unknown
		r.doubt()
	}
	r.life.vitals.stamp(&r.life.vitals.turned)
	if err == nil {
		r.life.vitals.stamp(&r.life.vitals.claimed)
	}
	r.obs.Claimed(core.ClaimInfo{Ordered: ordered, Rows: len(rows), Duration: time.Since(start), Err: err})
	if len(rows) > 0 {
		r.do(func(s *state) { s.admit(rows, start.Add(r.cfg.ClaimLease)) })
	}
	return rows, err
}

// admit enters claimed rows in the tracker and hands them to the dispatcher.
func (s *state) admit(rows []core.Claimed, deadline time.Time) {
	now := time.Now()
	var lane core.KeyID   // the lane of the run that is being admitted
	var before core.RowID // the previous row of that run
	var broken bool       // a row of the run is missing: the rest is given back
	for i := range rows {
		c := &rows[i]
		if c.KeyID.IsZero() || c.KeyID != lane {
			lane, before, broken = c.KeyID, core.RowID{}, false
		}
		it := s.inflight.find(c.ID)
		if it != nil && it.state == itemReserved {
			// The claim shows that its transaction has committed, although no outcome was reported:
			// the row is cold now.
			s.fellBack(it, core.FallbackUnknown)
			s.forget(it)
			it = nil
		}
		if it != nil && it.state != itemFailed && it.state != itemReleasing {
			// This process held the row and lost the lease. An acknowledged row is only marked. A
			// row that is being published goes on under the new claim.
			it.lease.claimNo, it.lease.deadline, it.lease.lost = c.ClaimNo, deadline, false
			if c.LostClaims >= core.Suspicious && !it.role.suspect { // other processes lost it meanwhile
				it.role.suspect = true
				s.crew.queue.suspects.held++
			}
			before = c.ID
			continue
		}
		it = claimedItem(c, s.dests.get(c.Event.Topic), deadline, now)
		it.dest.refusals.claimed(it.id, it.attempts)
		it.place.head, it.place.after = before.IsZero(), before
		// the claim may have shortened the run: there may be more rows
		it.mark.wake = !c.KeyID.IsZero() && (i+1 == len(rows) || rows[i+1].KeyID != c.KeyID)
		before = c.ID
		s.move(it, itemWaiting)
		switch {
		// no worker is left to publish it
		case broken || s.phase >= phaseClosing || s.crew.noneLeft():
			s.release(it, core.FallbackStopped, false)
		case c.Err != nil:
			s.giveUp(it, core.Failure{Code: codeUndecodable, Message: errtext.Of(c.Err)})
			broken = true
		case s.dests.paused.holdEvent(it.dest.topic, it.tenant), it.dest.open && !it.probeWith(now):
			s.release(it, core.FallbackStopped, false)
			broken = true
		case c.LostClaims >= core.Suspicious && !s.suspect(it, c), !s.letIn(it):
			broken = true
		default:
			s.enqueue(it)
		}
	}
}

func claimedItem(c *core.Claimed, dest *destination, deadline, now time.Time) *item {
	return &item{
		delivery: core.Delivery{
			Event: c.Event, RowID: c.ID, KeySeq: c.KeySeq, Attempt: c.Attempts + 1,
			ReplayOf: c.ReplayOf,
		},
		id: c.ID, lane: c.KeyID, tenant: c.Event.TenantID, dest: dest, path: core.PathCold,
		size: int64(len(c.Event.Payload)) + itemOverhead, lease: itemLease{claimNo: c.ClaimNo, deadline: deadline},
		attempts: c.Attempts, timing: itemTiming{since: now, age: c.Age},
	}
}

// codeUndecodable is the error code of a row that cannot be read.
const codeUndecodable = "undecodable"

// giveUp makes a claimed row DEAD without a publish.
func (s *state) giveUp(it *item, f core.Failure) {
	f.Kind = core.FailDead
	s.noteDead(it, f)
	s.fail(it, f)
}
