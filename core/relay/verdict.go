package relay

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/pace"
)

// conclude hands the result of a publish to the writer, and lets the lane go on or stops it.
func (s *state) conclude(it *item, p published) core.PublishInfo {
	info := core.PublishInfo{
		Topic: it.delivery.Topic, Type: it.delivery.Type, Path: it.path, Attempt: it.delivery.Attempt,
		Duration: p.ended.Sub(p.started), Lag: it.timing.age + p.ended.Sub(it.timing.since), Err: p.err,
	}
	if it.role.probe {
		it.dest.probing = false
	}
	s.crew.freePlace(it)
	s.lanes.leave(it)
	switch {
	case p.lost:
		s.fellBack(it, core.FallbackLost)
		s.stopLane(it.lane, core.FallbackLost, true)
		s.forget(it)
		return core.PublishInfo{}
	case p.unsent && !p.stopped:
		s.stopLane(it.lane, core.FallbackStopped, false)
		s.fail(it, core.Failure{
			Kind: core.FailUnavailable, Delay: pace.Jittered(unsentPause, 0.5+s.random()/2), Code: codeLostClaims,
			Message: "it could not be written down that this event is published",
		})
		return core.PublishInfo{}
	case (p.stopped || p.unsent) && it.role.unproven: // a release would leave it waiting for as long as after a death
		s.stopLane(it.lane, core.FallbackShutdown, false)
		s.fail(it, core.Failure{
			Kind:    core.FailUnavailable,
			Code:    codeLostClaims,
			Message: "the relay ended while this event was tried alone",
		})
		return core.PublishInfo{}
	case p.unsent, p.stopped:
		s.stopLane(it.lane, core.FallbackShutdown, false)
		s.release(it, core.FallbackShutdown, false)
		return core.PublishInfo{}
	case p.err == nil:
		info.Result = core.PublishDone
		it.mark.receipt = errtext.Clip(p.receipt, 250)
		s.move(it, itemAcked)
		s.onAck(it, p.ended)
		s.addAck(it)
		s.laneAcked(it)
		s.tally.add(info.Topic, info.Result)
		return info
	}

	var f core.Failure
	f, info.Result = s.judge(it, p)
	s.tally.add(info.Topic, info.Result)
	s.fail(it, f)
	s.stopLane(it.lane, core.FallbackStopped, false)
	return info
}

// fail hands the failure of an item to the writer.
func (s *state) fail(it *item, f core.Failure) {
	f.ClaimRef, f.Path = it.claimRef(), it.path
	f.SkipDead = f.Kind == core.FailDead && s.ob.DeadPolicy == core.SkipDead
	it.mark.failure = &f
	s.move(it, itemFailed)
	s.addMark(it)
}

// judge decides what a failed publish means for the destination and for the row.
func (s *state) judge(it *item, p published) (core.Failure, core.PublishResult) {
	f := core.Failure{Message: errtext.Of(p.err)}
	class := s.classify(it, p)
	f.Code = class.String()
	if class == core.ClassUnroutable && it.dest.lastAck.IsZero() {
		class = core.ClassUnavailable
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
	case core.ClassUnroutable: // this process has seen the topic accept an event
		if s.refused(it, p.err) == refusalOutage {
			if it.role.probe {
				s.probeFailed(it, p.err)
			}
			f.Kind, f.Delay = core.FailUnavailable, it.dest.pause()
			break
		}
		f.Kind = core.FailDead
	case core.ClassPermanent:
		f.Kind = core.FailDead
		if it.role.probe && it.dest.open { // the failure does not concern the destination
			s.probeLater(it.dest, p.ended)
		}
	case core.ClassKeyUnavailable:
		if it.role.probe && it.dest.open {
			s.probeFailed(it, p.err)
		}
		f.Kind = core.FailUnavailable
		if f.Delay = putOff(p.err); f.Delay == 0 {
			f.Delay = pace.Jittered(s.cfg.Breaker.ProbeInterval, 0.5+s.random()/2)
		}
	case core.ClassUnavailable:
		s.unavailable(it, p.err)
		f.Kind, f.Delay = core.FailUnavailable, it.dest.pause()
	case core.ClassTransient:
		wasOpen, retry := it.dest.open, s.cfg.retry(it.delivery.Type)
		switch s.refused(it, p.err) {
		case refusalOutage:
			if wasOpen && it.role.probe {
				s.probeFailed(it, p.err)
			}
			f.Kind, f.Delay = core.FailUnavailable, it.dest.pause()
		case refusalSpares:
			f.Kind = core.FailUnavailable
			f.Delay = min(retry.delay(it.attempts+1, s.random()), s.cfg.Breaker.MaxProbeInterval)
		case refusalCounts:
			it.attempts++
			if it.attempts >= retry.MaxAttempts {
				f.Kind = core.FailDead
				break
			}
			f.Kind, f.Delay = core.FailRetry, retry.delay(it.attempts, s.random())
		}
	}

	switch f.Kind {
	case core.FailDead:
		s.noteDead(it, f)
		return f, core.PublishDead
	case core.FailRetry:
		return f, core.PublishRetry
	case core.FailUnavailable:
	}
	return f, core.PublishUnavailable
}

// classify returns the class of the error. A timeout does not count against the event if the
// destination acknowledged no other event meanwhile.
func (s *state) classify(it *item, p published) core.Class {
	if class, marked := core.ClassOf(p.err); marked {
		return class
	}
	if isTimeout(p.err) || errors.Is(p.err, errStuck) {
		if it.dest.lastAck.After(p.started) {
			return core.ClassTransient
		}
		return core.ClassUnavailable
	}
	if errors.Is(p.err, errPanic) || errors.Is(p.err, errGoexit) {
		return core.ClassTransient
	}
	return s.cfg.Classifier(p.err)
}

func (s *state) noteDead(it *item, f core.Failure) {
	d := it.delivery
	s.effects.Call(func() {
		args := []any{
			"event_id", d.ID, "event_type", d.Type, "destination", d.Topic,
			"row_id", d.RowID.String(), "attempt", d.Attempt, "error_code", f.Code, "error", f.Message,
		}
		if !d.ReplayOf.IsZero() {
			args = append(args, "replay_of", d.ReplayOf.String())
		}
		s.ob.Logger.Error("outbox: event is dead: redrive or discard it", args...)
	})
}

// putOff returns the wait that the publisher asked for, for the event or the destination, or 0.
func putOff(err error) time.Duration {
	var d interface{ Delay() time.Duration }
	if !errors.As(err, &d) {
		return 0
	}
	return d.Delay()
}

// isTimeout reports whether err is a timeout.
func isTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
