package relay

import (
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/pace"
)

const (
	// A replayed event that finds no place comes back after replayTurn times the number of rows
	// sent back since a replayed event was last let in.
	replayTurn    = 10 * time.Millisecond
	maxReplayWait = 5 * time.Second
)

// replays counts the held rows that publish done events again. They have low priority: a worker
// takes one when nothing else waits, and otherwise in one of replayShare picks. They get at most
// half of the room and half of the workers, so that events which come later find both. The rest
// goes back to the table for a while.
type replays struct {
	slots
	underWay int // how many of them are being published
	sentBack int // rows that were sent back since the last one was let in
}

// hold counts a row that was claimed.
func (p *replays) hold(it *item) {
	it.role.replay = true
	p.events++
	p.bytes += it.size
	it.dest.replays++
	p.sentBack = 0
}

// move follows the state of an item that is held.
func (p *replays) move(it *item, from, to itemState) {
	if from == itemPublishing {
		p.underWay--
	}
	if to == itemPublishing {
		p.underWay++
	}
	if to == itemGone {
		p.events--
		p.bytes -= it.size
		it.dest.replays--
	}
}

// fits reports whether a row of the destination has room. A destination with a rate has room of its
// own.
func (p *replays) fits(d *destination, cfg *Config) bool {
	return p.events < (cfg.ColdEvents+1)/2 && p.bytes <= cfg.ColdBytes/2 &&
		(d.limit == nil || d.replays < max(1, d.limit.most()/2))
}

// mayReplay reports whether a worker may take a replayed event.
func (s *state) mayReplay() bool {
	places := s.crew.places()
	if h := &s.crew.handovers; h.all {
		places = h.places()
	}
	return s.inflight.replays.underWay < (places+1)/2
}

// letIn reports whether a claimed row is to be published. A replayed event that finds no room is
// not. One that probes a stopped destination counts as live, because live events wait for the
// probe, and Drain wants everything.
func (s *state) letIn(it *item) bool {
	if it.delivery.ReplayOf.IsZero() || it.role.probe {
		return true
	}
	p := &s.inflight.replays
	if s.poller.draining() || p.fits(it.dest, s.cfg) {
		p.hold(it)
		return true
	}
	p.sentBack++
	wait := min(time.Duration(p.sentBack)*replayTurn, maxReplayWait)
	s.fail(it, core.Failure{
		Kind: core.FailUnavailable, Delay: pace.Jittered(wait, 0.5+s.random()/2),
		Code: codeReplay, Message: "waits until other replayed events are done",
	})
	return false
}

// codeReplay is the error code of a replayed event that found no room.
const codeReplay = "replay"
