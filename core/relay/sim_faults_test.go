package relay_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// proceed does the next step: it lets one call go on, or lets time pass.
func (s *simulation) proceed() {
	now := s.steps.Load()
	calls := s.waiting(func(c *call) bool { return s.calm || c.inc.proc.pausedTo <= now })
	if !s.calm && !s.profile.faultless {
		calls = slices.DeleteFunc(calls, s.hanging)
	}
	if len(calls) == 0 {
		d := time.Minute
		if !s.calm { // a process may be paused or down for some steps
			d = time.Duration(s.rng.IntN(2_000_000_000))
		}
		s.pass(d, true)
		return
	}
	if expired := slices.DeleteFunc(slices.Clone(calls),
		func(c *call) bool { return c.ctx.Err() == nil }); len(expired) > 0 {
		calls = expired
	} else if d := s.elapse(calls); d > 0 {
		s.pass(d, false)
		return
	}
	if willing := slices.DeleteFunc(slices.Clone(calls), s.reluctant); len(willing) > 0 && s.chance(0.95) {
		calls = willing
	}
	c := pickOne(s.scheduler, calls)
	s.release(c, s.judge(c))
}

// hanging reports whether a call is a publish that ignores the end of its context.
func (s *simulation) hanging(c *call) bool {
	if c.kind != callPublish || c.ctx.Err() == nil {
		return false
	}
	if !c.judged && s.chance(s.profile.hang) {
		c.hangs = time.Now().Add(time.Duration(s.rng.IntN(15_000_000_000)))
	}
	c.judged = true
	return time.Now().Before(c.hangs)
}

// reluctant reports whether a call mostly has to wait for others in this schedule.
func (s *simulation) reluctant(c *call) bool {
	// Other calls overtake it.
	return c.kind == s.profile.reluctant && (c.kind != callHear || strings.Contains(c.name, "producer 0"))
}

// elapse says how much time passes although calls wait; 0 means none. Without faults, time passes
// only during publishes, and less of it than they have until their deadlines.
func (s *simulation) elapse(calls []*call) time.Duration {
	switch {
	case s.calm:
		return 0
	case s.profile.faultless:
		d := time.Duration(1 + s.rng.IntN(300_000_000))
		for _, c := range s.waiting(nil) {
			deadline, ok := c.ctx.Deadline()
			if c.kind != callPublish || !ok || time.Until(deadline) <= 2*d {
				return 0
			}
		}
		if s.chance(s.profile.time) {
			return d
		}
		return 0
	case s.chance(s.profile.longTime):
		return time.Duration(1 + s.rng.IntN(6_000_000_000))
	case s.chance(s.profile.time):
		return time.Duration(1 + s.rng.IntN(200_000_000))
	}
	return 0
}

// judge decides how a call goes on.
func (s *simulation) judge(c *call) verdict {
	p := &s.profile
	expired := c.ctx.Err() != nil
	if s.calm && !expired || p.faultless {
		return goOn
	}
	switch c.kind {
	case callThink, callHear:
		return goOn
	case callDB, callInsert, callStep:
		if s.away(c.inc) {
			return noEffect
		}
	case callCommit:
		if s.away(c.inc) {
			return cutOff
		}
	case callPublish, callAnswer:
	}
	switch c.kind {
	case callCommit:
		if s.chance(p.commitFail) {
			return pickOne(s.scheduler, []verdict{noEffect, answerLost, cutOff})
		}
		return goOn
	case callDB, callInsert:
		switch {
		case expired:
			return pickOne(s.scheduler, []verdict{noEffect, answerLost})
		case s.chance(p.dbFail):
			return noEffect
		case s.chance(p.dbLost):
			return answerLost
		case s.chance(p.dbSlow):
			return slow
		case c.kind == callDB && s.chance(p.dbLocked):
			return locked
		}
		return goOn
	case callStep:
		if expired || s.chance(p.dbFail/4) {
			return noEffect
		}
		return goOn
	case callAnswer:
		if expired || s.chance(p.dbLost) {
			return answerLost
		}
		return goOn
	}
	return s.judgePublish(c, expired)
}

func (s *simulation) judgePublish(c *call, expired bool) verdict {
	p := &s.profile
	switch {
	case expired:
		switch {
		case s.calm:
			return timedOut
		case s.chance(0.3):
			return goOn
		case s.chance(p.lost * 2):
			return answerLost
		case s.chance(p.late * 2):
			return s.later(c)
		}
		return timedOut
	case s.outage[c.topic] > s.steps.Load():
		return unavailable
	case s.chance(p.refuse):
		return refuse
	case s.chance(p.forbid):
		return forbid
	case s.chance(p.unavailable):
		return unavailable
	case s.chance(p.keyless):
		return keyless
	case s.chance(p.heldBack):
		return heldBack
	case s.chance(p.lost):
		return answerLost
	case s.chance(p.late):
		return s.later(c)
	case s.chance(p.pubSlow):
		return slow
	}
	return goOn
}

// away reports whether a process does not reach the database.
func (s *simulation) away(inc *incarnation) bool { return inc.proc.cutTo > s.steps.Load() }

// later arranges that the destination accepts the event after the process gave it up.
func (s *simulation) later(c *call) verdict {
	s.pending = append(s.pending, c)
	return late
}

// recover starts a process that has been down for long enough, and reports whether it did.
func (s *simulation) recover() bool {
	for _, p := range s.processes {
		switch {
		case !s.calm && p.upAt > s.steps.Load():
		case p.inc == nil:
			p.boot()
			return true
		case p.inc.stopAsked && p.inc.gone():
			p.inc.run()
			s.note(p.inc.name() + " relays again")
			return true
		}
	}
	return false
}

// disturb causes trouble in the simulated world, and reports whether it did.
func (s *simulation) disturb() bool {
	now := s.steps.Load()
	p := pickOne(s.scheduler, s.processes)
	if p.inc == nil {
		return false
	}
	pr := &s.profile
	if s.chance(pr.stop) && !p.inc.stopAsked {
		p.inc.stopAsked = true
		p.upAt = now + uint64(s.rng.IntN(100))
		p.inc.stop()
		s.note(p.inc.name() + " stops relaying")
		return true
	}
	if s.chance(pr.rate) {
		s.note(s.operator.limit(s.scheduler))
		return true
	}
	if s.chance(pr.hold) {
		s.note(s.operator.pause(s.scheduler))
		return true
	}
	if s.chance(pr.replay) {
		return s.replay()
	}
	if s.chance(pr.edit) && s.edit() {
		return true
	}
	if s.spent >= pr.budget {
		return false
	}
	s.spent++
	switch {
	case s.chance(pr.crash):
		p.upAt = now + uint64(s.rng.IntN(100))
		p.kill()
	case s.chance(pr.pause):
		p.pausedTo = now + uint64(s.rng.IntN(60))
		s.note(p.inc.name() + " is paused")
	case s.chance(pr.cut):
		p.cutTo = now + uint64(s.rng.IntN(60))
		s.note(p.inc.name() + " is cut off from the database")
	case s.chance(pr.clock):
		d := time.Duration(s.rng.IntN(20_000)-10_000) * time.Millisecond
		if s.chance(0.1) {
			d = 25 * time.Hour
		}
		s.truth.jump(d)
		s.note(fmt.Sprintf("the database's clock jumps by %s", d))
	case s.chance(pr.timeline):
		s.repo.NextTimeline()
		s.note("the database fails over")
	case s.chance(pr.outage):
		topic := pickOne(s.scheduler, []string{"a", "b"})
		s.outage[topic] = now + uint64(s.rng.IntN(150))
		s.note(topic + " is not there")
	case s.chance(pr.redrive):
		return s.administrate(true)
	case s.chance(pr.discard):
		return s.administrate(false)
	default:
		s.spent--
		return false
	}
	return true
}

// acceptLate lets the destination accept an event late. The publisher tells its process or does not
// know.
func (s *simulation) acceptLate(i int) {
	c := s.pending[i]
	s.pending = slices.Delete(s.pending, i, i+1)
	s.truth.accepted(c.fact.id)
	s.note("late copy of " + c.fact.name)
	if !c.inc.dead.Load() && s.chance(0.5) {
		s.truth.mu.Lock()
		s.truth.answered(c.fact, true)
		c.inc.acked[c.fact.topic] = true
		s.truth.mu.Unlock()
		s.note(c.inc.name() + " hears of it")
		c.late("", nil)
	}
}

// administrate redrives or discards a row, as a person may do.
func (s *simulation) administrate(redrive bool) bool {
	rows := slices.DeleteFunc(s.repo.Rows(), func(r outboxtest.Row) bool {
		if redrive { // under SkipDead an ordered event would get a new random id
			return r.Status != outboxtest.StatusDead || s.truth.policy == core.SkipDead && !r.KeyID.IsZero()
		}
		return r.Status == outboxtest.StatusDone || r.Status == outboxtest.StatusDiscarded
	})
	if len(rows) == 0 {
		return false
	}
	id := pickOne(s.scheduler, rows).ID
	req := core.AdminRequest{IDs: []core.RowID{id}, Actor: "somebody", Reason: "because"}
	what := "redrive"
	act := s.repo.Redrive
	if !redrive {
		what, act = "discard", s.repo.Discard
	}
	n, err := act(context.Background(), req)
	if err != nil {
		panic(err)
	}
	if n > 0 {
		s.truth.administrated(id, redrive)
	}
	s.note(fmt.Sprintf("%s %s: %d", what, s.truth.name(id), n))
	return true
}
