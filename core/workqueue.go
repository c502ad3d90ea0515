package core

// workQueue has the items that may be published. The zero value is empty; guarded by relay.mu.
type workQueue struct {
	hot, cold queue[*item]
	again     queue[*item] // cold and refused before: fresh events go first
	suspects  suspects
	picks     uint
}

// coldShare says how picks are shared: of that many picks one prefers the cold queue, and one the
// events that were refused before. So a busy fast path never starves them.
const coldShare = 8

// len is the number of waiting items, without suspects, and with those of the fast path only if hot
// is set.
func (q *workQueue) len(hot bool) int {
	n := q.cold.len() + q.again.len()
	if hot {
		n += q.hot.len()
	}
	return n
}

// push queues an item.
func (q *workQueue) push(it *item) {
	switch {
	case it.suspect:
		q.suspects.queue.push(it)
	case it.path == PathHot:
		q.hot.push(it)
	case it.dest.refusals.knows(it.id):
		q.again.push(it)
	default:
		q.cold.push(it)
	}
}

// pop takes the first queued item that is still ready. A suspect comes first if one may go. Then
// the order is, most of the time: fast path, table, refused before. hot says whether an item of the
// fast path may be taken.
func (q *workQueue) pop(hot bool) *item {
	for {
		if it, ok := q.suspects.next(q.len(hot)); ok {
			if it.state != itemReady { // it was given back meanwhile
				continue
			}
			return it
		}
		it, ok := q.popOther(hot)
		switch {
		case !ok:
			return nil
		case it.state != itemReady: // it was given back meanwhile
		case it.suspect: // it has become a suspect
			q.suspects.queue.push(it)
		default:
			return it
		}
	}
}

func (q *workQueue) popOther(hot bool) (it *item, ok bool) {
	queues := [3]*queue[*item]{&q.hot, &q.cold, &q.again}
	switch q.picks++; q.picks % coldShare {
	case 0:
		queues = [3]*queue[*item]{&q.cold, &q.hot, &q.again}
	case coldShare / 2:
		queues = [3]*queue[*item]{&q.again, &q.hot, &q.cold}
	}
	for _, from := range queues {
		if from == &q.hot && !hot {
			continue
		}
		if it, ok = from.pop(); ok {
			return it, true
		}
	}
	return nil, false
}
