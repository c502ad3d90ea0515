package metrics

import "sync"

// other is the value of a label that has too many values.
const other = "_other"

// series has the metrics of each value of a label. So the path of an event looks up one value, and
// all of its series begin together, at zero.
type series[T any] struct {
	limit int
	make  func(value string) T

	mu    sync.RWMutex
	of    map[string]T
	extra int // values in addition to the initial ones
}

func newSeries[T any](limit int, mk func(value string) T, known ...string) *series[T] {
	s := &series[T]{limit: limit, make: mk, of: make(map[string]T)}
	for _, value := range known {
		s.of[value] = mk(value)
	}
	return s
}

// get returns the metrics of a value, or of "_other".
func (s *series[T]) get(value string) T {
	s.mu.RLock()
	t, ok := s.of[value]
	s.mu.RUnlock()
	if ok {
		return t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.of[value]; ok {
		return t
	}
	if value != other && s.extra >= s.limit {
		if t, ok := s.of[other]; ok {
			return t
		}
		value = other
	}
	t = s.make(value)
	s.of[value] = t
	if value != other {
		s.extra++
	}
	return t
}
