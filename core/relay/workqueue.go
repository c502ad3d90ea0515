package relay

import (
	"github.com/ormoutbox/ormoutbox/core"
)

// workQueue has the items that may be published. The zero value is empty.
type workQueue struct {
	hot, cold queue[*item]
	again     queue[*item] // cold and refused before: fresh events go first
	replays   queue[*item] // all others go first
	suspects  suspects
	picks     uint
}

// coldShare: one pick in so many prefers the cold queue, and one prefers events that were refused
// before. So a busy fast path never starves them.
const coldShare = 8

// replayShare is the same for replayed events: of that many picks one prefers them.
const replayShare = 32

// len is the number of waiting items, without suspects and replayed events, and without the fast
// path's unless hot is set.
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
	case it.role.suspect:
		q.suspects.queue.push(it)
	case it.role.replay:
		q.replays.push(it)
	case it.path == core.PathHot:
		q.hot.push(it)
	case it.dest.refusals.knows(it.id):
		q.again.push(it)
	default:
		q.cold.push(it)
	}
}

// pop takes the first queued item that is still ready. A suspect comes first if one may go. Then
// the order is, most of the time: fast path, table, refused before, replayed. hot and replays allow
// an item of the fast path and a replayed event.
func (q *workQueue) pop(hot, replays bool) *item {
	for {
		if it, ok := q.suspects.next(q.len(hot)); ok {
			if it.state != itemReady { // it was given back meanwhile
				continue
			}
			return it
		}
		it, ok := q.popOther(hot, replays)
		switch {
		case !ok:
			return nil
		case it.state != itemReady: // it was given back meanwhile
		case it.role.suspect: // it has become a suspect
			q.suspects.queue.push(it)
		default:
			return it
		}
	}
}

func (q *workQueue) popOther(hot, replays bool) (it *item, ok bool) {
	queues := [4]*queue[*item]{&q.hot, &q.cold, &q.again, &q.replays}
	q.picks++
	switch {
	case q.picks%coldShare == 0:
		queues = [4]*queue[*item]{&q.cold, &q.hot, &q.again, &q.replays}
	case q.picks%coldShare == coldShare/2:
		queues = [4]*queue[*item]{&q.again, &q.hot, &q.cold, &q.replays}
	case q.picks%replayShare == replayShare-1:
		queues = [4]*queue[*item]{&q.replays, &q.hot, &q.cold, &q.again}
	}
	for _, from := range queues {
		if from == &q.hot && !hot || from == &q.replays && !replays {
			continue
		}
		if it, ok = from.pop(); ok {
			return it, true
		}
	}
	return nil, false
}
