package walrelay

import "time"

// capacity is how much the window has, and how much it may have. It is full when one of the two
// limits is reached, and may be over maxBytes by one event. The zero value is full; under the mutex
// of window.
type capacity struct {
	maxEvents int
	maxBytes  int64
	events    int // that are not confirmed
	bytes     int64
	fullSince time.Time // zero: the reader has found room
}

func (c *capacity) full() bool { return c.events >= c.maxEvents || c.bytes >= c.maxBytes }

// look reports whether there is room at now. It notes since when there is none.
func (c *capacity) look(now time.Time) bool {
	if !c.full() {
		c.fullSince = time.Time{}
		return true
	}
	if c.fullSince.IsZero() {
		c.fullSince = now
	}
	return false
}

// stalled reports whether there has been no room for limit. It does so once in that time.
func (c *capacity) stalled(now time.Time, limit time.Duration) bool {
	if !c.full() || c.fullSince.IsZero() || now.Sub(c.fullSince) < limit {
		return false
	}
	c.fullSince = now
	return true
}

// enter counts an event of size bytes.
func (c *capacity) enter(size int64) {
	c.events++
	c.bytes += size
}

// free takes back the bytes of an event that is answered. The event counts until it leaves.
func (c *capacity) free(size int64) { c.bytes -= size }

// leave takes back events that no longer hold a position back.
func (c *capacity) leave(events int) { c.events -= events }
