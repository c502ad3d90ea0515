package core

import (
	"sync"
	"testing"
	"time"
)

func TestCrew(t *testing.T) {
	c := crew{size: 2, alive: 2}
	for i, want := range []struct {
		replace      bool
		alive, stuck int
	}{{true, 2, 1}, {true, 2, 2}, {false, 1, 3}, {false, 0, 4}} {
		if got := c.lose(); got != want.replace || c.alive != want.alive || c.stuck != want.stuck {
			t.Fatalf("loss %d: replaced %t, %+v; want %+v", i+1, got, c, want)
		}
	}
	for i, want := range []struct {
		needed       bool
		alive, stuck int
	}{{true, 1, 3}, {true, 2, 2}, {false, 2, 1}, {false, 2, 0}} {
		if got := c.back(); got != want.needed || c.alive != want.alive || c.stuck != want.stuck {
			t.Fatalf("return %d: needed %t, %+v; want %+v", i+1, got, c, want)
		}
	}
}

func TestCrewIsStuck(t *testing.T) {
	var zero crew
	if !zero.noneLeft() || zero.abandoned() != 0 {
		t.Fatal("a crew without workers can publish")
	}
	c := crew{size: 8, alive: 8}
	called, handed := &item{}, &item{handover: &handover{}}
	if c.noneLeft() || c.stuckMost(called) != 2 || c.stuckMost(handed) != 1 {
		t.Errorf("none left: %t; %d and %d may be stuck", c.noneLeft(), c.stuckMost(called), c.stuckMost(handed))
	}
	c.handovers = handovers{most: 100, mostBytes: 1000, left: 3}
	c.stuck = 2
	if c.stuckMost(handed) != 25 || c.abandoned() != 5 {
		t.Errorf("%d may be stuck, %d are", c.stuckMost(handed), c.abandoned())
	}
	if c.handovers.left = 200; !c.noneLeft() {
		t.Error("workers are left, and no place for what they publish")
	}
}

// The workers that found no place wait. The end of a publish wakes them, and an abandoned publish
// keeps a place of its own until it has ended.
func TestCrewFreesPlaces(t *testing.T) {
	var mu sync.Mutex
	c := newCrew(&Config{Workers: 2}, &mu)
	c.handovers = handovers{most: 2, mostBytes: 100, events: 2, bytes: 30, blocked: true}
	called := &item{dest: &destination{}, size: 5}
	if c.freePlace(called); c.handovers.events != 2 || c.handovers.bytes != 30 {
		t.Errorf("a call of another publisher frees a place: %+v", c.handovers)
	}
	a := &item{dest: &destination{}, size: 10, handover: &handover{}}
	b := &item{dest: &destination{}, size: 20, handover: &handover{}, timing: itemTiming{stuck: true}}
	woken := make(chan struct{})
	mu.Lock()
	go func() {
		mu.Lock()
		defer mu.Unlock()
		for c.handovers.blocked {
			c.work.Wait()
		}
		close(woken)
	}()
	c.freePlace(a)
	mu.Unlock()
	<-woken
	mu.Lock()
	defer mu.Unlock()
	if c.freePlace(b); c.handovers != (handovers{most: 2, mostBytes: 100, left: 1, leftBytes: 20}) {
		t.Errorf("after an abandoned publish: %+v", c.handovers)
	}
	if c.answeredLate(b); c.handovers != (handovers{most: 2, mostBytes: 100}) {
		t.Errorf("after its end: %+v", c.handovers)
	}
}

func TestCrewGoesOnWithTheNextSuspect(t *testing.T) {
	var mu sync.Mutex
	c := newCrew(&Config{Workers: 2}, &mu)
	out, other := &item{}, &item{}
	c.queue.suspects.out = out
	if c.suspectDone(other); c.queue.suspects.out != out {
		t.Error("the end of another item lets the next suspect be published")
	}
	if c.suspectDone(out); c.queue.suspects.out != nil {
		t.Error("the end of a suspect does not let the next one be published")
	}
}

func TestItemIsStuck(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		state itemState
		since time.Duration
		stuck bool
	}{
		{itemPublishing, 2*time.Second - 1, false},
		{itemPublishing, 2 * time.Second, true},
		{itemAcked, time.Hour, false},
		{itemPublishing, -1, false}, // the last has not begun
	} {
		it := &item{state: c.state}
		if c.since >= 0 {
			it.timing.started = now.Add(-c.since)
		}
		equal(t, it.isStuck(now, time.Second), c.stuck, "%s for %s: stuck", c.state, c.since)
	}
}
