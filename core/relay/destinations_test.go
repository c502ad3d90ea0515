package relay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func TestDestinations(t *testing.T) {
	var c destinations
	now := time.Now()
	a, b := c.get("a"), c.get("b")
	if c.get("a") != a || len(c.stoppedTopics()) != 0 || !c.nextAsk().IsZero() {
		t.Fatal("a new destination is stopped, or one topic has two destinations")
	}
	a.probeAt, b.probeAt = now.Add(2*time.Second), now.Add(time.Second)
	c.stop(a)
	c.stop(b)
	if got := c.stoppedTopics(); !slices.Equal(got, []string{"a", "b"}) || !c.nextAsk().Equal(b.probeAt) {
		t.Fatalf("stopped: %v, next asked for in %s", got, c.nextAsk().Sub(now))
	}
	if got := c.working(map[string]bool{"a": true, "c": true}); !slices.Equal(got, []string{"c"}) {
		t.Fatalf("working: %v", got)
	}
	if got := c.working(map[string]bool{"a": true}); got == nil || len(got) != 0 {
		t.Fatalf("working: %#v, want none, which is not the same as all", got)
	}
	b.probing = true
	if !c.nextAsk().Equal(a.probeAt) {
		t.Error("a destination that is being tried is asked for again")
	}
	c.goOn(b)
	if got := c.stoppedTopics(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("stopped: %v", got)
	}
}

// A process publishes to new topics for a year. It remembers only the latest topics and the topics
// in use.
func TestDestinationsAreForgotten(t *testing.T) {
	var c destinations
	stopped, held, stuck := c.get("stopped"), c.get("held"), c.get("stuck")
	c.stop(stopped)
	held.items, stuck.stuck = 1, 1
	for i := range 5 * maxDestinations {
		c.get(fmt.Sprint(i))
	}
	if n := len(c.known.young) + len(c.known.old); n > 2*maxDestinations {
		t.Errorf("%d destinations are remembered", n)
	}
	if c.get("stopped") != stopped || c.get("held") != held || c.get("stuck") != stuck {
		t.Error("a destination in use was forgotten")
	}
}

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
	c.paused = pausesOf([]core.Pause{{Tenant: "t"}})
	if !c.closedHot(d, "t", now) || c.closedHot(d, "u", now) || !c.probes(d) {
		t.Error("a pause of a tenant holds other events, or not its own")
	}
	c.paused = pausesOf([]core.Pause{{Topic: "a"}})
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
	claimed := &item{dest: d, path: core.PathCold}
	if claimed.probeWith(now) || claimed.role.probe || d.probing {
		t.Fatal("probes before its time")
	}
	if !claimed.probeWith(d.probeAt) || !claimed.role.probe || !d.probing || d.turn.fresh {
		t.Errorf("does not probe at its time: %+v", d)
	}
	if second := (&item{dest: d}); second.probeWith(d.probeAt) || second.role.probe {
		t.Error("a second item probes beside the first")
	}
	fresh := &item{dest: d, path: core.PathHot}
	if fresh.startProbe(); !fresh.role.probe || !d.turn.fresh {
		t.Error("the turn of a fresh event is not noted")
	}
}

type used bool

func (u *used) inUse() bool { return bool(*u) }

// A value in use is remembered, however many others are added. The others are forgotten in the end.
func TestGenerations(t *testing.T) {
	g := generations[int, *used]{limit: 10}
	if _, ok := g.find(0); ok {
		t.Fatal("found in an empty one")
	}
	busy, asked := used(true), used(false)
	g.put(0, &busy)
	g.put(1, &asked)
	most := 0
	for i := range 1000 {
		g.put(2+i, new(used))
		if v, ok := g.find(1); !ok || v != &asked {
			t.Fatal("a value that is asked for again and again was forgotten")
		}
		most = max(most, len(g.young)+len(g.old))
	}
	if v, ok := g.find(0); !ok || v != &busy {
		t.Error("a value in use was forgotten")
	}
	if most > 20 {
		t.Errorf("%d remembered, want at most two generations of 10", most)
	}
	if _, ok := g.find(2); ok {
		t.Error("nothing was forgotten")
	}
}
