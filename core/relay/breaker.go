package relay

import (
	"context"
	"log/slog"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/pace"
)

// onAck records that the destination accepted an event: the destination works.
func (s *state) onAck(it *item, now time.Time) {
	d := it.dest
	d.lastAck = now
	d.refusals.onAck(it.id)
	if d.open && !d.heldBack(now) { // else the publish began before the destination asked for the pause
		s.goOn(d, now, "outbox: destination goes on")
	}
}

// goOn closes the breaker.
func (s *state) goOn(d *destination, now time.Time, why string) {
	s.dests.goOn(d)
	s.signals.beat.give()
	s.poller.wakeKeys() // its keys were passed over
	s.effects.Call(func() {
		s.obs.BreakerChanged(d.topic, false, nil)
		s.ob.Logger.Info(why, "destination", d.topic)
	})
	s.wakes.poll(now)
}

// maxIdleStop is how long a stopped destination is probed without an event to probe it with. Topics
// may be many and short-lived: those that nothing is published to any more would cost memory, and
// claims, for ever.
const maxIdleStop = time.Hour

// noProbe notes that the table has no event to probe the destination with. In the end it counts as
// working: its next event finds out.
func (s *state) noProbe(d *destination, now time.Time) {
	if d.open && d.items == 0 && now.Sub(d.outage.tried) >= maxIdleStop {
		s.goOn(d, now, "outbox: destination is not probed any more, because no event waits for it")
	}
}

// refused notes that the destination refused an event, and returns what the refusal means. When the
// publisher marked the error as a refusal of this event, the relay believes it. As many different
// events in a row as Breaker.Failures are an outage nevertheless.
func (s *state) refused(it *item, cause error) refusalVerdict {
	d := it.dest
	if d.open {
		d.refusals.meet(it.id)
		return refusalOutage
	}
	_, marked := core.ClassOf(cause)
	v := d.refusals.refused(it.id, it.attempts, marked, time.Now(), refusalLimits{
		failures: s.cfg.Breaker.Failures, attempts: s.cfg.retry(it.delivery.Type).MaxAttempts,
		quiet: s.cfg.Breaker.MaxProbeInterval,
	})
	if v == refusalOutage {
		s.stopDestination(d, it, cause)
	}
	return v
}

// unavailable records an outage that the publisher reported.
func (s *state) unavailable(it *item, cause error) {
	d := it.dest
	if wait := putOff(cause); wait > 0 {
		d.holdBack(time.Now().Add(wait))
	}
	if !d.open {
		s.stopDestination(d, it, cause)
	} else if it.role.probe {
		s.probeFailed(it, cause)
	}
}

func (s *state) probeLater(d *destination, now time.Time) {
	d.probeAt = now.Add(pace.Spread(d.probeGap, s.random()))
	if d.heldBack(now) {
		d.probeAt = d.held
	}
	s.wakes.look()
}

// stopDestination opens the breaker. Queued events of the destination are given back when a worker
// picks them.
func (s *state) stopDestination(d *destination, it *item, cause error) {
	s.dests.stop(d)
	s.signals.beat.give()
	d.outage.since, d.outage.probes, d.turn.fresh = time.Now(), 0, true
	d.outage.cause = cause
	d.outage.logged, d.outage.tried = d.outage.since, d.outage.since
	d.probeGap = s.cfg.Breaker.ProbeInterval
	s.probeLater(d, time.Now())
	event, level := it.delivery.ID, slog.LevelWarn
	if d.heldBack(d.outage.since) { // a throttled destination asks for a pause again and again
		level = slog.LevelInfo
	}
	s.effects.Call(func() {
		s.obs.BreakerChanged(d.topic, true, cause)
		s.ob.Logger.Log(context.Background(), level, "outbox: destination stopped; its events wait and spend no "+
			"attempts", "destination", d.topic, "event_id", event, "error", errtext.Of(cause))
	})
}

// probeFailed makes the pause before the next probe longer.
func (s *state) probeFailed(it *item, cause error) {
	d, now := it.dest, time.Now()
	d.outage.probes++
	d.outage.cause, d.outage.tried = cause, now
	d.probeGap = min(2*d.probeGap, s.cfg.Breaker.MaxProbeInterval)
	s.probeLater(d, now)
	info := core.ProbeInfo{
		Topic: d.topic, EventID: it.delivery.ID, RowID: it.id, Failures: d.outage.probes,
		Stopped: now.Sub(d.outage.since), Err: cause,
	}
	gap := d.probeAt.Sub(now)
	loud := now.Sub(d.outage.logged) >= min(d.outage.logged.Sub(d.outage.since), maxProbeSilence)
	if loud {
		d.outage.logged = now
	}
	s.effects.Call(func() {
		s.obs.ProbeFailed(info)
		if loud {
			s.ob.Logger.Warn("outbox: destination is still unavailable", "destination",
				info.Topic, "event_id", info.EventID,
				"row_id", info.RowID.String(), "failed_probes", info.Failures, "stopped", info.Stopped, "next_probe",
				gap, "error", errtext.Of(cause))
		}
	})
}
