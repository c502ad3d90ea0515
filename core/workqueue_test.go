package core

import "testing"

func TestWorkQueueStarvesNobody(t *testing.T) {
	var q workQueue
	if q.pop(true, true) != nil {
		t.Fatal("a new queue holds an item")
	}
	d := &destination{}
	d.refusals.meet(RowID{9})
	count := map[string]int{}
	push := func(n int, path Path, id RowID, suspect bool) {
		for range n {
			q.push(&item{path: path, id: id, dest: d, state: itemReady, role: itemRole{suspect: suspect}})
		}
	}
	push(64, PathHot, RowID{1}, false)
	push(64, PathCold, RowID{2}, false)
	push(64, PathCold, RowID{9}, false)
	push(10, PathCold, RowID{3}, true)
	stale := &item{path: PathHot, dest: d, state: itemReleasing}
	q.push(stale)
	for range 72 {
		it := q.pop(true, true)
		switch {
		case it == stale:
			t.Fatal("took what had been given back")
		case it.role.suspect:
			count["suspect"]++
			q.suspects.out = nil
		case it.path == PathHot:
			count["hot"]++
		case it.id == RowID{9}:
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
	hot := &item{path: PathHot, dest: d, state: itemReady}
	claimed := &item{path: PathCold, id: RowID{1}, dest: d, state: itemReady}
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
		q.push(&item{path: PathCold, id: RowID{1}, dest: d, state: itemReady, role: itemRole{replay: true}})
		q.push(&item{path: []Path{PathHot, PathCold}[i%2], id: RowID{2}, dest: d, state: itemReady})
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
