package core

import (
	"slices"
	"time"
)

// destination is what this process knows of one topic: whether it is stopped (its breaker is open) and when it is tried again.
// Guarded by relay.mu.
type destination struct {
	topic    string
	lastAck  time.Time
	refusals refusals
	open     bool
	probing  bool      // an event is out to try it
	probeAt  time.Time // an event may try it from then on
	askedAt  time.Time // the poller found none then
	stuck    int       // publishes that were given up and have not returned
	clogged  bool      // these are so many that it gets no more
	probeGap time.Duration
	probes   uint

	freshTried bool // since the last probe with a row of the table
	cursor     Lane // the key that was tried last

	stopped time.Time // when the breaker opened
	failed  int       // probes since then
	logged  time.Time // when the log said so last
}

// maxProbeSilence is how long the log says nothing of failed probes: the pauses between its lines double up to that.
const maxProbeSilence = time.Minute

// waitsForProbe reports whether an event is wanted to try it with, now or later.
func (d *destination) waitsForProbe() bool { return d.open && !d.probing && !d.clogged }

func (d *destination) mayProbe(now time.Time) bool {
	return d.waitsForProbe() && !now.Before(d.probeAt)
}

// mayProbeHot reports whether an event that has just been written may try it. Between two probes with rows of the table, which may all
// have been refused before, there is one with a fresh event.
func (d *destination) mayProbeHot(now time.Time) bool {
	return d.mayProbe(now) || d.waitsForProbe() && !d.freshTried
}

// nextAsk is when the poller looks for an event to try it with. It is asked for again and again while the destination is stopped, whatever
// other reasons for a poll come and go.
func (d *destination) nextAsk() time.Time {
	if again := d.askedAt.Add(d.probeGap); again.After(d.probeAt) {
		return again
	}
	return d.probeAt
}

// pause is how long an event waits that failed because of its destination: less than it takes to the next probe, which must not miss it
// when there is no other. When there are others, they have waited for longer and are tried first.
func (d *destination) pause() time.Duration { return d.probeGap / 2 }

func (r *relay) dest(topic string) *destination {
	d := r.dests[topic]
	if d == nil {
		d = &destination{topic: topic}
		r.dests[topic] = d
	}
	return d
}

func (r *relay) startProbe(it *item) {
	it.probe = true
	it.dest.probing = true
	it.dest.freshTried = it.path == PathHot
}

// acked notes that the destination accepted an event, so it works.
func (r *relay) acked(it *item, now time.Time) {
	d := it.dest
	d.lastAck = now
	d.refusals.acked(it.id)
	if !d.open {
		return
	}
	d.open = false
	r.sweep.restUntil = time.Time{} // its keys were passed over
	r.notes = append(r.notes, func() {
		r.o.obs.BreakerChanged(d.topic, false, nil)
		r.cfg.Logger.Info("outbox: destination goes on", "component", "outbox", "destination", d.topic)
	})
	r.pollBy(now)
}

// refused notes that the destination refused an event, and says what that means. A publisher that marked the error as a refusal of
// this event is believed, save that so many different events in a row are an outage nevertheless.
func (r *relay) refused(it *item, cause error) refusalVerdict {
	d := it.dest
	if d.open {
		d.refusals.meet(it.id)
		return refusalOutage
	}
	_, marked := ClassOf(cause)
	v := d.refusals.refused(it.id, it.attempts, marked, time.Now(), refusalLimits{
		failures: r.cfg.Breaker.Failures, attempts: r.cfg.Retry.MaxAttempts, quiet: r.cfg.Breaker.MaxProbeInterval,
	})
	if v == refusalOutage {
		r.stopDestination(d, it, cause)
	}
	return v
}

func (r *relay) probeLater(d *destination, now time.Time) {
	d.probeAt = now.Add(spread(d.probeGap, r.random()))
	r.kickPoller()
}

// stopDestination opens the breaker. What is queued for the destination is given back when it comes up.
func (r *relay) stopDestination(d *destination, it *item, cause error) {
	d.open = true
	d.stopped, d.failed, d.freshTried = time.Now(), 0, true
	d.logged = d.stopped
	d.probeGap = r.cfg.Breaker.ProbeInterval
	r.probeLater(d, time.Now())
	event := it.delivery.ID
	r.notes = append(r.notes, func() {
		r.o.obs.BreakerChanged(d.topic, true, cause)
		r.cfg.Logger.Warn("outbox: destination stopped; its events wait and spend no attempts", "component", "outbox",
			"destination", d.topic, "event_id", event, "err", errorText(cause))
	})
}

// probeFailed waits longer before the next event is tried.
func (r *relay) probeFailed(it *item, cause error) {
	d, now := it.dest, time.Now()
	d.failed++
	d.probeGap = min(2*d.probeGap, r.cfg.Breaker.MaxProbeInterval)
	r.probeLater(d, now)
	info := ProbeInfo{
		Topic: d.topic, EventID: it.delivery.ID, RowID: it.id, Failures: d.failed, Stopped: now.Sub(d.stopped), Err: cause,
	}
	gap := d.probeGap
	loud := now.Sub(d.logged) >= min(d.logged.Sub(d.stopped), maxProbeSilence)
	if loud {
		d.logged = now
	}
	r.notes = append(r.notes, func() {
		r.o.obs.ProbeFailed(info)
		if loud {
			r.cfg.Logger.Warn("outbox: destination is still unavailable", "component", "outbox", "destination", info.Topic, "event_id", info.EventID,
				"row_id", info.RowID.String(), "failed_probes", info.Failures, "stopped", info.Stopped, "next_probe", gap, "err", errorText(cause))
		}
	})
}

// stoppedTopics returns the topics whose breaker is open, sorted.
func (r *relay) stoppedTopics() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var topics []string
	for t, d := range r.dests {
		if d.open {
			topics = append(topics, t)
		}
	}
	slices.Sort(topics)
	return topics
}
