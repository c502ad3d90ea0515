package core

import "testing"

func TestWorkQueueStarvesNobody(t *testing.T) {
	var q workQueue
	if q.pop(true) != nil {
		t.Fatal("something is in an empty one")
	}
	d := &destination{}
	d.refusals.meet(RowID{9})
	count := map[string]int{}
	push := func(n int, path Path, id RowID, suspect bool) {
		for range n {
			q.push(&item{path: path, id: id, dest: d, state: itemReady, suspect: suspect})
		}
	}
	push(64, PathHot, RowID{1}, false)
	push(64, PathCold, RowID{2}, false)
	push(64, PathCold, RowID{9}, false)
	push(10, PathCold, RowID{3}, true)
	stale := &item{path: PathHot, dest: d, state: itemReleasing}
	q.push(stale)
	for range 72 {
		it := q.pop(true)
		switch {
		case it == stale:
			t.Fatal("took what had been given back")
		case it.suspect:
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
	a, b := &item{dest: d, state: itemReady, suspect: true}, &item{dest: d, state: itemReady}
	q.push(a)
	q.push(b)
	b.suspect = true // the item became a suspect while it waited
	if it := q.pop(true); it != a {
		t.Fatal("the suspect did not come first")
	}
	q.suspects.out = a
	if it := q.pop(true); it != nil {
		t.Fatal("a second suspect beside the first")
	}
	q.suspects.out = nil
	if it := q.pop(true); it != b {
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
	if it := q.pop(false); it != claimed {
		t.Fatal("the claimed item did not come")
	}
	for range 2 * coldShare {
		if it := q.pop(false); it != nil {
			t.Fatal("took an item of the fast path")
		}
	}
	if it := q.pop(true); it != hot {
		t.Fatal("the item of the fast path is lost")
	}
}
