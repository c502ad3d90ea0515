package relay

import (
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
)

// inflight is the in-flight tracker: the items that this process holds, their states, and the
// memory they take. An item is in the tracker exactly as long as its claim. The zero value is
// empty.
type inflight struct {
	items     map[core.RowID]*item
	count     [itemStates]int
	hot, cold slots
	replays   replays       // among the cold ones
	idle      chan struct{} // closed once nothing is active; nil: no call waits for that
}

// slots counts the items of one path.
type slots struct {
	events int
	bytes  int64
}

// room returns how many claimed rows fit. It returns 0 while there is too little room for a claim
// to be worth it.
func (f *inflight) room(cfg *Config) int {
	room := cfg.ColdEvents - f.cold.events
	if room < min(cfg.ClaimBatch, cfg.ColdEvents)/2 || room <= 0 || f.cold.bytes >= cfg.ColdBytes {
		return 0
	}
	return min(room, cfg.ClaimBatch)
}

// find returns the item of a row, or nil.
func (f *inflight) find(id core.RowID) *item { return f.items[id] }

func (f *inflight) slots(p core.Path) *slots {
	if p == core.PathHot {
		return &f.hot
	}
	return &f.cold
}

// active is how many items are neither reserved nor gone.
func (f *inflight) active() int {
	n := 0
	for s := itemWaiting; s < itemGone; s++ {
		n += f.count[s]
	}
	return n
}

// move changes the state of an item; no other function does. A new item gets a slot, and an item
// that becomes gone loses it. The error means that the transition is not in the table. The state
// changes all the same.
func (f *inflight) move(it *item, to itemState) error {
	from := it.state
	err := checkMove(from, to)
	it.state = to
	if from == itemNew {
		f.enter(it)
	} else {
		f.count[from]--
	}
	if it.dest != nil && from == itemPublishing {
		it.dest.underWay--
	}
	if it.dest != nil && to == itemPublishing {
		it.dest.underWay++
	}
	if it.role.replay {
		f.replays.move(it, from, to)
	}
	if to != itemGone {
		f.count[to]++
		return err
	}
	f.leave(it)
	if from != itemReserved && f.idle != nil && f.active() == 0 {
		close(f.idle)
		f.idle = nil
	}
	return err
}

func (f *inflight) enter(it *item) {
	s := f.slots(it.path)
	s.events++
	s.bytes += it.size
	if it.dest != nil {
		it.dest.items++
	}
	// a publish that was given up and succeeded after all: the present holder of its row goes on with it
	if it.state == itemAcked {
		return
	}
	if f.items == nil {
		f.items = map[core.RowID]*item{}
	}
	f.items[it.id] = it
}

func (f *inflight) leave(it *item) {
	s := f.slots(it.path)
	s.events--
	s.bytes -= it.size
	if it.dest != nil {
		it.dest.items--
	}
	if f.items[it.id] == it { // else it was claimed again
		delete(f.items, it.id)
	}
}

// idleChan returns a channel that is closed when no item is held any more, except for items of open
// transactions.
func (f *inflight) idleChan() <-chan struct{} {
	if f.active() == 0 {
		c := make(chan struct{})
		close(c)
		return c
	}
	if f.idle == nil {
		f.idle = make(chan struct{})
	}
	return f.idle
}

// sorted returns the items in the order of their ids, so that the order of a map decides nothing.
func (f *inflight) sorted() []*item {
	items := make([]*item, 0, len(f.items))
	for _, it := range f.items {
		items = append(items, it)
	}
	slices.SortFunc(items, func(a, b *item) int { return slices.Compare(a.id[:], b.id[:]) })
	return items
}
