package relay

// parked are the items of a destination with a rate that wait for their turn. The zero value is
// empty.
type parked struct {
	live, replays queue[*item]
	picks         uint
}

func (p *parked) len() int { return p.live.len() + p.replays.len() }

func (p *parked) push(it *item) {
	if it.role.replay {
		p.replays.push(it)
		return
	}
	p.live.push(it)
}

// before is how many items go before an item that comes now.
func (p *parked) before(it *item) int {
	if it.role.replay {
		return p.len()
	}
	return p.live.len()
}

// next returns the queue from which to take the next item, or nil. Replayed events go last, except
// in one of replayShare picks. replays reports whether a replayed event may be taken.
func (p *parked) next(replays bool) *queue[*item] {
	turn := p.live.len() == 0 || (p.picks+1)%replayShare == 0
	switch {
	case replays && turn && p.replays.len() > 0:
		return &p.replays
	case p.live.len() > 0:
		return &p.live
	}
	return nil
}

// take takes the first item of a queue that next returned.
func (p *parked) take(from *queue[*item]) *item {
	p.picks++
	it, _ := from.pop()
	return it
}

// pop takes any item.
func (p *parked) pop() (it *item, ok bool) {
	from := p.next(true)
	if from == nil {
		return nil, false
	}
	return p.take(from), true
}
