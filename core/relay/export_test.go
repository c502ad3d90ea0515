package relay

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func of(ob *core.Outbox) *relay { return ob.Relay().(*relay) }

// SetRandom sets the source of random numbers of the relay of ob. Call it before Run.
func SetRandom(ob *core.Outbox, random func() float64) { of(ob).random = random }

// PanicAtDefects makes the relay of ob panic where it would log a defect of its own.
func PanicAtDefects(ob *core.Outbox) {
	if r, ok := ob.Relay().(*relay); ok {
		r.defect = func(it *item, err error) { panic(fmt.Sprint(it.id, ": ", err)) }
	}
}

// Held counts what the relay of ob holds: rows in the tracker, outcomes that are not written, and
// probes of destinations.
func Held(ob *core.Outbox) int {
	r := of(ob).engine.Load()
	if r == nil {
		return 0
	}
	return ask(r, func(s *state) int {
		probes := 0
		for _, d := range s.dests.stopped {
			if d.probing {
				probes++
			}
		}
		return len(s.inflight.items) + probes + s.crew.handovers.events + int(s.crew.handovers.bytes) +
			s.inflight.active() + s.inflight.hot.events + s.inflight.cold.events +
			s.marks.held + s.marks.len() + len(s.marks.later.entries)
	})
}

// LateProbe returns a stopped destination whose next probe is due, and how long the probe has been
// due.
func LateProbe(ob *core.Outbox) (topic string, late time.Duration) {
	r := of(ob).engine.Load()
	if r == nil {
		return "", 0
	}
	r.do(func(s *state) {
		for _, d := range s.dests.stopped {
			if since := time.Since(d.nextAsk()); d.waitsForProbe() && !s.crew.noneLeft() && since > late {
				topic, late = d.topic, since
			}
		}
	})
	return topic, late
}

// Rounds returns how many rounds the poller of a running relay has begun.
func Rounds(ob *core.Outbox) uint {
	return ask(of(ob).engine.Load(), func(s *state) uint { return s.poller.rounds })
}

// DescribeBuild names the program and the version of this module in it.
func DescribeBuild(info *debug.BuildInfo) (program, version string) {
	b := describe(info)
	return b.program, b.version
}
