package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/pace"
)

const (
	// maxSuspects is how many suspects are held at a time. The rest of the room is for other items.
	maxSuspects = 64
	// A suspect that finds no place comes back after suspectTurn for each suspect that was sent
	// back since one was let in. There may be many innocent ones, such as all rows of a process
	// that was killed again and again. They are through quickly.
	suspectTurn    = 10 * time.Millisecond
	maxSuspectWait = 5 * time.Second
	// An unproven suspect is not tried again before a part of its age is over, so the pauses grow
	// with each death.
	unprovenPart    = 2
	minUnprovenWait = 10 * time.Second
	maxUnprovenWait = 5 * time.Minute
	// unsentPause is how long a suspect waits if the start of its publish could not be written
	// down.
	unsentPause = time.Second
)

// suspects are the held rows whose holders disappeared Suspicious times or more. One suspect at a
// time is published, beside the other rows. Before each such publish the relay records its start,
// and only deaths during it count against the row. So a process that ends for another reason
// accuses at most one suspect. A row that kills its process takes no other suspect with it.
//
// A destination that hangs makes the publish last as long as the process lives, so each death of
// the process would fall into it. So a death counts only if the destination works as far as this
// process has seen: it has acknowledged another event, and refused none since. Otherwise the row is
// tried too, and waits longer after each death.
type suspects struct {
	queue    queue[*item]
	held     int   // suspects that are held, queued or not
	out      *item // the suspect that is being published, or whose mark is not written yet
	turn     bool  // the last pick was a suspect
	sentBack int   // suspects that were sent back since the last one was let in
}

// unprovenWait returns how long a suspect waits if its process dies now, and 0 if such a death
// counts.
func (it *item) unprovenWait(now time.Time) time.Duration {
	if d := it.dest; !d.lastAck.IsZero() && !d.open && len(d.refusals.streak) == 0 {
		return 0
	}
	age := it.timing.age + now.Sub(it.timing.since)
	return min(max(age/unprovenPart, minUnprovenWait), maxUnprovenWait)
}

// next takes a suspect if none is being published. It never takes two in a row while other items
// wait.
func (s *suspects) next(others int) (it *item, ok bool) {
	if s.out != nil || s.queue.len() == 0 || s.turn && others > 0 {
		s.turn = false
		return nil, false
	}
	s.turn = true
	return s.queue.pop()
}

// suspect handles a claimed row that was lost often. It reports whether the row is to be published.
func (s *state) suspect(it *item, c *core.Claimed) bool {
	q := &s.crew.queue.suspects
	if c.LostClaims >= core.Suspicious+s.cfg.MaxCrashes {
		s.giveUp(it, core.Failure{
			Code:    codeLostClaims,
			Message: "the process ended again and again while it published this event",
		})
		return false
	}
	if q.held >= min(maxSuspects, (s.cfg.ColdEvents+1)/2) {
		q.sentBack++
		wait := min(time.Duration(q.sentBack)*suspectTurn, maxSuspectWait)
		s.fail(it, core.Failure{
			Kind: core.FailUnavailable, Delay: pace.Jittered(wait, 0.5+s.random()/2),
			Code: codeLostClaims, Message: "waits until other suspects are done",
		})
		return false
	}
	it.role.suspect = true
	q.held++
	q.sentBack = 0
	return true
}

// codeLostClaims is the error code of a row whose holders disappeared.
const codeLostClaims = "lost_claims"

// prepareSuspect makes a suspect ready to be published. renew reports whether to renew its lease
// first.
func (r *engine) prepareSuspect(j job) (ready, renew bool) {
	if !r.beginSuspect(j) {
		return false, false
	}
	r.do(func(s *state) {
		if ready = j.it.lease.mayPublish(j.it.role.suspect); ready {
			renew = !s.begins(j.it)
		}
	})
	return ready, renew
}

// mayPublish returns false if a suspect's begin was not recorded for the present claim. While it
// was recorded, this process may have lost the claim and taken the row again.
func (l *itemLease) mayPublish(suspect bool) bool { return !suspect || l.begun == l.claimNo }

// beginSuspect writes down that the publish of a suspect begins. If that fails, the publish must
// not begin.
func (r *engine) beginSuspect(j job) bool {
	var ref core.ClaimRef
	wait := ask(r, func(*state) time.Duration {
		ref = j.it.claimRef()
		wait := j.it.unprovenWait(time.Now())
		j.it.role.unproven = wait > 0
		return wait
	})
	if wait > 0 {
		r.ob.Logger.Warn("outbox: an event is tried alone: the processes that published it have ended, and its "+
			"destination is not known to work", "destination", j.delivery.Topic, "event_id", j.delivery.ID, "row_id",
			ref.ID.String(), "next_try_after_a_death", wait)
	}
	ctx, cancel := context.WithTimeout(r.life.publishes, dbTimeout)
	defer cancel()
	held, err := r.repo().BeginSuspect(ctx, r.ob.Node, wait, []core.ClaimRef{ref})
	if err != nil {
		r.ob.Logger.Warn("outbox: cannot write down that a suspicious event is published",
			"event_id", j.delivery.ID, "error", errtext.Of(err))
		r.doubt()
	}
	if err != nil || len(held) != 1 || !held[0] {
		return false
	}
	r.do(func(*state) { j.it.lease.begun = ref.ClaimNo })
	return true
}

// triedAlone returns an error that names the event that is tried alone, while a death of this
// process would not count.
func (s *state) triedAlone() error {
	it := s.crew.queue.suspects.out
	if it == nil || !it.role.unproven || it.state != itemPublishing {
		return nil
	}
	return fmt.Errorf("outbox: event %s is tried alone: the processes that published it have ended, and destination "+
		"%q is not known to work", it.delivery.ID, errtext.Clip(it.delivery.Topic, 64))
}
