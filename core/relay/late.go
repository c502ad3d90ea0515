package relay

import (
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// A LatePublisher cannot end a call: it returns when its context ends, and leaves the call behind.
// The event counts as timed out. The call's result counts all the same: if the destination has
// accepted the event, its row becomes DONE, and the destination counts as working. So does a
// success that an AsyncPublisher reports after an error.
//
// The row is found by its id, as every acknowledged row is. So if an event is published again under
// its id while a call with it is still out, the end of that call counts for both: they are one
// event.

// lateAnswer gets the result of one publish of a LatePublisher.
type lateAnswer struct {
	r        *engine
	it       *item          // guarded by the state of r
	delivery *core.Delivery // of the item, which does not change any more
	answered atomic.Bool
}

// lateAnswer returns the function for a publish. Nil: its publisher is no LatePublisher.
func (r *engine) lateAnswer(j job) func(receipt string, err error) {
	if _, ok := publisherOf(r.ob.Publisher, j.delivery.Topic).(core.LatePublisher); !ok {
		return nil
	}
	return (&lateAnswer{r: r, it: j.it, delivery: j.delivery}).call
}

func (a *lateAnswer) call(receipt string, err error) {
	if a.answered.CompareAndSwap(false, true) && err == nil {
		a.r.answeredLate(a.it, a.delivery, receipt)
	}
}

// answeredLate is called when a publish that counted as failed has succeeded.
func (r *engine) answeredLate(it *item, d *core.Delivery, receipt string) {
	now := time.Now()
	r.do(func(s *state) {
		if !s.acceptedLate(it, receipt, now) {
			return
		}
		after := now.Sub(it.timing.started)
		s.effects.Call(func() {
			r.life.vitals.stamp(&r.life.vitals.published)
			s.ob.Logger.Warn("outbox: publisher succeeded after its PublishTimeout", "destination",
				d.Topic, "event_id", d.ID, "row_id", d.RowID.String(), "after", after)
		})
	})
}

// acceptedLate marks the row of a publish that had been given up and has succeeded after all. It
// reports whether it does: not once the relay has ended.
func (s *state) acceptedLate(it *item, receipt string, now time.Time) bool {
	if s.phase >= phaseClosed {
		return false
	}
	late := &item{
		delivery: it.delivery, id: it.id, lane: it.lane, tenant: it.tenant, dest: it.dest, path: core.PathCold,
		size: it.size, mark: itemMark{receipt: errtext.Clip(receipt, 250), wake: true},
	}
	s.move(late, itemAcked)
	s.onAck(late, now)
	s.addAck(late)
	s.tally.add(late.delivery.Topic, core.PublishDone)
	return true
}
