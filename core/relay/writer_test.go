package relay

import (
	"slices"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay/internal/guard"
)

func TestSignal(t *testing.T) {
	var nobody signal
	nobody.give() // does not block
	s := newSignal()
	s.give()
	s.give() // before it was taken
	if len(s) != 1 {
		t.Fatalf("given %d times, want once for what is found together", len(s))
	}
	<-s
	if s.give(); len(s) != 1 {
		t.Error("not given again after it was taken")
	}
}

func TestWriterPlans(t *testing.T) {
	const delay = 10 * time.Millisecond
	begun := time.Now()
	w := &writer{}
	at := func(after time.Duration, waiting int, full, abandoned bool) time.Duration {
		w.plan(waiting, full, abandoned, begun.Add(after), delay)
		if w.due.IsZero() {
			return -1
		}
		return w.due.Sub(begun)
	}
	if got := at(0, 0, false, false); got != -1 {
		t.Fatalf("writes nothing in %s", got)
	}
	if got := at(0, 1, false, false); got != delay {
		t.Errorf("the first mark is written after %s, want %s", got, delay)
	}
	if got := at(delay/2, 2, false, false); got != delay {
		t.Errorf("a second mark moves the time of the first to %s", got)
	}
	equal(t, at(delay/2, 50, true, false), delay/2, "time to a full batch")
	if got := at(delay/2, 0, false, false); got != -1 {
		t.Errorf("after the batch, nothing is written in %s", got)
	}

	// After a failure, a full batch must not end the pause. The end of the relay does.
	w.failures, w.due = 1, begun.Add(time.Second)
	if got := at(delay, 50, true, false); got != time.Second {
		t.Errorf("after a failure, a full batch is written after %s, want %s", got, time.Second)
	}
	equal(t, at(delay, 50, true, true), delay, "time to the last try")
}

// The writer is woken when a batch begins, so that it waits for the rest, and when it is full.
func TestWriterWaitsForBatches(t *testing.T) {
	s := newState(
		&outbox{cfg: &Config{MarkBatch: 3, ClaimBatch: 5, ColdEvents: 100}},
		&guard.Effects{},
		newSignals(),
		nil,
	)
	woken := func() bool {
		select {
		case <-s.signals.marks:
			return true
		default:
			return false
		}
	}
	for _, c := range []struct {
		path  core.Path
		marks int // of that path alone
		batch int
	}{{core.PathHot, 6, 3}, {core.PathCold, 8, 5}} {
		s.marks = newMarks(s.cfg)
		for n := 1; n <= c.marks; n++ {
			s.addAck(&item{state: itemAcked, path: c.path})
			if full := n >= c.batch; s.marks.batchWaits() != full || woken() != (full || n == 1) {
				t.Errorf("path %s: mark %d: a batch waits: %t", c.path, n, s.marks.batchWaits())
			}
		}
	}
	s.marks = newMarks(s.cfg)
	for range 2 {
		s.addAck(&item{state: itemAcked, path: core.PathHot})
		s.addAck(&item{state: itemAcked, path: core.PathCold})
	}
	if woken(); s.marks.batchWaits() {
		t.Error("two marks of each path are a batch")
	}
	if s.addMark(&item{state: itemFailed, path: core.PathHot}); !woken() || s.marks.batchWaits() || s.marks.len() != 5 {
		t.Error("a failure wakes nobody, or counts as an acknowledgement")
	}
}

func TestMarks(t *testing.T) {
	var m marks
	items := func(lists [markKinds][]mark) (all []*item) {
		for _, list := range lists {
			for _, mk := range list {
				all = append(all, mk.it)
			}
		}
		return all
	}
	if m.len() != 0 || len(items(m.take())) != 0 {
		t.Fatal("new marks hold an item")
	}
	acked := []*item{{state: itemAcked, path: core.PathHot}, {state: itemAcked, path: core.PathHot}}
	claimed := &item{state: itemAcked, path: core.PathCold}
	failed, released := &item{state: itemFailed, path: core.PathHot}, &item{state: itemReleasing, path: core.PathHot}
	for _, it := range []*item{released, failed, acked[0]} {
		equal(t, m.add(it), 1, "%s: marks of its kind that wait", it.state)
	}
	if n := m.add(claimed); n != 2 || m.doneCold != 1 {
		t.Errorf("%d acknowledged wait, %d of them claimed; want 2 and 1", n, m.doneCold)
	}
	if m.len() != 4 || m.held != 2 {
		t.Fatalf("%d wait, %d hold publishing back; want 4 and 2", m.len(), m.held)
	}
	taken := m.take()
	if want := []*item{acked[0], claimed, failed, released}; !slices.Equal(items(taken), want) || m.len() != 0 ||
		m.held != 2 || m.doneCold != 0 {
		t.Fatalf("took %v: acknowledgements and failures come before releases", items(taken))
	}
	m.add(acked[1])
	m.putBack(slices.Concat(taken[:]...))
	equal(t, m.doneCold, 1, "claimed marks that wait")
	if got := items(
		m.take(),
	); !slices.Equal(got, []*item{acked[0], claimed, acked[1], failed, released}) ||
		m.held != 3 {
		t.Fatalf("took %v, %d hold back: what was taken before comes first", got, m.held)
	}
	for _, it := range []*item{acked[0], acked[1], failed} {
		if !m.ended(it) {
			t.Errorf("%s held nobody back", it.state)
		}
	}
	acked[0].mark.tries = 1 // the mark was postponed, and is written later
	if m.ended(acked[0]) || m.ended(claimed) || m.ended(released) || m.held != 0 {
		t.Errorf("%d hold publishing back at the end", m.held)
	}
}

func TestPostponed(t *testing.T) {
	var a postponed
	now := time.Now()
	x, y := &item{id: core.RowID{1}}, &item{id: core.RowID{2}}
	if _, ok := a.next(); ok {
		t.Fatal("a new postponed holds an item")
	}
	a.add(x.toMark(), now, 0.5)
	for range 9 {
		y.mark.tries++
	}
	a.add(y.toMark(), now, 0.5)
	if at, ok := a.next(); !ok || !at.Equal(now.Add(postponeFirst)) {
		t.Fatalf("next at %s, %t; want after %s", at.Sub(now), ok, postponeFirst)
	}
	if got := a.take(now, false); len(got) != 0 {
		t.Fatalf("%d taken before they are due", len(got))
	}
	if got := a.take(now.Add(postponeFirst), false); len(got) != 1 || got[0].it != x {
		t.Fatalf("took %v, want the first", got)
	}
	if at, _ := a.next(); at.After(now.Add(postponeMost)) {
		t.Errorf("waits %s, longer than %s", at.Sub(now), postponeMost)
	}
	if got := a.take(now, true); len(got) != 1 || got[0].it != y {
		t.Fatalf("took %v, want all", got)
	}

	told := 0
	for range 600 {
		if a.add(x.toMark(), now, 0) {
			told++
		}
	}
	if told != 3 { // the tries 8, 64 and 512
		t.Errorf("told %d times in 600 tries, want 3", told)
	}
}
