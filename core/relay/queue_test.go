package relay

import (
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

func TestQueue(t *testing.T) {
	var q queue[int]
	if v, ok := q.pop(); ok || v != 0 || q.len() != 0 {
		t.Fatal("a new queue holds something")
	}
	// Pushes and pops alternate, so that the queue frees what was popped while others wait.
	next := 0
	for i := range 10_000 {
		q.push(i)
		if i%3 == 0 {
			if first := q.first(); first != next {
				t.Fatalf("first is %d, want %d", first, next)
			}
			if v, ok := q.pop(); !ok || v != next {
				t.Fatalf("popped %d %t, want %d", v, ok, next)
			}
			next++
		}
	}
	for ; q.len() > 0; next++ {
		if v, ok := q.pop(); !ok || v != next {
			t.Fatalf("popped %d %t, want %d", v, ok, next)
		}
		if len(q.items) > 2*q.len()+1024 {
			t.Fatalf("%d places are kept for %d values", len(q.items), q.len())
		}
	}
	equal(t, next, 10_000, "popped values")
}

// A queue does not point to a popped value, so that its memory can be freed.
func TestQueueForgetsWhatWasPopped(t *testing.T) {
	var q queue[*int]
	for range 5 {
		q.push(new(int))
	}
	q.pop()
	q.pop()
	for i, v := range q.items[:cap(q.items)] {
		equal(t, v != nil, (i >= 2 && i < 5), "place %d holds a value", i)
	}
}

func TestWorkQueueStarvesNobody(t *testing.T) {
	var q workQueue
	if q.pop(true, true) != nil {
		t.Fatal("a new queue holds an item")
	}
	d := &destination{}
	d.refusals.meet(core.RowID{9})
	count := map[string]int{}
	push := func(n int, path core.Path, id core.RowID, suspect bool) {
		for range n {
			q.push(&item{path: path, id: id, dest: d, state: itemReady, role: itemRole{suspect: suspect}})
		}
	}
	push(64, core.PathHot, core.RowID{1}, false)
	push(64, core.PathCold, core.RowID{2}, false)
	push(64, core.PathCold, core.RowID{9}, false)
	push(10, core.PathCold, core.RowID{3}, true)
	stale := &item{path: core.PathHot, dest: d, state: itemReleasing}
	q.push(stale)
	for range 72 {
		it := q.pop(true, true)
		switch {
		case it == stale:
			t.Fatal("took what had been given back")
		case it.role.suspect:
			count["suspect"]++
			q.suspects.out = nil
		case it.path == core.PathHot:
			count["hot"]++
		case it.id == core.RowID{9}:
			count["again"]++
		default:
			count["cold"]++
		}
	}
	if count["hot"] < 40 || count["cold"] < 7 || count["again"] < 7 || count["suspect"] != 10 {
		t.Errorf("of 72 picks: %v", count)
	}
}

func TestWorkQueueOneSuspectAtATime(t *testing.T) {
	var q workQueue
	d := &destination{}
	a, b := &item{dest: d, state: itemReady, role: itemRole{suspect: true}}, &item{dest: d, state: itemReady}
	q.push(a)
	q.push(b)
	b.role.suspect = true // the item became a suspect while it waited
	if it := q.pop(true, true); it != a {
		t.Fatal("the suspect did not come first")
	}
	q.suspects.out = a
	if it := q.pop(true, true); it != nil {
		t.Fatal("a second suspect beside the first")
	}
	q.suspects.out = nil
	if it := q.pop(true, true); it != b {
		t.Fatal("the second suspect is lost")
	}
}

func TestWorkQueueHoldsFastPathBack(t *testing.T) {
	var q workQueue
	d := &destination{}
	hot := &item{path: core.PathHot, dest: d, state: itemReady}
	claimed := &item{path: core.PathCold, id: core.RowID{1}, dest: d, state: itemReady}
	q.push(hot)
	q.push(claimed)
	if it := q.pop(false, true); it != claimed {
		t.Fatal("the claimed item did not come")
	}
	for range 2 * coldShare {
		if it := q.pop(false, true); it != nil {
			t.Fatal("took an item of the fast path")
		}
	}
	if it := q.pop(true, true); it != hot {
		t.Fatal("the item of the fast path is lost")
	}
}

// Replayed events are taken when nothing else waits. Otherwise one of replayShare picks is a
// replayed event.
func TestWorkQueueReplaysGoLast(t *testing.T) {
	var q workQueue
	d := &destination{}
	replays, live := 0, 0
	for i := range 4 * replayShare {
		q.push(&item{path: core.PathCold, id: core.RowID{1}, dest: d, state: itemReady, role: itemRole{replay: true}})
		q.push(&item{path: []core.Path{core.PathHot, core.PathCold}[i%2], id: core.RowID{2}, dest: d, state: itemReady})
	}
	for range 2 * replayShare {
		if q.pop(true, true).role.replay {
			replays++
		}
	}
	if replays != 2 {
		t.Errorf("%d of %d picks were replays, want 2", replays, 2*replayShare)
	}
	for it := q.pop(true, false); it != nil; it = q.pop(true, false) {
		live++
		if it.role.replay {
			t.Fatal("a replay was taken that may not be")
		}
	}
	for it := q.pop(true, true); it != nil; it = q.pop(true, true) {
		replays++
	}
	if replays != 4*replayShare || live != 2*replayShare+2 {
		t.Errorf("%d replays and then %d others, want all", replays, live)
	}
}

func TestParked(t *testing.T) {
	var p parked
	if it, ok := p.pop(); ok || it != nil || p.len() != 0 || p.next(true) != nil {
		t.Fatal("a new parked holds an item")
	}
	a, b, again := &item{
		id: core.RowID{1},
	}, &item{
		id: core.RowID{2},
	}, &item{
		id:   core.RowID{3},
		role: itemRole{replay: true},
	}
	p.push(again)
	equal(t, p.before(a), 0, "items before an event while only a replayed one waits")
	if p.next(false) != nil {
		t.Error("a replayed event would be taken that may not be")
	}
	p.push(a)
	p.push(b)
	if p.len() != 3 || p.before(&item{}) != 2 || p.before(&item{role: itemRole{replay: true}}) != 3 {
		t.Errorf("%d wait, %d before an event, %d before a replayed one; want 3, 2 and 3", p.len(),
			p.before(&item{}), p.before(&item{role: itemRole{replay: true}}))
	}
	for i, want := range []*item{a, b, again} {
		if got, ok := p.pop(); !ok || got != want {
			t.Errorf("item %d is %v, want %v", i, got.id, want.id)
		}
	}
	if p.len() != 0 {
		t.Errorf("%d are left", p.len())
	}
}

// Of the items that wait for the rate of their destination, replayed events go last too.
func TestParkedReplaysGoLast(t *testing.T) {
	var p parked
	for range replayShare {
		p.push(&item{role: itemRole{replay: true}})
		p.push(&item{})
	}
	replays := 0
	for n := range 2 * replayShare {
		if from := p.next(false); from == &p.replays || from == nil && n < replayShare {
			t.Fatalf("pick %d: a replay would be taken that may not be", n)
		}
		if it, ok := p.pop(); !ok {
			t.Fatal("an item is lost")
		} else if it.role.replay && n < replayShare {
			replays++
		}
	}
	if replays != 1 || p.len() != 0 {
		t.Errorf("%d of the first %d were replays, want 1; %d are left", replays, replayShare, p.len())
	}
}

func TestSuspectsTakeTurns(t *testing.T) {
	var s suspects
	if _, ok := s.next(0); ok {
		t.Fatal("a new suspects holds an item")
	}
	a, b, c := &item{id: core.RowID{1}}, &item{id: core.RowID{2}}, &item{id: core.RowID{3}}
	for _, it := range []*item{a, b, c} {
		s.queue.push(it)
	}
	if it, ok := s.next(5); !ok || it != a {
		t.Fatal("the first suspect does not go before the others")
	}
	if _, ok := s.next(5); ok {
		t.Fatal("two suspects in a row while other items wait")
	}
	if it, ok := s.next(5); !ok || it != b {
		t.Fatal("a suspect does not follow another item")
	}
	s.out = b
	for range 3 {
		if _, ok := s.next(0); ok {
			t.Fatal("a suspect beside the one that is out")
		}
	}
	s.out = nil
	if it, ok := s.next(0); !ok || it != c {
		t.Fatal("no suspect follows the end of the one before it")
	}
	if _, ok := s.next(0); ok {
		t.Error("a suspect is left at the end")
	}
}

// The publish of a suspect begins only under the claim under which it is written down.
func TestLeaseMayPublish(t *testing.T) {
	for _, c := range []struct {
		claimNo, begun int64
		suspect, may   bool
	}{{7, 0, false, true}, {7, 0, true, false}, {7, 6, true, false}, {7, 7, true, true}} {
		l := itemLease{claimNo: c.claimNo, begun: c.begun}
		if may := l.mayPublish(c.suspect); may != c.may {
			t.Errorf("claim %d, written down for %d, suspect %t: may publish: %t", c.claimNo, c.begun, c.suspect, may)
		}
	}
}
