package core

import "testing"

func TestReplays(t *testing.T) {
	var p replays
	d := &destination{}
	a, b := &item{dest: d, size: 10}, &item{dest: d, size: 20}
	p.sentBack = 7
	p.hold(a)
	p.hold(b)
	if !a.replay || p.slots != (slots{2, 30}) || d.replays != 2 || p.sentBack != 0 || p.underWay != 0 {
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
