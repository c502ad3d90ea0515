package walrelay

import "slices"

// topic has what can be claimed of a destination.
type topic struct {
	name      string
	elsewhere bool
	lanes     fifo[*lane]
	free      fifo[*event] // events without a key
	later     []*event     // events without a key, and first events of keys, that are due later
}

func (w *window) topicOf(name string) *topic {
	t := w.topics[name]
	if t == nil {
		t = &topic{name: name, elsewhere: w.elsewhere(name)}
		w.topics[name] = t
		w.order = append(w.order, t)
	}
	return t
}

// takeLater takes events out of those that are due later, changes them, and puts them where they
// belong.
func (t *topic) takeLater(w *window, which func(*event) bool, change func(*event)) {
	if len(t.later) == 0 {
		return
	}
	var taken []*event
	t.later = slices.DeleteFunc(t.later, func(e *event) bool {
		take := e.state != eventWaiting || which(e)
		if take {
			taken = append(taken, e)
		}
		return take
	})
	for _, e := range taken {
		change(e)
		w.reroute(e)
	}
}

func (t *topic) waiting(ordered bool) int {
	if ordered {
		return t.lanes.len()
	}
	return t.free.len()
}
