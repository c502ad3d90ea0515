package core

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/mutant"
)

// ready makes an item available to the workers.
func (r *relay) ready(it *item) {
	it.state = itemReady
	switch {
	case it.lone:
		r.suspects.queue.push(it)
	case it.path == PathHot:
		r.hot.push(it)
	case it.dest.refusals.knows(it.id):
		r.again.push(it)
	default:
		r.cold.push(it)
	}
	r.work.Signal()
}

// coldShare: of that many picks one prefers the cold queue and one what was refused before, so that a busy fast path never starves
// them.
const coldShare = 8

// next takes the first of the queued items: mostly fast path before table before what was refused before.
func (r *relay) next() (it *item, ok bool) {
	queues := [3]*queue[*item]{&r.hot, &r.cold, &r.again}
	switch r.picks++; r.picks % coldShare {
	case 0:
		queues = [3]*queue[*item]{&r.cold, &r.hot, &r.again}
	case coldShare / 2:
		queues = [3]*queue[*item]{&r.again, &r.hot, &r.cold}
	}
	for _, q := range queues {
		if it, ok = q.pop(); ok {
			return it, true
		}
	}
	return nil, false
}

// pick takes the next item to publish, or nil. Publishing is held back while too many outcomes are unwritten: that bounds
// what a crash can repeat.
func (r *relay) pick() *item {
	for {
		if r.stopPicks || r.unwritten >= r.cfg.MaxUnmarked {
			return nil
		}
		it, lone := r.suspects.next(r.hot.len() + r.cold.len() + r.again.len())
		ok := lone
		if !ok {
			it, ok = r.next()
		}
		switch {
		case !ok:
			return nil
		case it.state != itemReady: // dropped meanwhile
		case it.lone && !lone: // it has become a suspect
			r.suspects.queue.push(it)
		case it.dest.open && !it.probe:
			r.release(it, DropStopped, false)
			r.stopLane(it.lane, DropStopped, false)
		default:
			if it.lone {
				r.suspects.out = it
			}
			it.state = itemPublishing
			r.publishing++
			return it
		}
	}
}

// worker publishes one item after the other until it is told to stop.
func (r *relay) worker() {
	var it *item // with the publisher
	defer func() {
		if it != nil && r.end(it, published{err: errGoexit, ended: time.Now()}) { // runtime.Goexit: another goroutine goes on
			r.wg.Go(r.worker)
		}
	}()
	for {
		next, renew := r.nextItem()
		if next == nil {
			return
		}
		var p published
		ready := true
		if next.lone { // its lease is looked at last: what comes before takes time
			ready, renew = r.prepareLone(next)
		}
		switch {
		case !ready:
			p.unsent = true
		case renew && !r.renewToPublish(next):
			p.lost = true
		default:
			it = next
			p = r.publish(next)
			it = nil
		}
		if !r.end(next, p) {
			return
		}
	}
}

// nextItem waits for an item to publish; nil: the worker is to stop. renew says that its lease has to be renewed first.
func (r *relay) nextItem() (it *item, renew bool) {
	r.mu.Lock()
	defer r.unlock()
	for {
		if it = r.pick(); it != nil {
			if it.lone { // see prepareLone
				return it, false
			}
			now := time.Now()
			if it.deadline.Sub(now) < r.cfg.PublishTimeout+r.cfg.LeaseMargin && mutant.Active != mutant.StaleLease {
				return it, true
			}
			it.started = now
			return it, false
		}
		if r.stopPicks {
			return nil, false
		}
		if len(r.notes) > 0 && !r.telling {
			r.unlock()
			r.mu.Lock()
			continue
		}
		r.work.Wait()
	}
}

// end notes how a publish ended and reports whether its worker goes on.
func (r *relay) end(it *item, p published) bool {
	r.mu.Lock()
	if it.stuck {
		defer r.unlock()
		return r.returned(it, p)
	}
	if p.started.IsZero() {
		p.started = it.started
	}
	info := r.conclude(it, p)
	r.unlock()
	if info.Outcome != "" {
		r.o.obs.Published(info)
	}
	return true
}

// published is how a publish ended.
type published struct {
	receipt string
	err     error
	lost    bool // not sent: the lease was gone
	unsent  bool // not sent: it could not be written down that it is
	stopped bool // cancelled by shutdown
	started time.Time
	ended   time.Time
}

var errPanic = errors.New("outbox: publisher panicked")

// publish calls the publisher once, with a deadline.
func (r *relay) publish(it *item) (p published) {
	if mutant.Active == mutant.MarkFirst {
		_, _ = r.repo.MarkDone(context.Background(), []Done{{ID: it.id}}, false)
	}
	ctx, cancel := context.WithTimeout(r.publishCtx, r.cfg.PublishTimeout)
	defer cancel()
	p.started = time.Now()
	defer func() {
		if v := recover(); v != nil {
			p.err = fmt.Errorf("%w: %v", errPanic, v)
			r.cfg.Logger.Error("outbox: publisher panicked", "component", "outbox", "destination", it.delivery.Topic,
				"event_id", it.delivery.ID, "err", errorText(p.err), "stack", string(debug.Stack()))
		}
		p.ended = time.Now()
		p.stopped = p.err != nil && r.publishCtx.Err() != nil
	}()
	if rp, ok := r.cfg.Publisher.(ReceiptPublisher); ok {
		p.receipt, p.err = rp.PublishWithReceipt(ctx, it.delivery)
	} else {
		p.err = r.cfg.Publisher.Publish(ctx, it.delivery)
	}
	return p
}

// conclude notes the outcome of a publish for the writer and lets the lane go on or stops it.
func (r *relay) conclude(it *item, p published) PublishInfo {
	info := PublishInfo{
		Topic: it.delivery.Topic, Type: it.delivery.Type, Path: it.path, Attempt: it.delivery.Attempt,
		Duration: p.ended.Sub(p.started), Lag: it.age + p.ended.Sub(it.since), Err: p.err,
	}
	r.publishing--
	if it.probe {
		it.dest.probing = false
	}
	r.leaveLane(it)
	switch {
	case p.lost:
		r.dropped(it, DropLost)
		r.stopLane(it.lane, DropLost, true)
		r.forget(it)
		return PublishInfo{}
	case p.unsent:
		r.stopLane(it.lane, DropStopped, true)
		r.release(it, DropStopped, true)
		return PublishInfo{}
	case p.stopped:
		r.stopLane(it.lane, DropShutdown, false)
		r.release(it, DropShutdown, false)
		return PublishInfo{}
	case p.err == nil:
		info.Outcome = PublishDone
		it.state, it.receipt = itemAcked, clip(p.receipt, 250)
		r.acked(it, p.ended)
		r.done = append(r.done, it)
		r.unwritten++
		r.kickAfter(len(r.done))
		r.laneAcked(it)
		return info
	}

	it.failure, info.Outcome = r.judge(it, p)
	it.state = itemFailed
	r.failed = append(r.failed, it)
	r.unwritten++
	r.kickWriter()
	if mutant.Active == mutant.KeepLane {
		r.laneAcked(it)
		return info
	}
	r.stopLane(it.lane, DropStopped, false)
	return info
}

// laneAcked remembers the acknowledgement and lets the next of the lane go.
func (r *relay) laneAcked(it *item) {
	if it.lane.IsZero() {
		return
	}
	l := r.lanes.get(it.lane)
	l.ackID, l.ackSeq, l.hasAck = it.id, it.delivery.KeySeq, true
	if it.lost { // somebody else may be working on the lane
		r.stopLane(it.lane, DropLost, true)
		return
	}
	r.advance(it.lane)
}

// judge says what a failed publish means: for the destination, and for the row.
func (r *relay) judge(it *item, p published) (Failure, PublishOutcome) {
	f := Failure{ClaimRef: ClaimRef{ID: it.id, ClaimNo: it.claimNo}, Message: errorText(p.err)}
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
	case ClassUnroutable: // this process has seen a route
		if r.refused(it, p.err) == refusalOutage {
			if it.probe {
				r.probeFailed(it, p.err)
			}
			f.Kind, f.Delay = FailUnavailable, it.dest.pause()
			break
		}
		f.Kind = FailDead
	case ClassPermanent:
		f.Kind = FailDead
		if it.probe && it.dest.open { // that says nothing of the destination
			r.probeLater(it.dest, p.ended)
		}
	case ClassKeyUnavailable:
		if it.probe && it.dest.open {
			r.probeFailed(it, p.err)
		}
		f.Kind = FailUnavailable
		if f.Delay = putOff(p.err); f.Delay == 0 {
			f.Delay = jittered(r.cfg.Breaker.ProbeInterval, 0.5+r.random()/2)
		}
	case ClassUnavailable:
		if !it.dest.open {
			r.stopDestination(it.dest, it, p.err)
		} else if it.probe {
			r.probeFailed(it, p.err)
		}
		f.Kind, f.Delay = FailUnavailable, it.dest.pause()
		if mutant.Active == mutant.OutageAttempts {
			f.Kind = FailRetry
		}
	case ClassTransient:
		wasOpen := it.dest.open
		switch r.refused(it, p.err) {
		case refusalOutage:
			if wasOpen && it.probe {
				r.probeFailed(it, p.err)
			}
			f.Kind, f.Delay = FailUnavailable, it.dest.pause()
		case refusalSpares:
			f.Kind, f.Delay = FailUnavailable, min(r.cfg.Retry.delay(it.attempts+1, r.random()), r.cfg.Breaker.MaxProbeInterval)
		case refusalCounts:
			it.attempts++
			if it.attempts >= r.cfg.Retry.MaxAttempts {
				f.Kind = FailDead
				break
			}
			f.Kind, f.Delay = FailRetry, r.cfg.Retry.delay(it.attempts, r.random())
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

// classify returns the class of the error. A deadline that ended says nothing about the event if the destination
// acknowledged nothing else meanwhile.
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
	r.notes = append(r.notes, func() {
		r.cfg.Logger.Error("outbox: event is dead: redrive or discard it", "component", "outbox", "event_id", d.ID, "event_type", d.Type,
			"destination", d.Topic, "row_id", d.RowID.String(), "attempt", d.Attempt, "error_code", f.Code, "err", f.Message)
	})
}
