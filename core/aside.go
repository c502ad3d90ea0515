package core

import (
	"slices"
	"time"
)

// Pauses between the tries of an outcome that was set aside.
const (
	asideFirst = 20 * time.Millisecond
	asideMost  = time.Second
)

// asideTold: an outcome that cannot be written is told to the operator at the try of that number and of each power of it.
const asideTold = 8

// aside holds outcomes that could not be written while others could: their rows are locked by another transaction, or the
// database refuses to change them. Nobody waits for them. A fact is tried for as long as it takes: a skipped mark is a second
// copy. Guarded by relay.mu.
type aside struct {
	entries []asideEntry
}

type asideEntry struct {
	it *item
	at time.Time // of the next try
}

// add sets an item aside, or once more after a try that failed. It reports whether the operator is to hear of it.
func (a *aside) add(it *item, now time.Time, random float64) (tell bool) {
	wait := min(asideFirst<<min(it.tries, 10), asideMost)
	it.tries++
	a.entries = append(a.entries, asideEntry{it: it, at: now.Add(spread(wait, random))})
	for n := asideTold; n <= it.tries; n *= asideTold {
		tell = tell || n == it.tries
	}
	return tell
}

// next returns when something is to be tried.
func (a *aside) next() (at time.Time, ok bool) {
	for _, e := range a.entries {
		if !ok || e.at.Before(at) {
			at, ok = e.at, true
		}
	}
	return at, ok
}

// take removes and returns what is due, or all of it.
func (a *aside) take(now time.Time, all bool) (due []*item) {
	a.entries = slices.DeleteFunc(a.entries, func(e asideEntry) bool {
		if !all && e.at.After(now) {
			return false
		}
		due = append(due, e.it)
		return true
	})
	return due
}
