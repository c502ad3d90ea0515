package core

import (
	"testing"
	"time"
)

func TestDestinationProbes(t *testing.T) {
	now := time.Now()
	var c destinations
	d := c.get("a")
	if d.mayProbe(now) || d.mayProbeHot(now) || c.closedHot(d, "", now) || d.inUse() {
		t.Fatal("a destination that works is probed, or closed")
	}
	c.stop(d)
	d.probeGap, d.probeAt, d.turn.fresh = time.Minute, now.Add(time.Second), true
	if d.mayProbe(now) || !c.closedHot(d, "", now) || !d.mayProbe(d.probeAt) || !d.inUse() {
		t.Error("probed before its time, or not at its time")
	}
	d.turn.fresh = false // a row of the table was tried last
	if !d.mayProbeHot(now) || c.closedHot(d, "", now) {
		t.Error("a fresh event gets no turn between two rows of the table")
	}
	if !d.nextAsk().Equal(d.probeAt) {
		t.Errorf("asked for in %s", d.nextAsk().Sub(now))
	}
	d.turn.askedAt = now // there was no event
	if !d.nextAsk().Equal(now.Add(time.Minute)) {
		t.Errorf("asked for again in %s, want after the pause of a probe", d.nextAsk().Sub(now))
	}
	for what, set := range map[string]func(on bool){
		"being probed": func(on bool) { d.probing = on }, "clogged": func(on bool) { d.clogged = on },
	} {
		set(true)
		if d.mayProbe(now.Add(time.Hour)) || d.mayProbeHot(now.Add(time.Hour)) || c.probes(d) {
			t.Errorf("probed while %s", what)
		}
		set(false)
	}
	c.paused = pausesOf([]Pause{{Tenant: "t"}})
	if !c.closedHot(d, "t", now) || c.closedHot(d, "u", now) || !c.probes(d) {
		t.Error("a pause of a tenant holds other events, or not its own")
	}
	c.paused = pausesOf([]Pause{{Topic: "a"}})
	if c.probes(d) || !c.closedHot(d, "", now) || !c.nextAsk().IsZero() {
		t.Error("a paused destination is probed")
	}
	// An event that failed waits for less than the time to the next probe, which must find it.
	if d.pause() >= d.probeGap {
		t.Errorf("an event waits %s, the next probe comes after %s", d.pause(), d.probeGap)
	}
}

func TestItemProbes(t *testing.T) {
	now := time.Now()
	d := &destination{open: true, probeAt: now.Add(time.Second)}
	claimed := &item{dest: d, path: PathCold}
	if claimed.probeWith(now) || claimed.role.probe || d.probing {
		t.Fatal("probes before its time")
	}
	if !claimed.probeWith(d.probeAt) || !claimed.role.probe || !d.probing || d.turn.fresh {
		t.Errorf("does not probe at its time: %+v", d)
	}
	if second := (&item{dest: d}); second.probeWith(d.probeAt) || second.role.probe {
		t.Error("a second item probes beside the first")
	}
	fresh := &item{dest: d, path: PathHot}
	if fresh.startProbe(); !fresh.role.probe || !d.turn.fresh {
		t.Error("the turn of a fresh event is not noted")
	}
}
