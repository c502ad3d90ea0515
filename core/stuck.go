package core

import (
	"errors"
	"time"
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
func (r *relay) abandonPublish(it *item, now time.Time) {
	d := it.dest
	replace, lost := false, it.handover == nil || it.handover.lose()
	if lost {
		replace = r.crew.lose()
	}
	d.stuck++
	d.clogged = d.stuck >= r.crew.stuckMost(it)
	p := published{err: errStuck, started: it.timing.started, ended: now, stopped: r.life.publishes.Err() != nil}
	it.timing.stuck = true
	info := r.conclude(it, p)
	if d.clogged && !d.open {
		r.stopDestination(d, it, errStuck)
	}
	total, eventID, clogged, after := r.crew.abandoned(), it.delivery.ID, d.clogged, now.Sub(p.started)
	r.notices.add(func() {
		if info.Result != "" {
			r.o.obs.Published(info)
		}
		r.o.obs.Stuck(d.topic, total)
		r.cfg.Logger.Error("outbox: publisher ignores the end of its context; the event is given up and may be "+
			"published twice", "component", "outbox",
			"destination", d.topic, "event_id", eventID, "after", after, "stuck", total, "destination_gets_no_more",
			clogged)
	})
	if replace {
		r.life.workers.Go(r.worker)
		return
	}
	if r.crew.noneLeft() {
		r.standStill()
	}
	r.crew.work.Signal() // a replayed event may go now, and this worker does not look for one
}

// standStill gives back the waiting items: no worker is left to publish them, and other processes
// may have them.
func (r *relay) standStill() {
	for _, it := range r.inflight.sorted() {
		if it.state == itemWaiting || it.state == itemReady {
			r.release(it, FallbackStopped, false)
		}
	}
	r.notices.add(func() {
		r.cfg.Logger.Error("outbox: every publish of this process is stuck: it relays nothing until one returns; "+
			"restart it", "component", "outbox")
	})
}

// returned is called under the lock when an abandoned publish has returned after all. It reports
// whether its worker goes on.
func (r *relay) returned(it *item, p published) (goOn bool) {
	d := it.dest
	d.stuck--
	d.clogged = d.stuck >= r.crew.stuckMost(it)
	if it.handover == nil {
		goOn = r.crew.back() && r.life.phase < phaseStopping
	} else {
		r.crew.answeredLate(it)
	}
	total := r.crew.abandoned()
	r.notices.add(func() { r.o.obs.Stuck(d.topic, total) })
	r.wakeForRoom()
	r.wakes.poll(time.Now())
	if p.err == nil {
		r.acceptedLate(it, p.receipt, p.ended)
	}
	return goOn
}

// workerBack is called when a worker returns from the call of an AsyncPublisher in which it was
// given up. It reports whether the worker goes on.
func (r *relay) workerBack() (goOn bool) {
	r.mu.Lock()
	defer r.unlock()
	goOn = r.crew.back() && r.life.phase < phaseStopping
	r.wakeForRoom()
	return goOn
}
