package relay

import (
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
)

// markKind is a kind of marks. Each kind is written by a statement of its own. The order is the one
// in which they are written: acknowledgements first.
type markKind uint8

const (
	markDone markKind = iota
	markFailed
	markReleased
	markKinds // the number of kinds
)

// mark is the outcome of an item that the writer writes into the table. The item itself is guarded.
type mark struct {
	it       *item
	kind     markKind
	id       core.RowID
	delivery *core.Delivery // of the item, which does not change any more
	receipt  string
	failure  *core.Failure // of markFailed
}

func (it *item) toMark() mark {
	return mark{
		it: it, kind: it.markKind(), id: it.id, delivery: &it.delivery, receipt: it.mark.receipt,
		failure: it.mark.failure,
	}
}

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
func (it *item) holds() bool { return it.path == core.PathHot && it.markKind() != markReleased }

// marks are the marks that are not written yet. The zero value is empty, and every mark is a batch.
type marks struct {
	batch, coldBatch int // so many acknowledgements of a path are written at once

	lists    [markKinds][]mark
	doneCold int // marks of items that the poller claimed
	held     int // done and failed items of the fast path: they hold its publishing back
	later    postponed
}

func newMarks(cfg *Config) marks { return marks{batch: cfg.MarkBatch, coldBatch: cfg.coldMarkBatch()} }

// add queues the mark of an item and returns how many of its kind wait.
func (m *marks) add(it *item) int {
	mk := it.toMark()
	list := &m.lists[mk.kind]
	*list = append(*list, mk)
	if mk.kind == markDone && it.path == core.PathCold {
		m.doneCold++
	}
	if it.holds() {
		m.held++
	}
	return len(*list)
}

// len is the number of waiting marks, without postponed ones.
func (m *marks) len() (n int) {
	for _, list := range m.lists {
		n += len(list)
	}
	return n
}

// batchWaits reports whether so many acknowledgements wait that they are written at once: MarkBatch
// of the fast path, or as many of the poller as a claim has rows.
func (m *marks) batchWaits() bool {
	return len(m.lists[markDone])-m.doneCold >= m.batch || m.doneCold >= m.coldBatch
}

// take removes and returns the waiting marks. There is room for as many again.
func (m *marks) take() (lists [markKinds][]mark) {
	for kind, list := range m.lists {
		lists[kind], m.lists[kind] = list, make([]mark, 0, len(list))
	}
	m.doneCold = 0
	return lists
}

// putBack puts taken marks back, before marks that came in meanwhile.
func (m *marks) putBack(taken []mark) {
	var old [markKinds][]mark
	for _, mk := range taken {
		old[mk.kind] = append(old[mk.kind], mk)
		if mk.kind == markDone && mk.it.path == core.PathCold {
			m.doneCold++
		}
	}
	for kind, list := range old {
		m.lists[kind] = slices.Concat(list, m.lists[kind])
	}
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

// addMark queues a mark that is written soon.
func (s *state) addMark(it *item) {
	s.marks.add(it)
	s.signals.marks.give()
}

// addAck queues an acknowledgement, which need not be written alone. The writer is signalled when a
// batch begins and when it is full.
func (s *state) addAck(it *item) {
	if n := s.marks.add(it); n == 1 || s.marks.batchWaits() {
		s.signals.marks.give()
	}
}

// written notes that a mark no longer holds publishing back.
func (s *state) written(it *item) {
	if s.marks.ended(it) {
		s.effects.WakeAll()
	}
}
