package relay

import (
	"github.com/ormoutbox/ormoutbox/core"
)

// crew starts workers when there are events to publish, and counts them. A worker that finds nothing
// to publish waits, and ends if it is not needed for a while. Lost workers are replaced, but only as
// many as there are places. So a publisher that never returns does not cost one more goroutine for
// every event. The zero value has no place.
type crew struct {
	queue     workQueue // what they take
	handovers handovers // what they left with an AsyncPublisher

	size    int       // Config.Workers
	running int       // workers that are not stuck
	idle    int       // of these, workers that wait for more
	spare   int       // the fewest that were idle since the last thin
	more    chan bool // to idle workers: look again; false: end
	stuck   int       // workers that wait for an abandoned publish
	closed  bool      // no worker starts any more
	start   func()    // starts a worker
}

func newCrew(cfg *Config, p core.Publisher, start func()) crew {
	return crew{
		handovers: newHandovers(cfg, p), size: cfg.Workers, start: start, more: make(chan bool, max(cfg.Workers, 0)),
	}
}

// places is how many workers may run.
func (c *crew) places() int { return min(c.size, 2*c.size-c.stuck) }

// wake lets an idle worker look for an event to publish, or starts one if there is a place.
func (c *crew) wake() {
	switch {
	case c.idle > 0:
		c.idle--
		c.spare = min(c.spare, c.idle)
		c.more <- true // it has room for all workers
	case c.running < c.places() && !c.closed:
		c.running++
		c.start()
	}
}

// wakeAll is wake for many events.
func (c *crew) wakeAll() {
	for c.idle > 0 || c.running < c.places() && !c.closed {
		c.wake()
	}
}

// rest is called when a worker has found nothing. It reports whether the worker waits for more.
func (c *crew) rest() bool {
	if c.closed {
		c.running--
		return false
	}
	c.idle++
	return true
}

// thin ends the workers that were idle since the last call.
func (c *crew) thin() {
	for range c.spare {
		c.idle--
		c.running--
		c.more <- false
	}
	c.spare = c.idle
}

// close lets all idle workers end, and no worker start.
func (c *crew) close() {
	c.closed = true
	c.spare = c.idle
	c.thin()
}

// lose counts a worker that is stuck. Another one may take its place.
func (c *crew) lose() {
	c.running--
	c.stuck++
	c.wake()
}

// back counts a worker that was stuck and ends now.
func (c *crew) back() {
	c.stuck--
	c.wake()
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
func (c *crew) noneLeft() bool { return c.places() <= 0 || c.handovers.noneLeft() }

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
		c.wakeAll()
	}
	if it.dest.limit != nil || it.role.replay { // no worker ends with this publish and looks for the next one
		c.wake()
	}
}

// answeredLate notes that an abandoned publish has ended after all.
func (c *crew) answeredLate(it *item) {
	h := &c.handovers
	h.left--
	h.leftBytes -= it.size
	if h.unblock() {
		c.wakeAll()
	}
}

// suspectDone lets the next suspect be published.
func (c *crew) suspectDone(it *item) {
	if c.queue.suspects.out == it {
		c.queue.suspects.out = nil
		c.wake()
	}
}
