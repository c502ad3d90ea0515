package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

type simTx interface {
	core.Tx
	Commit() error
	Rollback() error
	FailCommit(f outboxtest.CommitFault)
}

// commit sends COMMIT, which can fail in every way.
func (p *producer) commit(inc *incarnation, tx simTx) error {
	v := p.sim.park(&call{name: inc.name() + " " + p.name + " commits", kind: callCommit, inc: inc, ctx: inc.ctx})
	switch v {
	case died:
		_ = tx.Rollback()
		return errDied
	case diedAfter:
		_ = tx.Commit()
		return errDied
	case noEffect:
		tx.FailCommit(outboxtest.CommitRefused)
	case answerLost:
		tx.FailCommit(outboxtest.CommitAnswerLost)
	case cutOff:
		tx.FailCommit(outboxtest.CommitNotSent)
	}
	return tx.Commit()
}

// simPublisher is the destination as one process sees it.
type simPublisher struct {
	sim *simulation
	inc *incarnation
}

func (p *simPublisher) Publish(ctx context.Context, d core.Delivery) error {
	f := p.sim.truth.fact(d.RowID)
	leave := p.enter(f)
	defer leave()
	if !p.inc.dead.Load() {
		p.sim.truth.begun(p.inc, f, p.inc.ob.Node())
	}
	name := fmt.Sprintf("%s publishes %s", p.inc.name(), f.name)
	c := &call{name: name, kind: callPublish, inc: p.inc, ctx: ctx, topic: d.Topic, fact: f}
	v := p.sim.park(c)
	switch v {
	case goOn, slow, answerLost:
		p.sim.truth.accepted(d.RowID)
		if v == slow {
			v = p.sim.park(&call{name: name + " = accepted", kind: callAnswer, inc: p.inc, ctx: ctx})
		}
	}
	if v == goOn || v == died || v == diedAfter {
		p.sim.truth.mu.Lock()
		defer p.sim.truth.mu.Unlock()
		p.sim.truth.answered(f, true)
		return nil
	}
	return p.answer(ctx, f, v)
}

// answer returns the result that the process gets for a publish with a fault.
func (p *simPublisher) answer(ctx context.Context, f *fact, v verdict) error {
	t := p.sim.truth
	t.mu.Lock()
	defer t.mu.Unlock()
	switch v {
	case answerLost:
		f.lostAcks++
	case late:
		f.lateCopies++
	case forbid:
		t.answered(f, false)
		f.forbidden = true
		return core.Permanent(errors.New("forbidden"))
	case unavailable:
		return core.Unavailable(errors.New("nobody there"))
	case keyless:
		return core.UnavailableForKey(errors.New("no leader"))
	}
	if errors.Is(ctx.Err(), context.Canceled) { // the relay stops, so the error does not concern the event
		return ctx.Err()
	}
	t.answered(f, false)
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.New("refused or lost")
}

// flight is a publish that has not returned.
type flight struct{ start time.Time }

// stuck reports whether the relay may have given the publish up.
func (f *flight) stuck() bool { return time.Since(f.start) >= 2*simPublishTimeout }

// enter counts the publishes of a lane. A process never has more than one at a time, apart from
// publishes that do not return.
func (p *simPublisher) enter(f *fact) (leave func()) {
	t := p.sim.truth
	t.mu.Lock()
	defer t.mu.Unlock()
	this := &flight{time.Now()}
	f.flights = append(f.flights, this)
	if !f.lane.IsZero() {
		if slices.ContainsFunc(p.inc.lanes[f.lane], func(o *flight) bool { return !o.stuck() }) && !p.inc.dead.Load() {
			t.wrong("I4", "%s is published while an event before it is", f.name)
		}
		p.inc.lanes[f.lane] = append(p.inc.lanes[f.lane], this)
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if this.stuck() {
			f.lateCopies++
			f.refusals++
		}
		f.flights = slices.DeleteFunc(f.flights, func(o *flight) bool { return o == this })
		p.inc.lanes[f.lane] = slices.DeleteFunc(p.inc.lanes[f.lane], func(o *flight) bool { return o == this })
	}
}
