package core

import (
	"slices"
	"time"
)

// refusals is what this process knows of the events that one destination refused, and so of whose
// fault that is: an event is known to be at fault only when its destination acknowledged something
// after it had refused the event for the first time. A process that has just started knows of no
// acknowledgement and spares the event. The zero value is ready; guarded by relay.mu.
type refusals struct {
	acks       uint64 // acknowledgements so far
	young, old map[RowID]refusal
	limit      int // of each of the two generations; 0: 8192

	// Since the last acknowledgement:
	streak []RowID   // different events that were refused, no more than it takes to call it an outage
	fresh  int       // how many of the refused were so for the first time
	since  time.Time // of the first refusal
}

// refusal is what is known of one refused event.
type refusal struct {
	acks  uint64    // acknowledgements by the destination when it was refused first
	first time.Time // when it was refused first; zero: before its claim
	count int       // refusals seen by this process while the destination was not stopped
}

// refusalLimits are the settings that a verdict depends on.
type refusalLimits struct {
	failures int           // Breaker.Failures
	attempts int           // Retry.MaxAttempts
	quiet    time.Duration // the while
}

// refusalVerdict says what a refusal means.
type refusalVerdict uint8

const (
	refusalCounts refusalVerdict = iota // the event spends an attempt
	refusalSpares                       // it does not: it may be the destination
	refusalOutage                       // it does not: it is the destination, which is stopped
)

// acked notes that the destination accepted an event.
func (s *refusals) acked(id RowID) {
	s.acks++
	s.streak, s.fresh = s.streak[:0], 0
	delete(s.young, id)
	delete(s.old, id)
}

// claimed notes an event that came from the table. If it was refused before, whoever told the
// table, that was before now.
func (s *refusals) claimed(id RowID, attempts int) {
	if attempts > 0 {
		s.meet(id)
	}
}

// knows reports whether the event was refused by this destination before, as far as this process
// remembers.
func (s *refusals) knows(id RowID) bool {
	if _, ok := s.young[id]; ok {
		return true
	}
	_, ok := s.old[id]
	return ok
}

// meet returns what is known of the event, and remembers it from now on.
func (s *refusals) meet(id RowID) (f refusal, known bool) {
	if f, known = s.young[id]; known {
		return f, true
	}
	if f, known = s.old[id]; !known {
		f = refusal{acks: s.acks}
	}
	s.keep(id, f)
	return f, known
}

func (s *refusals) keep(id RowID, f refusal) {
	limit := s.limit
	if limit == 0 {
		limit = 8192
	}
	if _, ok := s.young[id]; !ok && len(s.young) >= limit {
		s.old, s.young = s.young, nil
	}
	if s.young == nil {
		s.young = map[RowID]refusal{}
	}
	s.young[id] = f
}

// refused notes that the destination, which is not stopped, refused an event that the table says
// was refused attempts times before.
//
// It is an outage when so many different events in a row were refused for the first time; or when
// so many different ones were, and nothing was acknowledged for a while (those refused before do
// not stop a destination that works for others); or when one event was refused so often, and
// nothing was acknowledged since its first refusal, which is a while ago, unless the publisher says
// that it is the event.
func (s *refusals) refused(id RowID, attempts int, itsFault bool, now time.Time, limits refusalLimits) refusalVerdict {
	f, known := s.meet(id)
	if f.first.IsZero() {
		f.first = now
	}
	f.count++
	s.keep(id, f)
	if len(s.streak) == 0 {
		s.since = now
	}
	if !slices.Contains(s.streak, id) {
		if len(s.streak) < limits.failures {
			s.streak = append(s.streak, id)
		}
		if !known && attempts == 0 {
			s.fresh++
		}
	}
	silent := f.acks == s.acks && !itsFault
	often := silent && f.count >= min(limits.failures, limits.attempts)
	many := len(s.streak) >= limits.failures
	switch {
	case s.fresh >= limits.failures, many && now.Sub(s.since) >= limits.quiet, often &&
		now.Sub(f.first) >= limits.quiet:
		s.streak, s.fresh = s.streak[:0], 0
		return refusalOutage
	case many, often, silent && attempts+1 >= limits.attempts:
		return refusalSpares
	}
	return refusalCounts
}
