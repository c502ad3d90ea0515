package core

import (
	"context"
	"log/slog"
	"time"
)

// acked notes that the destination accepted an event: the destination works.
func (r *relay) acked(it *item, now time.Time) {
	d := it.dest
	d.lastAck = now
	d.refusals.acked(it.id)
	if !d.open || d.heldBack(now) { // the publish began before the destination asked for the pause
		return
	}
	r.dests.goOn(d)
	r.tellSoon()
	r.poller.wakeKeys() // its keys were passed over
	r.notices.add(func() {
		r.o.obs.BreakerChanged(d.topic, false, nil)
		r.cfg.Logger.Info("outbox: destination goes on", "component", "outbox", "destination", d.topic)
	})
	r.wakes.poll(now)
}

// refused notes that the destination refused an event, and returns what the refusal means. When the
// publisher marked the error as a refusal of this event, the relay believes it. As many different
// events in a row as Breaker.Failures are an outage nevertheless.
func (r *relay) refused(it *item, cause error) refusalVerdict {
	d := it.dest
	if d.open {
		d.refusals.meet(it.id)
		return refusalOutage
	}
	_, marked := ClassOf(cause)
	v := d.refusals.refused(it.id, it.attempts, marked, time.Now(), refusalLimits{
		failures: r.cfg.Breaker.Failures, attempts: r.cfg.retry(it.delivery.Type).MaxAttempts,
		quiet: r.cfg.Breaker.MaxProbeInterval,
	})
	if v == refusalOutage {
		r.stopDestination(d, it, cause)
	}
	return v
}

// unavailable notes an outage that the publisher told of.
func (r *relay) unavailable(it *item, cause error) {
	d := it.dest
	if wait := putOff(cause); wait > 0 {
		d.holdBack(time.Now().Add(wait))
	}
	if !d.open {
		r.stopDestination(d, it, cause)
	} else if it.role.probe {
		r.probeFailed(it, cause)
	}
}

func (r *relay) probeLater(d *destination, now time.Time) {
	d.probeAt = now.Add(spread(d.probeGap, r.random()))
	if d.heldBack(now) {
		d.probeAt = d.held
	}
	r.wakes.look()
}

// stopDestination opens the breaker. Queued events of the destination are given back when a worker
// picks them.
func (r *relay) stopDestination(d *destination, it *item, cause error) {
	r.dests.stop(d)
	r.tellSoon()
	d.outage.since, d.outage.probes, d.turn.fresh = time.Now(), 0, true
	d.outage.cause = cause
	d.outage.logged = d.outage.since
	d.probeGap = r.cfg.Breaker.ProbeInterval
	r.probeLater(d, time.Now())
	event, level := it.delivery.ID, slog.LevelWarn
	if d.heldBack(d.outage.since) { // a throttled destination asks for a pause again and again
		level = slog.LevelInfo
	}
	r.notices.add(func() {
		r.o.obs.BreakerChanged(d.topic, true, cause)
		r.cfg.Logger.Log(context.Background(), level, "outbox: destination stopped; its events wait and spend no "+
			"attempts", "component", "outbox", "destination", d.topic, "event_id", event, "err", errorText(cause))
	})
}

// probeFailed makes the pause before the next probe longer.
func (r *relay) probeFailed(it *item, cause error) {
	d, now := it.dest, time.Now()
	d.outage.probes++
	d.outage.cause = cause
	d.probeGap = min(2*d.probeGap, r.cfg.Breaker.MaxProbeInterval)
	r.probeLater(d, now)
	info := ProbeInfo{
		Topic: d.topic, EventID: it.delivery.ID, RowID: it.id, Failures: d.outage.probes,
		Stopped: now.Sub(d.outage.since), Err: cause,
	}
	gap := d.probeAt.Sub(now)
	loud := now.Sub(d.outage.logged) >= min(d.outage.logged.Sub(d.outage.since), maxProbeSilence)
	if loud {
		d.outage.logged = now
	}
	r.notices.add(func() {
		r.o.obs.ProbeFailed(info)
		if loud {
			r.cfg.Logger.Warn("outbox: destination is still unavailable", "component", "outbox", "destination",
				info.Topic, "event_id", info.EventID,
				"row_id", info.RowID.String(), "failed_probes", info.Failures, "stopped", info.Stopped, "next_probe",
				gap, "err", errorText(cause))
		}
	})
}
