package core

import (
	"testing"
	"time"
)

// Wake-ups are rationed. A busy relay claims in batches, and a relay whose wake-ups bring it no
// rows looks only now and then.
func TestHeardRests(t *testing.T) {
	var h heard
	now := time.Now()
	rest := func(took time.Duration, rows int) time.Duration {
		h.took(now.Add(-took), now, rows)
		return h.rest.Sub(now)
	}
	equal(t, rest(time.Millisecond, 1), time.Millisecond, "after one row")
	equal(t, rest(2*time.Millisecond, 4*batchRows), 10*time.Millisecond, "after four batches")
	equal(t, rest(time.Second, 500), maxBatched, "after a slow round")
	last := time.Duration(0)
	for range 20 {
		d := rest(0, 0)
		if d < last || d > maxVain {
			t.Errorf("after nothing: %s, before that %s", d, last)
		}
		last = d
	}
	equal(t, last, maxVain, "after nothing for long")
	equal(t, rest(0, 1), 0, "after a row again")

	for _, c := range []struct {
		orderedFirst  bool
		first, second int
		want          bool
	}{{true, 1, 0, true}, {false, 0, 1, true}, {true, 0, 0, true}, {true, 0, 1, false}, {false, 3, 3, false}} {
		if h.found(c.orderedFirst, c.first, c.second, false); h.orderedFirst(true) != c.want ||
			h.orderedFirst(false) != c.want {
			t.Errorf("%+v: another kind comes first", c)
		}
	}
	h.found(true, 1, 0, true)
	if !h.orderedFirst(true) || h.orderedFirst(false) {
		t.Error("the kinds do not take turns while rows are left behind")
	}

	w := newWakeups()
	w.heard.rest = now.Add(time.Second)
	w.hear(now)
	if !w.next().Equal(now.Add(time.Second)) {
		t.Error("a wake-up does not rest")
	}
	w.poll(now) // an event of this process
	if !w.next().Equal(now) {
		t.Error("a poll of this process rests")
	}
	if !w.answered() || w.answered() {
		t.Error("a wake-up of another process is not answered exactly once")
	}
	w.hear(now.Add(2 * time.Second))
	if !w.next().Equal(now.Add(2 * time.Second)) {
		t.Error("a wake-up rests for too long")
	}
}
