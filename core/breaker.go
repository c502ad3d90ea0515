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
	failing  []RowID // different events refused since the last acknowledgement
	open     bool
	probing  bool // an event is out to try it
	probeAt  time.Time
	probeGap time.Duration
}

func (d *destination) mayProbe(now time.Time) bool {
	return d.open && !d.probing && !now.Before(d.probeAt)
}

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
}

// acked notes that the destination works.
func (r *relay) acked(d *destination, now time.Time) {
	d.lastAck = now
	d.failing = d.failing[:0]
	if !d.open {
		return
	}
	d.open = false
	r.notes = append(r.notes, func() {
		r.o.obs.BreakerChanged(d.topic, false, nil)
		r.cfg.Logger.Info("outbox: destination goes on", "component", "outbox", "destination", d.topic)
	})
	r.pollBy(now)
}

// refused notes that the destination refused an event, and reports whether the breaker is open: enough different events in
// a row say that it is not them.
func (r *relay) refused(it *item, cause error) bool {
	d := it.dest
	if d.open {
		return true
	}
	if !slices.Contains(d.failing, it.id) {
		d.failing = append(d.failing, it.id)
	}
	if len(d.failing) < r.cfg.Breaker.Failures {
		return false
	}
	r.stopDestination(d, it, cause)
	return true
}

// stopDestination opens the breaker. What is queued for the destination is given back when it comes up.
func (r *relay) stopDestination(d *destination, it *item, cause error) {
	d.open = true
	d.failing = d.failing[:0]
	d.probeGap = r.cfg.Breaker.ProbeInterval
	d.probeAt = time.Now().Add(spread(d.probeGap, r.random()))
	r.pollBy(d.probeAt)
	event := it.delivery.ID
	r.notes = append(r.notes, func() {
		r.o.obs.BreakerChanged(d.topic, true, cause)
		r.cfg.Logger.Warn("outbox: destination stopped; its events wait and spend no attempts", "component", "outbox",
			"destination", d.topic, "event_id", event, "err", errorText(cause))
	})
}

// probeFailed waits longer before the next event is tried.
func (r *relay) probeFailed(it *item, cause error) {
	d := it.dest
	d.probeGap = min(2*d.probeGap, r.cfg.Breaker.MaxProbeInterval)
	d.probeAt = time.Now().Add(spread(d.probeGap, r.random()))
	r.pollBy(d.probeAt)
	event := it.delivery.ID
	r.notes = append(r.notes, func() {
		r.cfg.Logger.Warn("outbox: destination is still unavailable", "component", "outbox",
			"destination", d.topic, "event_id", event, "next_probe", d.probeGap, "err", errorText(cause))
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
