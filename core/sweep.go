package core

import "time"

const (
	// sweepWorth is how many rows a page of a sweep has to bring on average: else the keys rest for
	// sweepRest for each page.
	sweepWorth = 10
	sweepRest  = 100 * time.Millisecond
)

// sweep is the walk of the poller over the heads of all keys, page by page. One that found little
// in many keys is followed by a rest in proportion to its length, so that keys that are blocked do
// not cost more the more of them there are. Keys that are woken one by one do not wait for it.
// Guarded by relay.mu.
type sweep struct {
	pages, rows int
	restUntil   time.Time
}

func (s *sweep) resting(now time.Time) bool { return now.Before(s.restUntil) }

// page notes a page that began after a lane and ended before the next one, and reports whether
// another page or another sweep should follow at once. A rest is no longer than most.
func (s *sweep) page(after, next KeyID, rows int, now time.Time, most time.Duration) (more bool) {
	if after.IsZero() {
		s.pages, s.rows = 0, 0
	}
	s.pages++
	s.rows += rows
	if !next.IsZero() {
		return true
	}
	if s.pages == 1 {
		return false
	}
	if s.rows < s.pages*sweepWorth {
		s.restUntil = now.Add(min(time.Duration(s.pages)*sweepRest, most))
	}
	return s.rows > 0 // what it found may have been the first of more
}
