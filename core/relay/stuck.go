package relay

import (
	"errors"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// A publish is stuck if it has not returned one more PublishTimeout after its context ended: its
// publisher ignores the context. No code can end it, so the relay goes on without it. The event
// counts as timed out, the items behind it are given back, and a new worker replaces the lost one.
// If the publish succeeds in the end, the row is marked as after any other publish, and there may
// be a second copy. The key of the event went on only after an acknowledgement that a relay saw, so
// no first copy is out of order.

// errStuck is the failure of a publish that was abandoned.
var errStuck = errors.New("outbox: publisher ignores the end of its context: the publish has not returned")

// errGoexit is the failure of a publish whose publisher ended its goroutine.
var errGoexit = errors.New("outbox: publisher called runtime.Goexit")

// abandonPublish goes on without a stuck publish.
func (s *state) abandonPublish(it *item, now time.Time, stopped bool) {
	d := it.dest
	if it.handover == nil || it.handover.lose() {
		s.crew.lose()
	}
	d.stuck++
	d.clogged = d.stuck >= s.crew.stuckMost(it)
	p := published{err: errStuck, started: it.timing.started, ended: now, stopped: stopped}
	it.timing.stuck = true
	info := s.conclude(it, p)
	if d.clogged && !d.open {
		s.stopDestination(d, it, errStuck)
	}
	total, eventID, clogged, after := s.crew.abandoned(), it.delivery.ID, d.clogged, now.Sub(p.started)
	s.effects.Call(func() {
		if info.Result != "" {
			s.obs.Published(info)
		}
		s.obs.Stuck(d.topic, total)
		s.ob.Logger.Error("outbox: publisher ignores the end of its context; the event is given up and may be "+
			"published twice", "destination", d.topic, "event_id", eventID, "after", after, "stuck", total,
			"destination_gets_no_more",
			clogged)
	})
	if s.crew.noneLeft() {
		s.standStill()
	}
	s.crew.wake() // a replayed event may go now, and this worker does not look for one
}

// standStill gives back the waiting items: no worker is left to publish them, and other processes
// may have them.
func (s *state) standStill() {
	for _, it := range s.inflight.sorted() {
		if it.state == itemWaiting || it.state == itemReady {
			s.release(it, core.FallbackStopped, false)
		}
	}
	s.effects.Call(func() {
		s.ob.Logger.Error("outbox: every publish of this process is stuck: it relays nothing until one returns; " +
			"restart it")
	})
}

// returned is called when an abandoned publish has returned after all. Its worker ends.
func (s *state) returned(it *item, p published) {
	d := it.dest
	d.stuck--
	d.clogged = d.stuck >= s.crew.stuckMost(it)
	if it.handover == nil {
		s.crew.back()
	} else {
		s.crew.answeredLate(it)
	}
	total := s.crew.abandoned()
	s.effects.Call(func() { s.obs.Stuck(d.topic, total) })
	s.wakeForRoom()
	s.wakes.poll(time.Now())
	if p.err == nil {
		s.acceptedLate(it, p.receipt, p.ended)
	}
}

// workerBack is called when a worker returns from the call of an AsyncPublisher in which it was
// given up. The worker ends.
func (r *engine) workerBack() {
	r.do(func(s *state) {
		s.crew.back()
		s.wakeForRoom()
	})
}
