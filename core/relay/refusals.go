package relay

import (
	"cmp"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// refusals has the events that one destination refused, as far as this process has seen. It decides
// whether the event or the destination is at fault: an event is at fault only if its destination
// acknowledged another one after it had first refused the event. A process that has just started
// has seen no acknowledgement and spares the event. The zero value is ready.
type refusals struct {
	acks       uint64 // acknowledgements so far
	young, old map[core.RowID]refusal
	limit      int // size of each of the two generations; 0: 8192

	// The next three count since the last acknowledgement.
	streak []core.RowID // different events that were refused, up to the number that makes an outage
	fresh  int          // how many of them were refused for the first time
	since  time.Time    // when the first of them was refused
}

// refusal is the history of one refused event.
type refusal struct {
	acks  uint64    // acknowledgements by the destination when it first refused the event
	first time.Time // when it was first refused; zero: before this process claimed it
	count int       // refusals that this process saw while the destination was not stopped
}

// refusalLimits are the settings that a verdict depends on.
type refusalLimits struct {
	failures int           // Breaker.Failures
	attempts int           // Retry.MaxAttempts
	quiet    time.Duration // how long a destination must be silent
}

// refusalVerdict is the meaning of a refusal.
type refusalVerdict uint8

const (
	refusalCounts refusalVerdict = iota // the event spends an attempt
	refusalSpares                       // the event spends none: the destination may be at fault
	// The event spends none: the destination is at fault, and is stopped.
	refusalOutage
)

// onAck records that the destination accepted an event.
func (s *refusals) onAck(id core.RowID) {
	s.acks++
	s.streak, s.fresh = s.streak[:0], 0
	delete(s.young, id)
	delete(s.old, id)
}

// claimed notes an event that came from the table. attempts is above 0 if any process saw it
// refused before.
func (s *refusals) claimed(id core.RowID, attempts int) {
	if attempts > 0 {
		s.meet(id)
	}
}

// knows reports whether this process has recorded a refusal of the event.
func (s *refusals) knows(id core.RowID) bool {
	if _, ok := s.young[id]; ok {
		return true
	}
	_, ok := s.old[id]
	return ok
}

// meet returns the refusal of the event. It creates one for a new event.
func (s *refusals) meet(id core.RowID) (f refusal, known bool) {
	if f, known = s.young[id]; known {
		return f, true
	}
	if f, known = s.old[id]; !known {
		f = refusal{acks: s.acks}
	}
	s.keep(id, f)
	return f, known
}

func (s *refusals) keep(id core.RowID, f refusal) {
	limit := s.limit
	limit = cmp.Or(limit, 8192)
	if _, ok := s.young[id]; !ok && len(s.young) >= limit {
		s.old, s.young = s.young, nil
	}
	if s.young == nil {
		s.young = map[core.RowID]refusal{}
	}
	s.young[id] = f
}

// refused notes that the destination, which is not stopped, refused an event. attempts is how often
// the event was refused before, by the table.
//
// The refusal is an outage in three cases. First, limits.failures different events in a row were
// refused for the first time. Second, that many different events in a row were refused and nothing
// was acknowledged for limits.quiet; events that were refused before do not stop a destination that
// works for others. Third, one event was refused that often, nothing was acknowledged since its
// first refusal, and that was at least limits.quiet ago. The third case does not apply if itsFault:
// the publisher has blamed the event.
func (s *refusals) refused(
	id core.RowID,
	attempts int,
	itsFault bool,
	now time.Time,
	limits refusalLimits,
) refusalVerdict {
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
