package core

import (
	"sync/atomic"
	"time"
)

// A LatePublisher cannot end a call: it returns when its context ends, and leaves the call behind.
// The event counts as timed out. What the call says in the end is a fact nevertheless: if the
// destination has accepted the event, its row becomes DONE, and the destination counts as one that
// works. The same holds for an AsyncPublisher that says so after an error.
//
// The row is found by its id, as every acknowledged row is. So if an event is published again under
// its id while a call with it is still out, the end of that call counts for both: they are one
// event.

// lateAnswer is what a LatePublisher is given for one publish.
type lateAnswer struct {
	r        *relay
	it       *item
	answered atomic.Bool
}

// lateAnswer returns the function for a publish of the item. Nil: its publisher is no LatePublisher.
func (r *relay) lateAnswer(it *item) func(receipt string, err error) {
	if _, ok := publisherOf(r.cfg.Publisher, it.delivery.Topic).(LatePublisher); !ok {
		return nil
	}
	return (&lateAnswer{r: r, it: it}).call
}

func (a *lateAnswer) call(receipt string, err error) {
	if a.answered.CompareAndSwap(false, true) && err == nil {
		a.r.answeredLate(a.it, receipt)
	}
}

// answeredLate is called when a publish that counted as failed has succeeded.
func (r *relay) answeredLate(it *item, receipt string) {
	r.mu.Lock()
	defer r.unlock()
	now, d := time.Now(), &it.delivery
	if !r.acceptedLate(it, receipt, now) {
		return
	}
	after := now.Sub(it.timing.started)
	r.notices.add(func() {
		r.cfg.Logger.Warn("outbox: publisher succeeded after its PublishTimeout", "component", "outbox", "destination",
			d.Topic, "event_id", d.ID, "row_id", d.RowID.String(), "after", after)
	})
}

// acceptedLate marks the row of a publish that had been given up and has succeeded after all. It
// reports whether it does: not once the relay has ended. Called under the lock.
func (r *relay) acceptedLate(it *item, receipt string, now time.Time) bool {
	if r.life.phase >= phaseClosed {
		return false
	}
	r.life.vitals.stamp(&r.life.vitals.published)
	late := &item{
		delivery: it.delivery, id: it.id, lane: it.lane, tenant: it.tenant, dest: it.dest, path: PathCold,
		size: it.size, mark: itemMark{receipt: clip(receipt, 250), wake: true},
	}
	r.move(late, itemAcked)
	r.acked(late, now)
	r.writer.addAck(late)
	return true
}
