package walrelay

// topic has the waiting events of a destination.
type topic struct {
	name      string
	elsewhere bool    // nobody here publishes its events
	waiting   waiting // to be claimed
	later     later
}

// topics are the destinations. The zero value has none, and all are published here; under the mutex
// of window.
type topics struct {
	elsewhere func(topic string) bool // nobody here publishes events of the topic; nil: all are published here
	byName    map[string]*topic
	all       []*topic // in the order in which they came
	turn      int      // the topic that the last claim began with
}

// get returns the topic of a name.
func (s *topics) get(name string) *topic {
	t := s.byName[name]
	if t == nil {
		if s.byName == nil {
			s.byName = map[string]*topic{}
		}
		t = &topic{name: name, elsewhere: s.elsewhere != nil && s.elsewhere(name)}
		s.byName[name] = t
		s.all = append(s.all, t)
	}
	return t
}

// inTurn visits all topics. Each call begins with the next one, so that none comes last always.
func (s *topics) inTurn(visit func(*topic) bool) {
	s.turn++
	for i := range s.all {
		if !visit(s.all[(s.turn+i)%len(s.all)]) {
			return
		}
	}
}
