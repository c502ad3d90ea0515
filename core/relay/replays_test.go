package relay

import (
	"testing"
)

func TestReplays(t *testing.T) {
	var p replays
	d := &destination{}
	a, b := &item{dest: d, size: 10}, &item{dest: d, size: 20}
	p.sentBack = 7
	p.hold(a)
	p.hold(b)
	if !a.role.replay || p.slots != (slots{2, 30}) || d.replays != 2 || p.sentBack != 0 || p.underWay != 0 {
		t.Fatalf("two are held: %+v, %d of the destination", p, d.replays)
	}
	for _, c := range []struct {
		it       *item
		from, to itemState
		underWay int
		held     slots
	}{
		{a, itemWaiting, itemReady, 0, slots{2, 30}},
		{a, itemReady, itemPublishing, 1, slots{2, 30}},
		{b, itemReady, itemPublishing, 2, slots{2, 30}},
		{a, itemPublishing, itemAcked, 1, slots{2, 30}},
		{a, itemAcked, itemGone, 1, slots{1, 20}},
		{b, itemPublishing, itemGone, 0, slots{}}, // its lease was lost
	} {
		p.move(c.it, c.from, c.to)
		if p.underWay != c.underWay || p.slots != c.held || d.replays != c.held.events {
			t.Errorf("%s to %s: %+v, %d of the destination", c.from, c.to, p, d.replays)
		}
	}
}

// Replayed events get at most half of the room, and half of what a destination with a rate holds.
func TestReplaysFit(t *testing.T) {
	cfg := &Config{ColdEvents: 10, ColdBytes: 100}
	free, limited := &destination{}, &destination{limit: &rateLimit{inFlight: 1}} // four are held for it
	for _, c := range []struct {
		held    slots
		replays int // of the destination
		d       *destination
		fits    bool
	}{
		{slots{}, 0, free, true},
		{slots{4, 50}, 4, free, true},
		{slots{5, 0}, 5, free, false},
		{slots{4, 51}, 4, free, false},
		{slots{1, 1}, 1, limited, true},
		{slots{2, 2}, 2, limited, false},
	} {
		p := replays{slots: c.held}
		c.d.replays = c.replays
		equal(t, p.fits(c.d, cfg), c.fits, "%+v are held, %d of the destination: fits", c.held, c.replays)
	}
}
