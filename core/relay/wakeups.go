package relay

import (
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

const (
	maxLaneWakes = 1024 // lanes that wait for a look; above that the ordinary poll finds them
	// Looks at one lane while another process holds its head, after 2, 4, 8 ... ms.
	laneTries = 8
)

// wakeups are the reasons that end the sleep of the poller early. The zero value has none and wakes
// no poller.
type wakeups struct {
	at       time.Time // when a poll is wanted; zero: none is asked for
	lanes    []laneWake
	wantRoom bool  // the poller waits for room
	heard    heard // wake-ups from other processes
	signals  signals
}

// laneWake asks for a look at one lane: one of its committed events could not go hot, or one of its
// runs may have more rows.
type laneWake struct {
	lane  core.KeyID
	at    time.Time
	tries int
}

func newWakeups(signals signals) wakeups { return wakeups{signals: signals} }

// poll asks for a poll no later than at. The next round answers it, whatever the round was started
// for.
func (w *wakeups) poll(at time.Time) {
	if w.at.IsZero() || at.Before(w.at) {
		w.at = at
		w.look()
	}
}

// look makes the poller compute again how long it may sleep.
func (w *wakeups) look() { w.signals.poll.give() }

// lane asks for a look at a lane no later than at.
func (w *wakeups) lane(lane core.KeyID, at time.Time) {
	for i := range w.lanes {
		if l := &w.lanes[i]; l.lane == lane {
			l.tries = 0
			if at.Before(l.at) {
				l.at = at
				w.look()
			}
			return
		}
	}
	if len(w.lanes) >= maxLaneWakes {
		w.poll(at)
		return
	}
	w.lanes = append(w.lanes, laneWake{lane: lane, at: at})
	w.look()
}

// takeLanes removes and returns at most most lanes that are due.
func (w *wakeups) takeLanes(now time.Time, most int) (due []laneWake) {
	var later []laneWake
	for _, l := range w.lanes {
		if l.at.After(now) || len(due) >= most {
			later = append(later, l)
		} else {
			due = append(due, l)
		}
	}
	w.lanes = later
	return due
}

// putBack asks again for lanes that were taken, unless they have asked meanwhile.
func (w *wakeups) putBack(lanes ...laneWake) {
	for _, l := range lanes {
		if len(w.lanes) < maxLaneWakes && !slices.ContainsFunc(w.lanes,
			func(o laneWake) bool { return o.lane == l.lane }) {
			w.lanes = append(w.lanes, l)
		}
	}
}

// tryAgain asks again, a little later, for a lane that had nothing to claim, unless it was tried
// often enough.
func (w *wakeups) tryAgain(l laneWake, now time.Time) {
	if l.tries++; l.tries < laneTries {
		l.at = now.Add(time.Millisecond << l.tries)
		w.putBack(l)
	}
}

// nextLane returns when the next lane wants a look. ok is false if none does.
func (w *wakeups) nextLane() (at time.Time, ok bool) {
	for _, l := range w.lanes {
		if !ok || l.at.Before(at) {
			at, ok = l.at, true
		}
	}
	return at, ok
}

// nextFirstLook returns when the next lane wants its first look. ok is false if none does.
func (w *wakeups) nextFirstLook() (at time.Time, ok bool) {
	for _, l := range w.lanes {
		if l.tries == 0 && (!ok || l.at.Before(at)) {
			at, ok = l.at, true
		}
	}
	return at, ok
}

// next returns when the next poll or look is wanted. Zero: none is wanted.
func (w *wakeups) next() time.Time {
	at, ok := w.nextLane()
	if !ok || !w.at.IsZero() && w.at.Before(at) {
		return w.at
	}
	return at
}

// answered removes the request for a poll, because a round begins. It reports whether another
// process asked for it.
func (w *wakeups) answered() (heard bool) {
	heard, w.heard.since = w.heard.since, false
	w.at = time.Time{}
	return heard
}

// room wakes the poller if it waits for room.
func (w *wakeups) room() {
	if !w.wantRoom {
		return
	}
	w.wantRoom = false
	w.signals.room.give()
}
