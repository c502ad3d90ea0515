package relay

import (
	"os"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

func TestInflight(t *testing.T) {
	var f inflight
	d := &destination{}
	move := func(it *item, states ...itemState) {
		t.Helper()
		for _, s := range states {
			if err := f.move(it, s); err != nil {
				t.Fatal(err)
			}
		}
	}
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	if f.find(core.RowID{1}) != nil || f.active() != 0 || !closed(f.idleChan()) {
		t.Fatal("a new inflight holds an item")
	}
	hot := &item{id: core.RowID{1}, path: core.PathHot, size: 10, dest: d}
	cold := &item{id: core.RowID{2}, path: core.PathCold, size: 20, dest: d}
	move(hot, itemReserved)
	if f.active() != 0 || !closed(f.idleChan()) || f.find(hot.id) != hot || f.hot != (slots{1, 10}) {
		t.Fatalf("a reserved item: %d active, slots %+v", f.active(), f.hot)
	}
	move(hot, itemWaiting, itemReady, itemPublishing)
	move(cold, itemWaiting)
	idle := f.idleChan()
	if f.active() != 2 || d.items != 2 || f.cold != (slots{1, 20}) || f.count[itemPublishing] != 1 || closed(idle) ||
		f.idleChan() != idle {
		t.Fatalf("%d active, %d of the destination, slots %+v", f.active(), d.items, f.cold)
	}
	if got := f.sorted(); len(got) != 2 || got[0] != hot || got[1] != cold {
		t.Fatalf("sorted: %v", got)
	}

	// A row that is claimed again while its mark is being written is another item. The end of the
	// old item does not remove the new one.
	move(cold, itemReleasing)
	again := &item{id: cold.id, path: core.PathCold, size: 20, dest: d}
	move(again, itemWaiting)
	move(cold, itemGone)
	if f.find(again.id) != again || closed(idle) {
		t.Fatal("the item that was claimed again is not there")
	}
	// A stuck publish that succeeds late takes no slot of another item.
	late := &item{id: again.id, path: core.PathCold, dest: d}
	move(late, itemAcked, itemGone)
	if f.find(again.id) != again {
		t.Fatal("a late acknowledgement took the place of the item")
	}
	move(again, itemGone)
	move(hot, itemAcked, itemGone)
	if !closed(idle) || f.active() != 0 || len(f.items) != 0 || d.items != 0 || f.hot != (slots{}) ||
		f.cold != (slots{}) || f.count != [itemStates]int{} {
		t.Fatalf("not empty at the end: %+v", f)
	}
}

func TestInflightRefusesOtherMoves(t *testing.T) {
	for from := range itemStates {
		for to := range itemStates {
			var f inflight
			it := &item{state: from}
			if err := f.move(it, to); (err == nil) != itemMoves[from][to] {
				t.Errorf("%s to %s: %v", from, to, err)
			}
		}
	}
}

// A claim is worth it when half of it has room.
func TestInflightRoom(t *testing.T) {
	cfg := &Config{ColdEvents: 100, ColdBytes: 1000, ClaimBatch: 40}
	for _, c := range []struct {
		held slots
		room int
	}{
		{slots{}, 40},
		{slots{60, 0}, 40},
		{slots{80, 0}, 20},
		{slots{81, 0}, 0},
		{slots{120, 0}, 0},
		{slots{1, 999}, 40},
		{slots{1, 1000}, 0},
	} {
		f := inflight{cold: c.held, hot: slots{500, 5000}} // the fast path has room of its own
		if got := f.room(cfg); got != c.room {
			t.Errorf("%+v are held: room for %d, want %d", c.held, got, c.room)
		}
	}
	f := inflight{cold: slots{1, 0}}
	equal(t, f.room(&Config{ColdEvents: 1, ColdBytes: 1, ClaimBatch: 1}), 0, "room beside the only one")
}

// The table of the documentation has every state with the states that may follow it.
func TestItemTransitionsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-it-works.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "| state | meaning | next |\n|---|---|---|\n")
	if !ok {
		t.Fatal("docs/how-it-works.md has no table of states")
	}
	documented := map[string]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 {
			break
		}
		documented[strings.TrimSpace(cells[1])] = strings.TrimSpace(cells[3])
	}
	next := map[string][]string{itemGone.String(): nil}
	for _, tr := range itemTransitions {
		if tr.when == "" {
			t.Errorf("nobody says when %s becomes %s", tr.from, tr.to)
		}
		next[tr.from.String()] = append(next[tr.from.String()], tr.to.String())
	}
	for state, states := range next {
		equal(t, documented[state], strings.Join(states, ", "), "the page, after %s", state)
	}
	equal(t, len(documented), len(next), "states of the page")
}

// Every state can be reached and left. No state comes twice in a life.
func TestItemTransitionsEnd(t *testing.T) {
	reached := map[itemState]bool{itemNew: true}
	left := map[itemState]bool{itemGone: true}
	for _, tr := range itemTransitions {
		if tr.from >= tr.to {
			t.Errorf("%s to %s goes back", tr.from, tr.to)
		}
		if !reached[tr.from] {
			t.Errorf("%s is left and never reached", tr.from)
		}
		reached[tr.to], left[tr.from] = true, true
	}
	for s := range itemStates {
		if !reached[s] || !left[s] {
			t.Errorf("%s: reached %t, left %t", s, reached[s], left[s])
		}
		if s != itemNew && s != itemGone && !itemMoves[s][itemGone] {
			t.Errorf("an item that is %s cannot be given up", s)
		}
	}
}
