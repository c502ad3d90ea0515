package relay

import (
	"math"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func TestRateLimit(t *testing.T) {
	now := time.Now()
	var l rateLimit
	if l.wait(now) != 0 || !l.open(now, 1000) || l.most() != math.MaxInt || l.room(now, 5) != math.MaxInt-5 {
		t.Fatal("the zero value limits something")
	}
	l.take(now)

	l.set(core.Rate{PerSecond: 100}, now)
	if !l.open(now, 1000) {
		t.Fatal("the first event waits")
	}
	l.take(now)
	if d := l.wait(now); d < 10*time.Millisecond || d > 11*time.Millisecond || l.open(now, 0) {
		t.Fatalf("at 100 a second, the second event waits %s", d)
	}
	if at := now.Add(l.wait(now)); !l.open(at, 0) {
		t.Fatal("there is no token after the wait for it")
	}
	// After a long pause, no more events go at once than those of rateBurst.
	now = now.Add(time.Hour)
	burst := 0
	for ; l.open(now, 0); burst++ {
		l.take(now)
	}
	equal(t, burst, 10, "events at once")
	if l.most() != 100 || l.room(now, 40) != 60 || l.room(now, 200) != 0 {
		t.Errorf("at most %d are held, room for %d and %d", l.most(), l.room(now, 40), l.room(now, 200))
	}
	if l.worthLook(now, 51) || !l.worthLook(now, 50) {
		t.Error("a claim is worth it with less than half of the room, or not with half of it")
	}
	l.take(now) // a suspect does not wait
	if d := l.wait(now); d < 20*time.Millisecond {
		t.Errorf("after one too many, the next event waits only %s", d)
	}
	l.set(core.Rate{PerSecond: 100, InFlight: 3}, now)
	if later := now.Add(time.Minute); !l.open(later, 2) || l.open(later, 3) || l.most() != 12 {
		t.Errorf("three may be under way, and %d are held", l.most())
	}
}

// A destination that gets less than one event a second is looked at when the time of its next event
// has nearly come.
func TestRateLimitBelowOne(t *testing.T) {
	now := time.Now()
	var l rateLimit
	l.set(core.Rate{PerSecond: 0.1}, now)
	if l.most() != 1 || l.room(now, 0) != 1 {
		t.Fatalf("holds %d", l.most())
	}
	l.take(now)
	equal(t, l.room(now, 0), 0, "room for an event that goes in ten seconds")
	at, ok := l.lookAt(now, 0)
	if wait := at.Sub(now); !ok || wait < 9*time.Second || wait > 9*time.Second+time.Millisecond {
		t.Errorf("looks in %s, %t; want a second before the token", wait, ok)
	}
	equal(t, l.room(at.Add(time.Microsecond), 0), 1, "no room when it looks")
	if _, ok := l.lookAt(now, 1); ok {
		t.Error("looks for a second event while it holds the first")
	}
}

func TestRateLook(t *testing.T) {
	now := time.Now()
	var l rateLook
	if l.at().After(now) {
		t.Fatal("the first look waits")
	}
	gaps := []time.Duration{}
	for range 4 {
		l.begin()
		l.end(false, now, time.Second, 3*time.Second, 0.5)
		gaps = append(gaps, l.gap)
	}
	if gaps[0] != time.Second || gaps[1] != 2*time.Second || gaps[3] != 3*time.Second {
		t.Errorf("pauses after looks in vain: %v", gaps)
	}
	if !l.at().After(now.Add(time.Second)) {
		t.Errorf("looks again in %s", l.at().Sub(now))
	}
	l.ask(now.Add(time.Millisecond))
	l.ask(now.Add(time.Hour))
	if !l.at().Equal(now.Add(time.Millisecond)) {
		t.Errorf("looks in %s, want when it was asked for first", l.at().Sub(now))
	}
	l.begin() // it answers what asked before
	l.end(false, now, time.Second, 3*time.Second, 0.5)
	if !l.at().After(now.Add(time.Second)) {
		t.Errorf("looks again in %s for what an earlier look answered", l.at().Sub(now))
	}
	l.begin()
	l.ask(now) // while the look is under way
	l.end(false, now, time.Second, 3*time.Second, 0.5)
	if !l.at().Equal(now) {
		t.Error("what asked during a look is forgotten")
	}
	l.begin()
	l.end(true, now, time.Second, 3*time.Second, 0.5)
	if !l.at().Equal(now) || l.gap != 0 {
		t.Errorf("after a look that found events, the next one waits %s", l.at().Sub(now))
	}
}
