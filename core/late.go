package core

import (
	"context"
	"sync/atomic"
	"time"
)

// A Publisher that cannot end a call returns when its context ends, and leaves the call behind. The
// event counts as timed out. What the call says in the end is a fact nevertheless: if the
// destination has accepted the event, its row becomes DONE, and the destination counts as one that
// works.

// LateAnswer returns the function by which a Publisher tells how a call has ended that it left
// behind, because the context of Publish had ended. ctx is that context. Without an error the event
// is marked DONE, and is published no more. The receipt may be empty (see ReceiptPublisher). An
// error changes nothing: the event is published again as after any timeout.
//
// Any goroutine may call the function at any time. Only its first call counts, and it does nothing
// once Run has returned. If ctx does not come from a relay, the function does nothing. A publisher
// that never outlives its context does not need it, and an AsyncPublisher has done instead.
func LateAnswer(ctx context.Context) func(receipt string, err error) {
	c, ok := ctx.Value(lateKey{}).(*lateContext)
	if !ok {
		return func(string, error) {}
	}
	return c.answer
}

type lateKey struct{}

// lateContext is the context of one publish.
type lateContext struct {
	context.Context //nolint:containedctx // it is one
	r               *relay
	it              *item
	answered        atomic.Bool
}

func (c *lateContext) Value(key any) any {
	if _, ok := key.(lateKey); ok {
		return c
	}
	return c.Context.Value(key)
}

func (c *lateContext) answer(receipt string, err error) {
	if err != nil || !c.answered.CompareAndSwap(false, true) {
		return
	}
	r := c.r
	r.mu.Lock()
	defer r.unlock()
	now, d := time.Now(), &c.it.delivery
	if !r.acceptedLate(c.it, receipt, now) {
		return
	}
	after := now.Sub(c.it.timing.started)
	r.notices.add(func() {
		r.cfg.Logger.Warn("outbox: publisher succeeded after its PublishTimeout; the event is marked as published",
			"component", "outbox", "destination", d.Topic, "event_id", d.ID, "row_id", d.RowID.String(), "after", after)
	})
}

// acceptedLate marks the row of a publish that had been given up and has succeeded after all. It
// reports whether the mark is written: it is not once the relay has ended. Called under the lock.
func (r *relay) acceptedLate(it *item, receipt string, now time.Time) bool {
	if r.life.phase >= phaseClosed {
		return false
	}
	late := &item{
		delivery: it.delivery, id: it.id, lane: it.lane, tenant: it.tenant, dest: it.dest, path: PathCold,
		size: it.size,
		mark: itemMark{receipt: clip(receipt, 250), wake: true},
	}
	r.move(late, itemAcked)
	r.acked(late, now)
	r.writer.addAck(late)
	return true
}
