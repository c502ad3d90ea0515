package core

import (
	"fmt"
	"runtime/debug"
	"time"
)

func init() {
	reportIllegalMove = func(_ *relay, it *item, err error) { panic(fmt.Sprint(it.id, ": ", err)) }
}

// SetRandom sets the source of random numbers of the relays that o starts from now on.
func (o *Outbox) SetRandom(random func() float64) { o.random = random }

// Held counts what the relay of o holds: rows in the tracker, outcomes that are not written, and
// probes of destinations.
func (o *Outbox) Held() int {
	r := o.relay.Load()
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	probes := 0
	for _, d := range r.dests.stopped {
		if d.probing {
			probes++
		}
	}
	n := len(r.inflight.items) + probes + r.crew.handovers.events + int(r.crew.handovers.bytes) +
		r.inflight.active() + r.inflight.hot.events + r.inflight.cold.events +
		r.writer.marks.held
	return n + r.writer.marks.len() + len(r.writer.marks.later.entries)
}

// LateProbe returns a stopped destination whose next probe is due, and how long the probe has been
// due.
func (o *Outbox) LateProbe() (topic string, late time.Duration) {
	r := o.relay.Load()
	if r == nil {
		return "", 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.dests.stopped {
		if since := time.Since(d.nextAsk()); d.waitsForProbe() && !r.crew.noneLeft() && since > late {
			topic, late = d.topic, since
		}
	}
	return topic, late
}

// Rounds returns how many rounds the poller of a running relay has begun.
func Rounds(o *Outbox) uint {
	r := o.relay.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.poller.rounds
}

// DescribeBuild names the program and the version of this module in it.
func DescribeBuild(info *debug.BuildInfo) (program, version string) {
	b := describe(info)
	return b.program, b.version
}
