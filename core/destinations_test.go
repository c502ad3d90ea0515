package core

import (
	"fmt"
	"slices"
	"testing"
	"time"
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
