package relay

import (
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay/internal/guard"
)

// state is what the goroutines of a relay share. Its guard is the only way to it, see engine.do.
// Its methods change it and note effects to run outside: they take no lock, do no I/O, use no
// context and start no goroutine but a worker.
type state struct {
	*outbox
	effects *guard.Effects
	signals signals

	phase     phase
	inflight  inflight
	lanes     lanes
	dests     destinations
	crew      crew
	marks     marks
	wakes     wakeups
	poller    poller
	operators operators
	tally     tally
}

// phase is the phase of the shutdown of a relay.
type phase uint8

const (
	phaseRunning  phase = iota
	phaseClosing        // no new slots, no claims
	phaseStopping       // no new publishes
	phaseClosed         // the relay has ended
)

// newState returns the state of a relay. startWorker starts a goroutine that publishes.
func newState(of *outbox, effects *guard.Effects, signals signals, startWorker func()) *state {
	s := &state{
		outbox: of, effects: effects, signals: signals, marks: newMarks(of.cfg), wakes: newWakeups(signals),
		operators: newOperators(signals.settings),
	}
	s.crew = newCrew(of.cfg, of.ob.Publisher, startWorker)
	return s
}

// standsStill reports whether no worker is left to publish, and no mark waits to be written.
func (s *state) standsStill() bool { return s.crew.noneLeft() && s.inflight.active() == 0 }

// isIdle reports whether no item is held and no lane waits for its first look. A lane that was
// looked at in vain has nothing, or another process holds its head and publishes it.
func (s *state) isIdle() bool {
	_, waits := s.wakes.nextFirstLook()
	return s.inflight.active() == 0 && !waits
}

// close begins the shutdown. An item that waits for another event of its key may wait for long, and
// another process can have it.
func (s *state) close() {
	s.phase = phaseClosing
	for _, it := range s.inflight.sorted() {
		if it.state == itemWaiting {
			s.release(it, core.FallbackShutdown, false)
		}
	}
}

// stop lets no more publish begin, and gives back items that have not begun.
func (s *state) stop() {
	s.phase = phaseStopping
	for _, it := range s.inflight.sorted() {
		switch it.state {
		case itemWaiting, itemReady:
			s.release(it, core.FallbackShutdown, false)
		// its transaction is still open: the row cannot be given back, and its lease will end
		case itemReserved:
			s.forget(it)
		case itemNew, itemPublishing, itemAcked, itemFailed, itemReleasing, itemGone, itemStates:
		}
	}
	s.crew.close()
}

// end ends the relay, and returns how many publishes have not returned.
func (s *state) end() (stuck int) {
	s.phase = phaseClosed
	return s.inflight.count[itemPublishing] + s.crew.abandoned()
}

// logDefect reports a change of state that is not allowed.
func (s *state) logDefect(it *item, err error) {
	id := it.id.String()
	s.effects.Call(func() {
		s.ob.Logger.Error("outbox: a defect of the relay: please report it", "row_id", id, "error", err)
	})
}

// move changes the state of an item.
func (s *state) move(it *item, to itemState) {
	if err := s.inflight.move(it, to); err != nil {
		if s.defect != nil {
			s.defect(it, err)
			return
		}
		s.logDefect(it, err)
	}
}

// forget ends an item: its slot is free, and no other item waits for it.
func (s *state) forget(it *item) {
	if it.state == itemGone {
		return
	}
	was := it.state
	s.move(it, itemGone)
	if it.path == core.PathCold && s.inflight.room(s.cfg) > 0 {
		s.wakeForRoom()
	}
	if l := it.dest.limit; l != nil && l.worthLook(time.Now(), it.dest.items) {
		s.wakes.look()
	}
	if it.role.suspect {
		s.crew.queue.suspects.held--
		s.crew.suspectDone(it)
	}
	if it.role.probe {
		it.dest.probing = false
	}
	if was == itemReserved && !it.lane.IsZero() {
		s.advance(it.lane) // another item may have waited for it
	}
}

// wakeForRoom wakes the poller if it waits for room or for a worker.
func (s *state) wakeForRoom() {
	if !s.crew.noneLeft() {
		s.wakes.room()
	}
}
