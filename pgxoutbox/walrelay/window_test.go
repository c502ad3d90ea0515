package walrelay

import (
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// These tests are of what TestSimulation leaves out.

// windowRow is an event of a topic; key 0: it has none.
func windowRow(id byte, topic string, key byte) core.Claimed {
	row := core.Claimed{ID: core.RowID{id}, KeyID: core.KeyID{key}}
	row.Event.Topic = topic
	return row
}

// claimOne claims the only event that there is to claim.
func claimOne(t *testing.T, w *window, no int64, ordered bool, now time.Time) core.ClaimRef {
	t.Helper()
	rows, _ := w.claim(core.ClaimRequest{ClaimNo: no, Limit: 10, Run: 10, MaxBytes: 1 << 20}, ordered, now)
	if len(rows) != 1 {
		t.Fatalf("claimed %d events, want 1", len(rows))
	}
	return core.ClaimRef{ID: rows[0].ID, ClaimNo: no}
}

// While a repair goes on, no key is claimed from the table. It goes on until its last event is
// answered, and not until that is read.
func TestWindowRepair(t *testing.T) {
	t.Parallel()
	w := newWindow(10, 1<<20, nil)
	w.start(100, 0)
	w.beginRepair()
	w.addRepaired(windowRow(1, "a", 1))
	w.addRepaired(windowRow(1, "a", 1)) // it was moved to another partition while it was read
	w.endRepair()
	w.idle(110)
	if end, _ := w.progress(); end != 100 || !w.isRepairing() || w.caughtUp() {
		t.Errorf("end %d, repairing %t, caught up %t, and an event is not answered", end, w.isRepairing(), w.caughtUp())
	}
	if w.accept(claimOne(t, w, 1, true, time.Now()).ID); w.isRepairing() || !w.caughtUp() {
		t.Errorf("repairing %t, caught up %t, and all events are answered", w.isRepairing(), w.caughtUp())
	}
	if end, answered := w.progress(); end != 110 || answered != 1 {
		t.Errorf("end %d and %d answered, want 110 and 1", end, answered)
	}
}

// An event of a topic that nobody here publishes goes to the table.
func TestWindowElsewhere(t *testing.T) {
	t.Parallel()
	w := newWindow(10, 1<<20, func(topic string) bool { return topic == "there" })
	for key := range byte(2) {
		w.add(windowRow(1+key, "there", key), 10, int(1+key))
	}
	w.commit(10, 18)
	req := core.ClaimRequest{ClaimNo: 1, Limit: 10, Run: 10, MaxBytes: 1 << 20}
	for _, ordered := range []bool{false, true} {
		if rows, _ := w.claim(req, ordered, time.Now()); rows != nil {
			t.Errorf("claimed %d events", len(rows))
		}
	}
	events := w.toAsk(10)
	if len(events) != 2 {
		t.Fatalf("%d events ask the table, want 2", len(events))
	}
	w.onVerdicts(events, []verdict{inTable, inTable})
	if end, answered := w.progress(); end != 18 || answered != 2 || w.isSpilled(core.KeyID{1}) {
		t.Errorf("end %d and %d answered; its key is spilled: %t", end, answered, w.isSpilled(core.KeyID{1}))
	}
}

// While a row of the key is open behind an event, later events ask the table.
func TestWindowInFront(t *testing.T) {
	t.Parallel()
	w := newWindow(10, 1<<20, nil)
	key := core.KeyID{1}
	w.spill([]core.KeyID{key})
	for n, v := range []verdict{inFront, fromLog} {
		w.add(windowRow(byte(1+n), "a", 1), 10, 1+n)
		events := w.toAsk(10)
		if len(events) != 1 {
			t.Fatalf("event %d: %d events ask the table, want 1", n, len(events))
		}
		w.onVerdicts(events, []verdict{v})
		if spilled := w.isSpilled(key); spilled != (v == inFront) {
			t.Errorf("event %d: the key may have open rows: %t", n, spilled)
		}
		w.accept(claimOne(t, w, int64(1+n), true, time.Now()).ID)
	}
	w.add(windowRow(3, "a", 1), 10, 3)
	if events := w.toAsk(10); events != nil {
		t.Errorf("%d events ask the table, and no row of the key is open", len(events))
	}
}

// An event that its destination did not take for now is claimed again when it is due.
func TestWindowNextDue(t *testing.T) {
	t.Parallel()
	for _, key := range []byte{0, 1} {
		now, req := time.Now(), core.ClaimRequest{ClaimNo: 2, Limit: 10, Run: 10, MaxBytes: 1 << 20}
		w := newWindow(10, 1<<20, nil)
		w.add(windowRow(1, "a", key), 10, 1)
		if !w.release(claimOne(t, w, 1, key > 0, now), now.Add(time.Minute)) {
			t.Fatal("the claim is over")
		}
		if rows, _ := w.claim(req, key > 0, now.Add(time.Minute-1)); rows != nil {
			t.Error("claimed before it is due")
		}
		if d, ok := w.nextDue(req, now.Add(time.Second)); !ok || d != 59*time.Second {
			t.Errorf("the next one is due in %s, %t, want 59s", d, ok)
		}
		if _, ok := w.nextDue(core.ClaimRequest{Except: []string{"a"}}, now); ok {
			t.Error("an event of a destination is due that is held back")
		}
		claimOne(t, w, 3, key > 0, now.Add(time.Minute))
		if _, ok := w.nextDue(req, now); ok {
			t.Error("an event that is claimed is due")
		}
	}
}

// A replay of an event that is still to be published would be the first copy of it, and before
// those of earlier events of its key. It is left out. Later ones are second copies, unless the
// table says that the event waits there.
func TestWindowReplay(t *testing.T) {
	t.Parallel()
	w := newWindow(10, 1<<20, nil)
	w.add(windowRow(1, "a", 1), 10, 1)
	w.commit(10, 18)
	again := windowRow(2, "a", 2)
	again.ReplayOf = core.RowID{1}
	w.add(again, 20, 1)
	w.commit(20, 28)
	if ref := claimOne(t, w, 1, true, time.Now()); ref.ID != (core.RowID{1}) {
		t.Fatal("the replay is claimed, and not the event")
	}
	if w.accept(core.RowID{1}); w.capacity.events != 0 {
		t.Errorf("%d events are left, want none", w.capacity.events)
	}
	if end, answered := w.progress(); end != 28 || answered != 1 {
		t.Errorf("end %d and %d answered, want 28 and 1", end, answered)
	}
	for n, v := range []verdict{ended, fromLog} {
		again.ID = core.RowID{byte(3 + n)}
		w.add(again, 30, 1+n)
		events := w.toAsk(10)
		if len(events) != 1 {
			t.Fatalf("%d replays ask the table, want 1", len(events))
		}
		w.onVerdicts(events, []verdict{v})
	}
	if ref := claimOne(t, w, 2, true, time.Now()); ref.ID != again.ID {
		t.Error("the replay of an event that is published is not claimed")
	}
}
