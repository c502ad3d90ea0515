package relay

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// Run and calls of Drain share the poller: their rounds follow each other.
func TestPollerRoundsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := make(turns, 1)
		if err := p.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.begin(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a second round begins beside the first: %v", err)
		}
		began := make(chan error)
		go func() { began <- p.begin(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-began:
			t.Fatalf("a round begins before the end of the other: %v", err)
		default:
		}
		p.end()
		if err := <-began; err != nil {
			t.Fatal(err)
		}
		p.end()
		if err := p.begin(t.Context()); err != nil {
			t.Fatalf("no round begins after all have ended: %v", err)
		}
	})
}

func TestPollerKindsTakeTurns(t *testing.T) {
	var p poller
	var first []bool
	for range 4 {
		first = append(first, p.count())
	}
	if !slices.Equal(first, []bool{false, true, false, true}) || p.rounds != 4 {
		t.Errorf("ordered rows come first in rounds %v; %d were counted", first, p.rounds)
	}
}

func TestPollerGoesThroughTheKeys(t *testing.T) {
	now, p := time.Now(), poller{}
	if after, ok := p.heads(now); !ok || !after.IsZero() {
		t.Fatalf("a new poller begins after %v, %t", after, ok)
	}
	page := func(next core.KeyID) bool {
		after, ok := p.heads(now)
		if !ok {
			t.Fatalf("rests after %v", after)
		}
		return p.page(after, next, 0, now, time.Hour)
	}
	if !page(core.KeyID{1}) {
		t.Error("no page follows the first of several")
	}
	if after, _ := p.heads(now); after != (core.KeyID{1}) {
		t.Errorf("goes on after %v", after)
	}
	if page(core.KeyID{}) {
		t.Error("a sweep follows one that found nothing")
	}
	if _, ok := p.heads(now); ok {
		t.Error("the keys do not rest after a sweep of several pages that found nothing")
	}
	if after, ok := p.heads(now.Add(2 * sweepRest)); !ok || !after.IsZero() {
		t.Errorf("after the rest: goes on after %v, %t", after, ok)
	}
	p.drains++
	if _, ok := p.heads(now); !ok || !p.draining() {
		t.Error("Drain waits for the rest of the keys")
	}
	p.drains--
	if _, ok := p.heads(now); ok || p.draining() {
		t.Error("the end of Drain ends the rest of the keys")
	}
	p.wakeKeys()
	if _, ok := p.heads(now); !ok {
		t.Error("keys that were passed over rest")
	}
}

// A kind of rows that had none is passed over for a while, until it is looked for again.
func TestIdleKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k idleKinds
		asked := 0
		var result stepResult
		var fails error
		step := k.unless(&k.ordered, func(context.Context) (stepResult, error) {
			asked++
			return result, fails
		})
		look := func() (wasAsked bool) {
			t.Helper()
			k.passed = false
			before := asked
			if _, err := step(t.Context()); !errors.Is(err, fails) && asked != before {
				t.Error(err)
			}
			if wasAsked = asked > before; wasAsked == k.passed {
				t.Errorf("asked: %t, passed over: %t", wasAsked, k.passed)
			}
			return wasAsked
		}
		for _, result = range []stepResult{
			{asked: true, rows: 1}, {asked: true, more: true}, {}, // the last: nothing was sent
		} {
			if first, second := look(), look(); !first || !second {
				t.Errorf("passed over after %+v", result)
			}
		}
		fails = errors.New("away")
		if first, second := look(), look(); !first || !second {
			t.Error("passed over after an error")
		}
		fails, result = nil, stepResult{asked: true}
		if !look() {
			t.Fatal("passed over before it was empty")
		}
		if time.Sleep(idlePause - 1); look() {
			t.Error("an empty kind is asked for again at once")
		}
		if time.Sleep(time.Nanosecond); !look() {
			t.Error("an empty kind is not asked for after its pause")
		}
		k.unordered = time.Time{}
		other := k.unless(&k.unordered, func(context.Context) (stepResult, error) { return stepResult{rows: 9}, nil })
		if res, _ := other(t.Context()); res.rows != 9 {
			t.Error("one kind is passed over because of the other")
		}
	})
}

func TestSweep(t *testing.T) {
	now, zero, lane := time.Now(), core.KeyID{}, core.KeyID{1}
	var s sweep
	if s.page(zero, zero, 0, now, time.Minute) || s.resting(now) {
		t.Error("a sweep of one page that found nothing is followed by another, or by a rest")
	}
	if s.page(zero, zero, 500, now, time.Minute) || s.resting(now) {
		t.Error("a sweep of one page is followed by another, or by a rest")
	}
	for _, c := range []struct {
		rows int
		most time.Duration
		more bool
		rest time.Duration
	}{
		{0, time.Minute, false, 3 * sweepRest},
		{1, time.Minute, true, 3 * sweepRest},
		{100, time.Minute, true, 0},
		{0, 2 * sweepRest, false, 2 * sweepRest},
	} {
		s = sweep{}
		if !s.page(zero, lane, 0, now, c.most) || !s.page(lane, lane, c.rows, now, c.most) {
			t.Fatal("a sweep ends in the middle")
		}
		equal(t, s.page(lane, zero, 0, now, c.most), c.more, "%d rows: another sweep at once", c.rows)
		if !s.resting(now.Add(c.rest-1)) && c.rest > 0 || s.resting(now.Add(c.rest)) {
			t.Errorf("%d rows: rests until %s, want %s", c.rows, s.restUntil.Sub(now), c.rest)
		}
	}
}

func TestWakeups(t *testing.T) {
	var zero wakeups
	if !zero.next().IsZero() {
		t.Fatal("a new wakeups wants a poll or a look")
	}
	w := newWakeups(newSignals())
	now := time.Now()
	kicked := func() bool {
		select {
		case <-w.signals.poll:
			return true
		default:
			return false
		}
	}
	w.poll(now.Add(time.Second))
	if !kicked() || !w.next().Equal(now.Add(time.Second)) {
		t.Error("a poll that is asked for is not wanted")
	}
	w.poll(now.Add(time.Minute))
	if kicked() || !w.next().Equal(now.Add(time.Second)) {
		t.Error("a later one counts")
	}
	w.answered()
	w.lane(core.KeyID{1}, now)
	w.lane(core.KeyID{2}, now.Add(time.Second))
	w.lane(core.KeyID{2}, now.Add(time.Minute))
	if at, ok := w.nextLane(); !ok || !at.Equal(now) || !kicked() {
		t.Error("a lane is not wanted")
	}
	due := w.takeLanes(now, 10)
	if len(due) != 1 || due[0].lane != (core.KeyID{1}) || len(w.lanes) != 1 {
		t.Fatalf("took %v, left %v", due, w.lanes)
	}
	due = w.takeLanes(now.Add(time.Hour), 10)
	if len(due) != 1 || !due[0].at.Equal(now.Add(time.Second)) {
		t.Fatalf("took %v, want the sooner one", due)
	}

	// A look that found nothing is repeated for a while, but not if a newer look is due.
	l := due[0]
	tries := 0
	for ; ; tries++ {
		w.tryAgain(l, now)
		got := w.takeLanes(now.Add(time.Hour), 10)
		if len(got) == 0 {
			break
		}
		l = got[0]
	}
	equal(t, tries, laneTries-1, "looked so often again")
	w.lane(core.KeyID{2}, now)
	w.putBack(laneWake{lane: core.KeyID{2}, at: now.Add(-time.Hour), tries: 5}, laneWake{lane: core.KeyID{3}, at: now})
	if len(w.lanes) != 2 || w.lanes[0].tries != 0 {
		t.Errorf("lanes %v", w.lanes)
	}

	// If too many keys need a look, an ordinary poll finds them.
	w = newWakeups(newSignals())
	for i := range maxLaneWakes + 1 {
		w.lane(core.KeyID{byte(i), byte(i >> 8)}, now)
	}
	if len(w.lanes) != maxLaneWakes || !w.at.Equal(now) {
		t.Errorf("%d lanes, poll at %s", len(w.lanes), w.at)
	}
}

func TestWakeupsForRoom(t *testing.T) {
	w := newWakeups(newSignals())
	w.room()
	equal(t, len(w.signals.room), 0, "woken without waiting for room")
	w.wantRoom = true
	w.room()
	w.room()
	if len(w.signals.room) != 1 || w.wantRoom {
		t.Error("not woken once")
	}
}

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

	w := newWakeups(newSignals())
	w.heard.rest = now.Add(time.Second)
	w.onWake(now)
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
	w.onWake(now.Add(2 * time.Second))
	if !w.next().Equal(now.Add(2 * time.Second)) {
		t.Error("a wake-up rests for too long")
	}
}
