package relay

import (
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/pace"
)

// Pauses between the tries of a mark that was postponed.
const (
	postponeFirst = 20 * time.Millisecond
	postponeMost  = time.Second
)

// postponeWarn: a mark that cannot be written is logged at the try of that number, and at each
// power of it.
const postponeWarn = 8

// postponed are the marks that could not be written while other marks could. Their rows are
// locked by another transaction, or the database refuses to change them. No other item waits for
// them. An acknowledgement is tried again without limit, because a lost acknowledgement is a second
// copy.
type postponed struct {
	entries []postponedEntry
}

type postponedEntry struct {
	mark mark
	at   time.Time // of the next try
}

// add postpones the mark of an item for the first time or after a further failure. It reports
// whether to log a warning.
func (p *postponed) add(m mark, now time.Time, random float64) (tell bool) {
	it := m.it
	wait := min(postponeFirst<<min(it.mark.tries, 10), postponeMost)
	it.mark.tries++
	p.entries = append(p.entries, postponedEntry{mark: m, at: now.Add(pace.Spread(wait, random))})
	for n := postponeWarn; n <= it.mark.tries; n *= postponeWarn {
		tell = tell || n == it.mark.tries
	}
	return tell
}

// next returns when the next try is due.
func (p *postponed) next() (at time.Time, ok bool) {
	for _, e := range p.entries {
		if !ok || e.at.Before(at) {
			at, ok = e.at, true
		}
	}
	return at, ok
}

// take removes and returns the items that are due, or all items.
func (p *postponed) take(now time.Time, all bool) (due []mark) {
	p.entries = slices.DeleteFunc(p.entries, func(e postponedEntry) bool {
		if !all && e.at.After(now) {
			return false
		}
		due = append(due, e.mark)
		return true
	})
	return due
}
