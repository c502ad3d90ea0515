package core

import "testing"

func TestParked(t *testing.T) {
	var p parked
	if it, ok := p.pop(); ok || it != nil || p.len() != 0 || p.next(true) != nil {
		t.Fatal("a new parked holds an item")
	}
	a, b, again := &item{id: RowID{1}}, &item{id: RowID{2}}, &item{id: RowID{3}, role: itemRole{replay: true}}
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
