package relay_test

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

// publisher returns the destination as a process sees it.
func (s *simulation) publisher(inc *incarnation) core.Publisher {
	plain := &simPublisher{sim: s, inc: inc}
	switch s.profile.async {
	case 1:
		r := core.NewRouter()
		r.Handle("a", asyncSimPublisher{plain})
		r.Handle("b", plain)
		return r
	case 2:
		return asyncSimPublisher{plain}
	}
	return plain
}

// asyncSimPublisher answers in the order that the schedule says, and more than once.
type asyncSimPublisher struct{ *simPublisher }

func (p asyncSimPublisher) PublishAsync(ctx context.Context, d core.Delivery, done func(string, error)) {
	f, leave := p.begin(d)
	end := p.count()
	go func() {
		err := p.send(ctx, d, f, done)
		leave()
		end()
		done("", err)
		done("", errors.New("a second answer"))
	}()
}

// count counts the events that the publisher has.
func (p asyncSimPublisher) count() (end func()) {
	t, most := p.sim.truth, p.sim.profile.relay().InFlight
	t.mu.Lock()
	defer t.mu.Unlock()
	this := &flight{time.Now()}
	p.inc.handed = append(p.inc.handed, this)
	left := 0
	for _, fl := range p.inc.handed {
		if fl.stuck() {
			left++
		}
	}
	if n := len(p.inc.handed); !p.inc.dead.Load() && (n-left > most || n > 2*most) {
		t.wrong("I11", "%s has handed over %d events, %d of which it may have given up, and may %d",
			p.inc.name(), n, left, most)
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		p.inc.handed = slices.DeleteFunc(p.inc.handed, func(o *flight) bool { return o == this })
	}
}

func (p *simPublisher) Publish(context.Context, core.Delivery) error { panic("it is a LatePublisher") }

func (p *simPublisher) PublishLate(ctx context.Context, d core.Delivery, late func(string, error)) (string, error) {
	f, leave := p.begin(d)
	defer leave()
	return "", p.send(ctx, d, f, late)
}

// begin notes that a publish begins.
func (p *simPublisher) begin(d core.Delivery) (f *fact, leave func()) {
	f = p.sim.truth.fact(d.RowID)
	leave = p.enter(f)
	if !p.inc.dead.Load() {
		p.sim.truth.begun(p.inc, f, p.inc.ob.Node())
	}
	return f, leave
}

// send is the publish, as the schedule says.
func (p *simPublisher) send(ctx context.Context, d core.Delivery, f *fact, late func(string, error)) error {
	name := fmt.Sprintf("%s publishes %s", p.inc.name(), f.name)
	c := &call{name: name, kind: callPublish, inc: p.inc, ctx: ctx, topic: d.Topic, fact: f, late: late}
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
		p.inc.acked[f.topic] = true
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
	case heldBack: // for longer than the pause between two probes
		return core.UnavailableFor(errors.New("come back later"), 1500*time.Millisecond)
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
