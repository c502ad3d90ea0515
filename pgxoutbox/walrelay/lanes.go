package walrelay

import (
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
)

// lane has the events of one key.
type lane struct {
	id      core.KeyID
	topic   *topic
	events  []*event // in the order of the log
	busy    int      // events that are claimed or moving
	queued  bool     // in topic.waiting, in topic.later or in window.asks
	spilled bool     // a row of the key may be open in the table
	idle    bool     // no event of the key was entered since lanes.spilled has returned it
}

// leave takes an event out.
func (l *lane) leave(e *event) {
	if i := slices.Index(l.events, e); i >= 0 {
		l.events = slices.Delete(l.events, i, i+1)
	}
}

// lanes are the keys that have an event in the window, or may have an open row in the table. Other
// keys are forgotten. The zero value has none; under the mutex of window.
type lanes struct {
	byKey map[core.KeyID]*lane
}

// find returns the lane of a key, or nil.
func (s *lanes) find(id core.KeyID) *lane { return s.byKey[id] }

// get returns the lane of a key. The topic may be nil if it is not known yet.
func (s *lanes) get(id core.KeyID, t *topic) *lane {
	l := s.byKey[id]
	if l == nil {
		if s.byKey == nil {
			s.byKey = map[core.KeyID]*lane{}
		}
		l = &lane{id: id}
		s.byKey[id] = l
	}
	if l.topic == nil {
		l.topic = t
	}
	return l
}

// tidy forgets a lane of which nothing needs to be known any more.
func (s *lanes) tidy(l *lane) {
	if len(l.events) == 0 && !l.spilled && !l.queued && l.busy == 0 {
		delete(s.byKey, l.id)
	}
}

// spill says that these keys have open rows.
func (s *lanes) spill(keys []core.KeyID) {
	for _, id := range keys {
		s.get(id, nil).spilled = true
	}
}

// enter adds an event to its lane.
func (s *lanes) enter(l *lane, e *event) {
	l.events = append(l.events, e)
	l.idle = false
}

// spilled counts the keys that may have open rows. It returns some of those that have no event in
// the window.
func (s *lanes) spilled(most int) (keys []core.KeyID, all int) {
	for id, l := range s.byKey {
		if !l.spilled {
			continue
		}
		if all++; len(l.events) == 0 && len(keys) < most {
			l.idle = true
			keys = append(keys, id)
		}
	}
	return keys, all
}

// unspill says that these keys, which spilled has returned, had no open rows when the table was
// asked. It does nothing about a key of which an event was entered since: that event may have got
// an open row after the answer.
func (s *lanes) unspill(keys []core.KeyID) {
	for _, id := range keys {
		if l := s.byKey[id]; l != nil && l.idle {
			l.spilled = false
			s.tidy(l)
		}
	}
}
