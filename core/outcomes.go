package core

import (
	"context"
	"slices"
	"time"
)

// dbTimeout bounds each statement that the relay sends. A lock wait or a dead connection must not hold it for ever.
const dbTimeout = 15 * time.Second

// maxDoneWakes is how many lanes whose claimed run is done are looked at one by one.
const maxDoneWakes = 4

// outcomes is one batch for the table.
type outcomes struct{ done, failed, released []*item }

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

// writeOutcomes is the only goroutine that writes outcomes, in batches: when MarkBatch of them wait, or after MarkDelay.
func (r *relay) writeOutcomes() {
	var due time.Time // of the batch that is collected
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		r.mu.Lock()
		n := len(r.done) + len(r.failed) + len(r.released)
		full := len(r.done) >= r.cfg.MarkBatch || r.closing
		stop := r.stopWriting
		r.mu.Unlock()
		switch {
		case stop:
			return
		case n == 0:
			due = time.Time{}
			<-r.kick
			continue
		case !full:
			if due.IsZero() {
				due = time.Now().Add(r.cfg.MarkDelay)
			}
			if wait := time.Until(due); wait > 0 {
				timer.Reset(wait)
				select {
				case <-r.kick:
				case <-timer.C:
				}
				continue
			}
		}
		due = time.Time{}
		r.mu.Lock()
		batch := outcomes{done: r.done, failed: r.failed, released: r.released}
		r.done, r.failed, r.released = nil, nil, nil
		r.mu.Unlock()
		r.write(batch)
	}
}

// write writes a batch, each kind until it succeeds or the relay is abandoned: a lost outcome is a publish repeated.
func (r *relay) write(b outcomes) {
	if len(b.done) > 0 {
		r.writeDone(b.done)
	}
	if len(b.failed) > 0 {
		r.writeFailed(b.failed)
	}
	if len(b.released) > 0 {
		r.writeReleased(b.released)
	}
}

func byID(a, b *item) int { return slices.Compare(a.id[:], b.id[:]) }

func (r *relay) writeDone(items []*item) {
	slices.SortFunc(items, byID) // one lock order for all batches
	done := make([]Done, len(items))
	for i, it := range items {
		done[i] = Done{ID: it.id, Receipt: it.receipt}
	}
	changed := 0
	ok := r.persist("mark done", len(items), func(ctx context.Context) (err error) {
		changed, err = r.repo.MarkDone(ctx, done, r.cfg.Retention.DeleteOnSuccess)
		return err
	})
	r.mu.Lock()
	defer r.unlock()
	if late := len(items) - changed; ok && late > 0 {
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
		case wakes > maxDoneWakes: // one look at all lanes is cheaper
			r.pollBy(now)
		default:
			r.wakeLane(it.lane, now)
		}
	}
	r.written(len(items))
}

func (r *relay) writeFailed(items []*item) {
	slices.SortFunc(items, byID)
	failures := make([]Failure, len(items))
	for i, it := range items {
		failures[i] = it.failure
	}
	var changed []bool
	ok := r.persist("mark failed", len(items), func(ctx context.Context) (err error) {
		changed, err = r.repo.MarkFailed(ctx, r.cfg.Node, failures)
		return err
	})
	r.mu.Lock()
	defer r.unlock()
	if ok {
		r.fenced("failed", count(changed, false))
	}
	now := time.Now()
	for i, it := range items {
		r.forget(it)
		switch {
		case failures[i].Kind == FailDead && r.cfg.DeadPolicy == SkipDead && !it.lane.IsZero():
			r.wakeLane(it.lane, now) // the lane goes on
		case failures[i].Kind != FailDead && !it.dest.open:
			r.pollBy(now.Add(failures[i].Delay))
		}
	}
	r.written(len(items))
}

func (r *relay) writeReleased(items []*item) {
	slices.SortFunc(items, byID)
	r.mu.Lock()
	claims := make([]ClaimRef, len(items))
	for i, it := range items {
		claims[i] = ClaimRef{ID: it.id, ClaimNo: it.claimNo}
	}
	r.mu.Unlock()
	changed := 0
	ok := r.persist("release", len(items), func(ctx context.Context) (err error) {
		changed, err = r.repo.Release(ctx, r.cfg.Node, claims)
		return err
	})
	r.mu.Lock()
	defer r.unlock()
	if ok {
		r.fenced("release", len(items)-changed)
	}
	now := time.Now()
	for _, it := range items {
		r.forget(it)
		if it.wake {
			r.wakeFor(it.lane, now)
		}
	}
	r.releasing -= len(items)
	if r.lone.len() > 0 {
		r.work.Broadcast()
	}
}

func (r *relay) written(n int) {
	r.unwritten -= n
	r.work.Broadcast()
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

// persist repeats fn until it succeeds. It reports false when the relay was abandoned before that.
func (r *relay) persist(what string, rows int, fn func(context.Context) error) bool {
	for failures := 1; ; failures++ {
		start := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), dbTimeout)
		err := fn(ctx)
		cancel()
		r.o.obs.Marked(rows, time.Since(start), err)
		if err == nil {
			return true
		}
		wait := spread(backoff(100*time.Millisecond, 30*time.Second, failures), r.random())
		r.cfg.Logger.Warn("outbox: cannot write outcomes, publishing is held back", "component", "outbox", "what", what, "rows", rows,
			"failures", failures, "next_try", wait, "err", errorText(err))
		select {
		case <-r.abandon:
			return false
		default:
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-r.abandon:
			timer.Stop()
			return false
		}
	}
}
