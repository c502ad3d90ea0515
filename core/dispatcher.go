package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pick takes the next item to publish, or nil. It takes none of the fast path while too many marks
// of the fast path are not written, which bounds how many of its events a crash can repeat.
func (r *relay) pick() *item {
	for r.life.phase < phaseStopping {
		if r.crew.handovers.full() {
			r.crew.handovers.blocked = true
			return nil
		}
		var now time.Time
		var it *item
		if len(r.dests.limited) > 0 {
			now = time.Now()
			it = r.nextParked(now)
		}
		parked := it != nil
		if !parked {
			it = r.crew.queue.pop(r.writer.marks.held < r.cfg.MaxUnmarked, r.mayReplay())
		}
		switch {
		case it == nil:
			return nil
		case it.dest.open && !it.role.probe, r.dests.paused.holdEvent(it.dest.topic, it.tenant):
			r.release(it, FallbackStopped, false)
			r.stopLane(it.lane, FallbackStopped, false)
		case !parked && !r.mayGo(it, now):
		default:
			if it.role.suspect {
				r.crew.queue.suspects.out = it
			}
			r.move(it, itemPublishing)
			r.takePlace(it)
			r.taken(it, now)
			return it
		}
	}
	return nil
}

// worker publishes one item after another until it is told to stop.
func (r *relay) worker() {
	var it *item // the item that is with the publisher
	defer func() {
		// runtime.Goexit: another goroutine takes over
		if it != nil && r.end(it, published{err: errGoexit, ended: time.Now()}) {
			r.life.workers.Go(r.worker)
		}
	}()
	for {
		next, renew := r.nextItem()
		if next == nil {
			return
		}
		var p published
		ready := true
		if next.role.suspect { // its lease is checked last, because the steps before take time
			ready, renew = r.prepareSuspect(next)
		}
		switch {
		case !ready:
			p.unsent = true
		case renew && !r.renewToPublish(next):
			p.lost = true
		case next.handover != nil:
			if !r.handOver(next.handover) {
				return
			}
			continue
		default:
			it = next
			p = r.publish(next)
			it = nil
		}
		goOn := r.end(next, p)
		if next.handover != nil { // it was not handed over
			r.life.workers.Done()
		}
		if !goOn {
			return
		}
	}
}

// nextItem waits for an item to publish. A nil item means that the worker stops. renew says that
// the lease of the item must be renewed first.
func (r *relay) nextItem() (it *item, renew bool) {
	r.mu.Lock()
	defer r.unlock()
	for {
		if it = r.pick(); it != nil {
			if it.role.suspect { // see prepareSuspect
				return it, false
			}
			now := time.Now()
			if it.lease.deadline.Sub(now) < r.cfg.PublishTimeout+r.cfg.LeaseMargin {
				return it, true
			}
			it.timing.started = now
			return it, false
		}
		if r.life.phase >= phaseStopping {
			return nil, false
		}
		if r.notices.wait() {
			r.unlock()
			r.mu.Lock()
			continue
		}
		r.crew.work.Wait()
	}
}

// end notes how a publish ended and reports whether its worker goes on.
func (r *relay) end(it *item, p published) bool {
	r.mu.Lock()
	if it.timing.stuck {
		defer r.unlock()
		return r.returned(it, p)
	}
	if p.started.IsZero() {
		p.started = it.timing.started
	}
	info := r.conclude(it, p)
	r.unlock()
	if info.Result != "" {
		r.o.obs.Published(info)
	}
	return true
}

// published is how a publish ended.
type published struct {
	receipt string
	err     error
	lost    bool // not sent: the lease was lost
	unsent  bool // not sent: the start of the publish could not be written down
	stopped bool // cancelled by shutdown
	started time.Time
	ended   time.Time
}

var errPanic = errors.New("outbox: publisher panicked")

// publish calls the publisher once, with a deadline.
func (r *relay) publish(it *item) (p published) {
	ctx, cancel := context.WithTimeout(r.life.publishes, r.cfg.PublishTimeout)
	defer cancel()
	p.started = time.Now()
	defer func() {
		if v := recover(); v != nil {
			panicked := NewPanicError(v)
			p.err = fmt.Errorf("%w: %v", errPanic, panicked.Value)
			r.cfg.Logger.Error("outbox: publisher panicked", "component", "outbox", "destination", it.delivery.Topic,
				"event_id", it.delivery.ID, "err", errorText(p.err), "stack", string(panicked.Stack))
		}
		p.ended = time.Now()
		p.stopped = p.err != nil && r.life.publishes.Err() != nil
	}()
	if t := r.cfg.Tracer; t != nil && t.Send != nil {
		p.receipt, p.err = r.o.traced(ctx, it, r.lateAnswer(it))
	} else {
		p.receipt, p.err = r.o.send(ctx, it.delivery, r.lateAnswer(it))
	}
	return p
}

// conclude hands the result of a publish to the writer, and lets the lane go on or stops it.
func (r *relay) conclude(it *item, p published) PublishInfo {
	info := PublishInfo{
		Topic: it.delivery.Topic, Type: it.delivery.Type, Path: it.path, Attempt: it.delivery.Attempt,
		Duration: p.ended.Sub(p.started), Lag: it.timing.age + p.ended.Sub(it.timing.since), Err: p.err,
	}
	if it.role.probe {
		it.dest.probing = false
	}
	r.crew.freePlace(it)
	r.lanes.leave(it)
	switch {
	case p.lost:
		r.fellBack(it, FallbackLost)
		r.stopLane(it.lane, FallbackLost, true)
		r.forget(it)
		return PublishInfo{}
	case p.unsent && r.life.publishes.Err() == nil:
		r.stopLane(it.lane, FallbackStopped, false)
		r.fail(it, Failure{
			Kind: FailUnavailable, Delay: jittered(unsentPause, 0.5+r.random()/2), Code: codeLostClaims,
			Message: "it could not be written down that this event is published",
		})
		return PublishInfo{}
	case (p.stopped || p.unsent) && it.role.unproven: // a release would leave it waiting for as long as after a death
		r.stopLane(it.lane, FallbackShutdown, false)
		r.fail(it, Failure{
			Kind: FailUnavailable, Code: codeLostClaims, Message: "the relay ended while this event was tried alone",
		})
		return PublishInfo{}
	case p.unsent, p.stopped:
		r.stopLane(it.lane, FallbackShutdown, false)
		r.release(it, FallbackShutdown, false)
		return PublishInfo{}
	case p.err == nil:
		info.Result = PublishDone
		r.life.vitals.stamp(&r.life.vitals.published)
		it.mark.receipt = clip(p.receipt, 250)
		r.move(it, itemAcked)
		r.acked(it, p.ended)
		r.writer.addAck(it)
		r.laneAcked(it)
		return info
	}

	var f Failure
	f, info.Result = r.judge(it, p)
	r.fail(it, f)
	r.stopLane(it.lane, FallbackStopped, false)
	return info
}

// fail hands the failure of an item to the writer.
func (r *relay) fail(it *item, f Failure) {
	f.ClaimRef = ClaimRef{ID: it.id, ClaimNo: it.lease.claimNo}
	f.SkipDead = f.Kind == FailDead && r.cfg.DeadPolicy == SkipDead
	it.mark.failure = f
	r.move(it, itemFailed)
	r.writer.add(it)
}

// judge decides what a failed publish means for the destination and for the row.
func (r *relay) judge(it *item, p published) (Failure, PublishResult) {
	f := Failure{Message: errorText(p.err)}
	class := r.classify(it, p)
	f.Code = class.String()
	if class == ClassUnroutable && it.dest.lastAck.IsZero() {
		class = ClassUnavailable
	}
	switch {
	case errors.Is(p.err, errPanic):
		f.Code = "panic"
	case errors.Is(p.err, errGoexit):
		f.Code = "goexit"
	case errors.Is(p.err, errStuck):
		f.Code = "stuck"
	case isTimeout(p.err):
		f.Code = "timeout"
	}

	switch class {
	case ClassUnroutable: // this process has seen the topic accept an event
		if r.refused(it, p.err) == refusalOutage {
			if it.role.probe {
				r.probeFailed(it, p.err)
			}
			f.Kind, f.Delay = FailUnavailable, it.dest.pause()
			break
		}
		f.Kind = FailDead
	case ClassPermanent:
		f.Kind = FailDead
		if it.role.probe && it.dest.open { // the failure says nothing about the destination
			r.probeLater(it.dest, p.ended)
		}
	case ClassKeyUnavailable:
		if it.role.probe && it.dest.open {
			r.probeFailed(it, p.err)
		}
		f.Kind = FailUnavailable
		if f.Delay = putOff(p.err); f.Delay == 0 {
			f.Delay = jittered(r.cfg.Breaker.ProbeInterval, 0.5+r.random()/2)
		}
	case ClassUnavailable:
		r.unavailable(it, p.err)
		f.Kind, f.Delay = FailUnavailable, it.dest.pause()
	case ClassTransient:
		wasOpen, retry := it.dest.open, r.cfg.retry(it.delivery.Type)
		switch r.refused(it, p.err) {
		case refusalOutage:
			if wasOpen && it.role.probe {
				r.probeFailed(it, p.err)
			}
			f.Kind, f.Delay = FailUnavailable, it.dest.pause()
		case refusalSpares:
			f.Kind = FailUnavailable
			f.Delay = min(retry.delay(it.attempts+1, r.random()), r.cfg.Breaker.MaxProbeInterval)
		case refusalCounts:
			it.attempts++
			if it.attempts >= retry.MaxAttempts {
				f.Kind = FailDead
				break
			}
			f.Kind, f.Delay = FailRetry, retry.delay(it.attempts, r.random())
		}
	}

	switch f.Kind {
	case FailDead:
		r.noteDead(it, f)
		return f, PublishDead
	case FailRetry:
		return f, PublishRetry
	case FailUnavailable:
	}
	return f, PublishUnavailable
}

// classify returns the class of the error. A timeout does not count against the event if the
// destination acknowledged no other event meanwhile.
func (r *relay) classify(it *item, p published) Class {
	if class, marked := ClassOf(p.err); marked {
		return class
	}
	if isTimeout(p.err) || errors.Is(p.err, errStuck) {
		if it.dest.lastAck.After(p.started) {
			return ClassTransient
		}
		return ClassUnavailable
	}
	if errors.Is(p.err, errPanic) || errors.Is(p.err, errGoexit) {
		return ClassTransient
	}
	return r.cfg.Classifier(p.err)
}

func (r *relay) noteDead(it *item, f Failure) {
	d := it.delivery
	r.notices.add(func() {
		args := []any{
			"component", "outbox", "event_id", d.ID, "event_type", d.Type, "destination", d.Topic,
			"row_id", d.RowID.String(), "attempt", d.Attempt, "error_code", f.Code, "err", f.Message,
		}
		if !d.ReplayOf.IsZero() {
			args = append(args, "replay_of", d.ReplayOf.String())
		}
		r.cfg.Logger.Error("outbox: event is dead: redrive or discard it", args...)
	})
}
