package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// pick takes the next item to publish, or nil. It takes none of the fast path while too many marks
// of the fast path are not written, which bounds how many of its events a crash can repeat. While it
// is not known what operators have set, it takes none at all.
func (s *state) pick() *item {
	for s.phase < phaseStopping && s.operators.known() {
		if s.crew.handovers.full() {
			s.crew.handovers.blocked = true
			return nil
		}
		var now time.Time
		var it *item
		if len(s.dests.limited) > 0 {
			now = time.Now()
			it = s.nextParked(now)
		}
		parked := it != nil
		if !parked {
			it = s.crew.queue.pop(s.marks.held < s.cfg.MaxUnmarked, s.mayReplay())
		}
		switch {
		case it == nil:
			return nil
		case it.dest.open && !it.role.probe, s.dests.paused.holdEvent(it.dest.topic, it.tenant):
			s.release(it, core.FallbackStopped, false)
			s.stopLane(it.lane, core.FallbackStopped, false)
		case !parked && !s.mayGo(it, now):
		default:
			if it.role.suspect {
				s.crew.queue.suspects.out = it
			}
			s.move(it, itemPublishing)
			s.takePlace(it)
			s.taken(it, now)
			return it
		}
	}
	return nil
}

// job is an item that a worker publishes. The item itself is guarded.
type job struct {
	it       *item
	delivery *core.Delivery // does not change any more
	path     core.Path
	suspect  bool
	renew    bool      // its lease must be renewed first
	handover *handover // of an AsyncPublisher
}

// worker publishes items until shutdown or until it is not needed.
func (r *engine) worker() {
	var it *item // the item that is with the publisher
	defer func() {
		// runtime.Goexit: another goroutine takes over
		if it != nil && r.finish(it, published{err: errGoexit, ended: time.Now()}) {
			r.life.workers.Go(r.worker)
		}
	}()
	for {
		j, ok := r.nextJob()
		if !ok {
			return
		}
		var p published
		ready := true
		if j.suspect { // its lease is checked last, because the steps before take time
			ready, j.renew = r.prepareSuspect(j)
		}
		switch {
		case !ready:
			p.unsent = true
		case j.renew && !r.renewToPublish(j.it):
			p.lost = true
		case j.handover != nil:
			if !r.handOver(j.handover) {
				return
			}
			continue
		default:
			it = j.it
			p = r.publish(j)
			it = nil
		}
		goOn := r.finish(j.it, p)
		if j.handover != nil { // it was not handed over
			r.life.workers.Done()
		}
		if !goOn {
			return
		}
	}
}

// nextJob waits for an item to publish. It returns false if the worker is to stop.
func (r *engine) nextJob() (j job, ok bool) {
	for {
		var more <-chan bool
		r.do(func(s *state) {
			if j, ok = s.nextJob(); !ok && s.crew.rest() {
				more = s.crew.more
			}
		})
		if ok {
			break
		}
		if more == nil || !<-more {
			return j, false
		}
	}
	if j.handover != nil {
		j.handover.r = r
		r.life.workers.Add(1) // until finish has returned
	}
	return j, ok
}

// nextJob takes an item to publish, if there is one.
func (s *state) nextJob() (j job, ok bool) {
	it := s.pick()
	if it == nil {
		return j, false
	}
	j = job{it: it, delivery: &it.delivery, path: it.path, suspect: it.role.suspect, handover: it.handover}
	if !j.suspect { // see prepareSuspect
		j.renew = !s.begins(it)
	}
	return j, true
}

// begins lets the publish of an item begin, and reports whether its lease is long enough for that.
func (s *state) begins(it *item) bool {
	now := time.Now()
	if it.lease.deadline.Sub(now) < s.cfg.PublishTimeout+s.cfg.LeaseMargin {
		return false
	}
	it.timing.started = now
	return true
}

// finish records the result of a publish and reports whether its worker goes on.
func (r *engine) finish(it *item, p published) (goOn bool) {
	p.stopped = p.stopped || p.unsent && r.life.publishes.Err() != nil
	if p.accepted() {
		r.life.vitals.stamp(&r.life.vitals.published)
	}
	var info core.PublishInfo
	r.do(func(s *state) { goOn, info = s.finish(it, p) })
	if info.Result != "" {
		r.obs.Published(info)
	}
	return goOn
}

func (s *state) finish(it *item, p published) (goOn bool, info core.PublishInfo) {
	if it.timing.stuck {
		s.returned(it, p)
		return false, info
	}
	if p.started.IsZero() {
		p.started = it.timing.started
	}
	return true, s.conclude(it, p)
}

// published is how a publish ended.
type published struct {
	receipt string
	err     error
	lost    bool // not sent: the lease was lost
	unsent  bool // not sent: the start of the publish could not be written down
	stopped bool // the relay ends, and cancelled it
	started time.Time
	ended   time.Time
}

// accepted reports whether the destination has accepted the event.
func (p *published) accepted() bool { return p.err == nil && !p.lost && !p.unsent }

var errPanic = errors.New("outbox: publisher panicked")

// publish calls the publisher once, with a deadline.
func (r *engine) publish(j job) (p published) {
	ctx, cancel := context.WithTimeout(r.life.publishes, r.cfg.PublishTimeout)
	defer cancel()
	p.started = time.Now()
	defer func() {
		if v := recover(); v != nil {
			panicked := core.NewPanicError(v)
			p.err = fmt.Errorf("%w: %v", errPanic, panicked.Value)
			r.ob.Logger.Error("outbox: publisher panicked", "destination", j.delivery.Topic,
				"event_id", j.delivery.ID, "error", errtext.Of(p.err), "stack", string(panicked.Stack))
		}
		p.ended = time.Now()
		p.stopped = p.err != nil && r.life.publishes.Err() != nil
	}()
	if t := r.ob.Tracer; t != nil && t.Send != nil {
		p.receipt, p.err = r.traced(ctx, *j.delivery, j.path, r.lateAnswer(j))
	} else {
		p.receipt, p.err = r.send(ctx, *j.delivery, r.lateAnswer(j))
	}
	return p
}
