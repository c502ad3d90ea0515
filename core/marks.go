package core

import "slices"

// markKind is a kind of marks. Each kind is written by a statement of its own.
type markKind string

const (
	markDone     markKind = "mark done"
	markFailed   markKind = "mark failed"
	markReleased markKind = "release"
)

// markKinds are in the order in which they are written: acknowledgements first.
var markKinds = [...]markKind{markDone, markFailed, markReleased}

func (it *item) markKind() markKind {
	switch it.state {
	case itemAcked:
		return markDone
	case itemFailed:
		return markFailed
	default:
		return markReleased
	}
}

// holds reports whether publishing is held back while many marks such as this one are not written.
// Those of the poller need no such limit: it claims nothing for which it has no room.
func (it *item) holds() bool { return it.path == PathHot && it.markKind() != markReleased }

// marks are the items whose mark is not written yet. The zero value is empty; guarded by relay.mu.
type marks struct {
	done, failed, released []*item
	doneCold               int // items of done that the poller claimed
	held                   int // done and failed items of the fast path: they hold its publishing back
	later                  postponed
}

// add queues an item and returns how many of its kind wait.
func (m *marks) add(it *item) int {
	list := m.list(it)
	*list = append(*list, it)
	if it.markKind() == markDone && it.path == PathCold {
		m.doneCold++
	}
	if it.holds() {
		m.held++
	}
	return len(*list)
}

func (m *marks) list(it *item) *[]*item {
	switch it.markKind() {
	case markDone:
		return &m.done
	case markFailed:
		return &m.failed
	default:
		return &m.released
	}
}

// len is the number of items that wait, without those that are postponed.
func (m *marks) len() int { return len(m.done) + len(m.failed) + len(m.released) }

// take removes and returns the waiting items.
func (m *marks) take() []*item {
	items := slices.Concat(m.done, m.failed, m.released)
	m.done, m.failed, m.released, m.doneCold = nil, nil, nil, 0
	return items
}

// putBack queues items again that were taken, before those that came in meanwhile.
func (m *marks) putBack(items []*item) {
	var old marks
	for _, it := range items {
		list := old.list(it)
		*list = append(*list, it)
		if it.markKind() == markDone && it.path == PathCold {
			m.doneCold++
		}
	}
	m.done, m.failed, m.released = append(old.done, m.done...), append(old.failed, m.failed...),
		append(old.released, m.released...)
}

// ended notes that a mark that was taken is written, abandoned, or about to be postponed. It
// reports whether the mark held publishing back until now.
func (m *marks) ended(it *item) bool {
	if it.mark.tries > 0 || !it.holds() {
		return false
	}
	m.held--
	return true
}
