package relay

import (
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay/internal/guard"
)

// crew counts workers and the publishes that they have. Lost workers are replaced, but only as many
// as there are workers. So a publisher that never returns does not cost one more goroutine for
// every event. The zero value has no worker.
type crew struct {
	queue     workQueue // what they take
	handovers handovers // what they left with an AsyncPublisher

	size  int // Config.Workers
	alive int // workers that can take an event
	stuck int // workers that wait for an abandoned publish

	work *guard.Effects // wakes workers: there may be an event to publish
}

func newCrew(cfg *Config, p core.Publisher, work *guard.Effects) crew {
	return crew{handovers: newHandovers(cfg, p), size: cfg.Workers, alive: cfg.Workers, work: work}
}

// lose counts a stuck worker and reports whether another worker is to be started.
func (c *crew) lose() (replace bool) {
	c.alive--
	c.stuck++
	if c.stuck > c.size {
		return false
	}
	c.alive++
	return true
}

// back counts a worker whose stuck publish returned, and reports whether the worker is needed.
func (c *crew) back() (needed bool) {
	c.stuck--
	if c.alive >= c.size {
		return false
	}
	c.alive++
	return true
}

// stuckMost returns how many publishes of the item's destination may be stuck before the
// destination gets no more. A destination that never answers must not take the workers of the
// others, nor their places with an AsyncPublisher.
func (c *crew) stuckMost(it *item) int {
	if it.handover != nil {
		return max(1, c.handovers.most/4)
	}
	return max(1, c.size/4)
}

// noneLeft reports whether stuck publishes have taken every worker, or every place with an
// AsyncPublisher.
func (c *crew) noneLeft() bool { return c.alive == 0 || c.handovers.noneLeft() }

// abandoned returns how many publishes were abandoned and have not ended since.
func (c *crew) abandoned() int { return c.stuck + c.handovers.left }

// freePlace notes that the publish of an item has ended, or is abandoned.
func (c *crew) freePlace(it *item) {
	if it.handover == nil {
		return
	}
	h := &c.handovers
	h.events--
	h.bytes -= it.size
	if it.timing.stuck {
		h.left++
		h.leftBytes += it.size
	}
	if h.unblock() {
		c.work.WakeAll()
	}
	if it.dest.limit != nil || it.role.replay { // no worker ends with this publish and looks for the next one
		c.work.WakeOne()
	}
}

// answeredLate notes that an abandoned publish has ended after all.
func (c *crew) answeredLate(it *item) {
	h := &c.handovers
	h.left--
	h.leftBytes -= it.size
	if h.unblock() {
		c.work.WakeAll()
	}
}

// suspectDone lets the next suspect be published.
func (c *crew) suspectDone(it *item) {
	if c.queue.suspects.out == it {
		c.queue.suspects.out = nil
		c.work.WakeOne()
	}
}
