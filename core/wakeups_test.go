package core

import (
	"testing"
	"time"
)

func TestWakeups(t *testing.T) {
	var zero wakeups
	if !zero.next().IsZero() {
		t.Fatal("a new wakeups wants a poll or a look")
	}
	w := newWakeups()
	now := time.Now()
	kicked := func() bool {
		select {
		case <-w.kick:
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
	w.lane(KeyID{1}, now)
	w.lane(KeyID{2}, now.Add(time.Second))
	w.lane(KeyID{2}, now.Add(time.Minute))
	if at, ok := w.nextLane(); !ok || !at.Equal(now) || !kicked() {
		t.Error("a lane is not wanted")
	}
	due := w.takeLanes(now, 10)
	if len(due) != 1 || due[0].lane != (KeyID{1}) || len(w.lanes) != 1 {
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
	w.lane(KeyID{2}, now)
	w.putBack(laneWake{lane: KeyID{2}, at: now.Add(-time.Hour), tries: 5}, laneWake{lane: KeyID{3}, at: now})
	if len(w.lanes) != 2 || w.lanes[0].tries != 0 {
		t.Errorf("lanes %v", w.lanes)
	}

	// If too many keys need a look, an ordinary poll finds them.
	w = newWakeups()
	for i := range maxLaneWakes + 1 {
		w.lane(KeyID{byte(i), byte(i >> 8)}, now)
	}
	if len(w.lanes) != maxLaneWakes || !w.at.Equal(now) {
		t.Errorf("%d lanes, poll at %s", len(w.lanes), w.at)
	}
}

func TestWakeupsForRoom(t *testing.T) {
	w := newWakeups()
	w.room()
	equal(t, len(w.roomKick), 0, "woken without waiting for room")
	w.wantRoom = true
	w.room()
	w.room()
	if len(w.roomKick) != 1 || w.wantRoom {
		t.Error("not woken once")
	}
}
