package core

import (
	"slices"
	"time"
)

// dbTimeout bounds each statement that the relay sends. A lock wait or a dead connection must not hold it for ever.
const dbTimeout = 15 * time.Second

// maxDoneWakes is how many lanes whose claimed run is done are looked at one by one.
const maxDoneWakes = 4

func (r *relay) kickWriter() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// kickAfter wakes the writer when a batch begins and when it is full.
func (r *relay) kickAfter(n int) {
	if n == 1 || n == r.cfg.MarkBatch {
		r.kickWriter()
	}
}

// writeOutcomes is the only goroutine that writes outcomes, in batches: when MarkBatch of them wait, or after MarkDelay. What
// cannot be written is tried again: a lost outcome is a publish repeated.
func (r *relay) writeOutcomes() {
	var due time.Time        // when what waits is written; zero: nothing waits
	var news <-chan struct{} // after a failure: somebody heard that the database is back
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now, abandoned := time.Now(), r.abandoned()
		r.mu.Lock()
		n := len(r.done) + len(r.failed) + len(r.released)
		full := len(r.done) >= r.cfg.MarkBatch || r.closing
		at, apart := r.aside.next()
		stop := r.stopWriting
		r.mu.Unlock()
		switch {
		case stop:
			return
		case n == 0:
			due = time.Time{}
		case abandoned || full && r.writeFails == 0:
			due = now
		case due.IsZero():
			due = now.Add(r.cfg.MarkDelay)
		}
		if apart && abandoned {
			at = now
		}
		if !apart || n > 0 && due.Before(at) {
			at = due
		}
		if at.IsZero() {
			<-r.kick
			continue
		}
		if wait := at.Sub(now); wait > 0 {
			timer.Reset(wait)
			abandon := r.abandon
			if abandoned {
				abandon = nil
			}
			select {
			case <-r.kick:
			case <-timer.C:
			case <-news:
				news, due = nil, time.Now()
			case <-abandon:
			}
			continue
		}
		if n > 0 && !due.After(now) {
			due = time.Time{}
			heard := r.db.news()
			if err := r.writeBatch(abandoned); err == nil {
				r.writeFails, news = 0, nil
			} else {
				r.writeFails++
				news = heard
				due = time.Now().Add(r.heldBack(n, r.writeFails, err))
			}
		}
		if apart {
			r.writeAside(abandoned)
		}
	}
}

func (r *relay) abandoned() bool {
	select {
	case <-r.abandon:
		return true
	default:
		return false
	}
}

// heldBack tells that nothing can be written and returns when it is tried again.
func (r *relay) heldBack(rows, failures int, err error) time.Duration {
	wait := errorPause(failures, r.random())
	r.cfg.Logger.Warn("outbox: cannot write outcomes, publishing is held back", "component", "outbox", "rows", rows,
		"failures", failures, "next_try", wait, "err", errorText(err))
	return wait
}

func byID(a, b *item) int { return slices.Compare(a.id[:], b.id[:]) }

// settleDone ends what is marked.
func (r *relay) settleDone(items []*item, changed int) {
	if late := len(items) - changed; late > 0 {
		r.notes = append(r.notes, func() { r.o.obs.LateAcks(late) })
	}
	now := time.Now()
	wakes := 0
	for _, it := range items {
		r.forget(it)
		if it.wake {
			wakes++
		}
	}
	for _, it := range items {
		switch {
		case !it.wake:
		case wakes > maxDoneWakes && !r.sweep.resting(now): // one look at all lanes is cheaper
			r.pollBy(now)
		default:
			r.askFor(it.dest, it.lane, now)
		}
	}
}

// settleFailed ends what is written of failed publishes.
func (r *relay) settleFailed(items []*item, changed []bool) {
	r.fenced("failed", count(changed, false))
	now := time.Now()
	for _, it := range items {
		r.forget(it)
		switch {
		case it.failure.Kind == FailDead && r.cfg.DeadPolicy == SkipDead && !it.lane.IsZero():
			r.askFor(it.dest, it.lane, now) // the lane goes on
		case it.failure.Kind != FailDead && !it.dest.open:
			r.pollBy(now.Add(it.failure.Delay))
		}
	}
}

// settleReleased ends what is given back.
func (r *relay) settleReleased(items []*item, changed int) {
	r.fenced("release", len(items)-changed)
	now := time.Now()
	for _, it := range items {
		r.forget(it)
		if it.wake {
			r.askFor(it.dest, it.lane, now)
		}
	}
}

func (r *relay) fenced(transition string, n int) {
	if n > 0 {
		r.notes = append(r.notes, func() { r.o.obs.Fenced(transition, n) })
	}
}

func count(flags []bool, want bool) (n int) {
	for _, f := range flags {
		if f == want {
			n++
		}
	}
	return n
}
