package relay

import (
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

const (
	// sweepWorth is how many rows a page of a sweep must bring on average. Otherwise the keys rest
	// for sweepRest for each page.
	sweepWorth = 10
	sweepRest  = 100 * time.Millisecond
)

// sweep is the walk of the poller over the heads of all keys, page by page. After a sweep that
// found little in many keys, the keys rest for a time in proportion to its length. So many blocked
// keys do not cost more than a few. Keys that are woken one by one do not wait for the rest.
type sweep struct {
	pages, rows int
	restUntil   time.Time
}

func (s *sweep) resting(now time.Time) bool { return now.Before(s.restUntil) }

// page notes a page that began after a lane and ended before the next one. It reports whether
// another page or another sweep should follow at once. A rest is never longer than most.
func (s *sweep) page(after, next core.KeyID, rows int, now time.Time, most time.Duration) (more bool) {
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
	return s.rows > 0 // the rows it found may have been the first of more
}
