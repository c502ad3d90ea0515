package core

import "time"

// dbTimeout bounds each statement that the relay sends. A lock wait or a dead connection must not
// hold the relay without end.
const dbTimeout = 15 * time.Second

// maxDoneWakes is how many lanes are looked at one by one when their claimed runs are done.
const maxDoneWakes = 4

// writer wakes and ends the goroutine that writes marks, and says when it writes. The zero value
// wakes no goroutine, and every mark is a batch.
type writer struct {
	marks marks // that wait; guarded by relay.mu

	batch, coldBatch int // so many acknowledgements of a path are written at once
	kick             chan struct{}
	abandon          chan struct{} // closed: stop trying to write

	// The next two are used only by that goroutine.
	failures int       // failed batches in a row
	due      time.Time // when the waiting marks are written; zero: none waits
}

func newWriter(cfg *Config) writer {
	return writer{
		batch: cfg.MarkBatch, coldBatch: cfg.coldMarkBatch(),
		kick: make(chan struct{}, 1), abandon: make(chan struct{}),
	}
}

func (w *writer) wake() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

func (w *writer) abandoned() bool {
	select {
	case <-w.abandon:
		return true
	default:
		return false
	}
}

// plan sets when the marks are written: at once if they are enough for a batch or if the writer is
// abandoned, else once the first of them has waited for delay. After a failure only its pause
// counts.
func (w *writer) plan(waiting int, full, abandoned bool, now time.Time, delay time.Duration) {
	switch {
	case waiting == 0:
		w.due = time.Time{}
	case abandoned || full && w.failures == 0:
		w.due = now
	case w.due.IsZero():
		w.due = now.Add(delay)
	}
}

// add queues a mark that is written soon.
func (w *writer) add(it *item) {
	w.marks.add(it)
	w.wake()
}

// addAck queues an acknowledgement, which need not be written alone. The writer hears when a batch
// begins and when it is full.
func (w *writer) addAck(it *item) {
	if n := w.marks.add(it); n == 1 || w.batchWaits() {
		w.wake()
	}
}

// batchWaits reports whether so many acknowledgements wait that they are written at once: MarkBatch
// of the fast path, or as many of the poller as a claim has rows.
func (w *writer) batchWaits() bool {
	cold := w.marks.doneCold
	return len(w.marks.done)-cold >= w.batch || cold >= w.coldBatch
}

// writeMarks is the only goroutine that writes marks. It writes them when a batch waits (see
// batchWaits), or after MarkDelay. A mark that cannot be written is tried again, because a lost
// mark is a repeated publish.
func (r *relay) writeMarks() {
	w := &r.writer
	// after a failure: another goroutine has seen that the database is back
	var news <-chan struct{}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now, abandoned := time.Now(), w.abandoned()
		r.mu.Lock()
		n := w.marks.len()
		full := w.batchWaits() || r.life.phase >= phaseClosing
		at, apart := w.marks.later.next()
		stop := r.life.phase == phaseClosed
		r.mu.Unlock()
		if stop {
			return
		}
		w.plan(n, full, abandoned, now, r.cfg.MarkDelay)
		if apart && abandoned {
			at = now
		}
		if !apart || n > 0 && w.due.Before(at) {
			at = w.due
		}
		if at.IsZero() {
			<-w.kick
			continue
		}
		if wait := at.Sub(now); wait > 0 {
			timer.Reset(wait)
			abandon := w.abandon
			if abandoned {
				abandon = nil
			}
			select {
			case <-w.kick:
			case <-timer.C:
			case <-news:
				news, w.due = nil, time.Now()
			case <-abandon:
			}
			continue
		}
		if n > 0 && !w.due.After(now) {
			w.due = time.Time{}
			heard := r.db.news()
			if err := r.writeBatch(abandoned); err == nil {
				w.failures, news = 0, nil
			} else {
				w.failures++
				news = heard
				w.due = time.Now().Add(r.heldBack(n, w.failures, err))
			}
		}
		if apart {
			r.writePostponed(abandoned)
		}
	}
}

// heldBack logs that no mark can be written, and returns how long to wait for the next try.
func (r *relay) heldBack(rows, failures int, err error) time.Duration {
	wait := errorPause(failures, r.random())
	if r.noPool(err) {
		return wait
	}
	r.cfg.Logger.Warn("outbox: cannot write marks, publishing is held back", "component", "outbox", "rows", rows,
		"failures", failures, "next_try", wait, "err", errorText(err))
	return wait
}

// doneWritten ends the items that are marked DONE.
func (r *relay) doneWritten(items []*item, changed int) {
	if late := len(items) - changed; late > 0 {
		r.notices.add(func() { r.o.obs.LateAcks(late) })
	}
	now := time.Now()
	wakes := 0
	for _, it := range items {
		r.forget(it)
		if it.mark.wake {
			wakes++
		}
	}
	for _, it := range items {
		switch {
		case !it.mark.wake:
		case wakes > maxDoneWakes && !r.poller.sweep.resting(now): // one look at all lanes is cheaper
			r.wakes.poll(now)
		default:
			r.askFor(it.dest, it.tenant, it.lane, now)
		}
	}
}

// failuresWritten ends the items whose failure is written.
func (r *relay) failuresWritten(items []*item, changed []bool) {
	r.fenced("failed", count(changed, false))
	now := time.Now()
	for _, it := range items {
		r.forget(it)
		switch {
		case it.mark.failure.Kind == FailDead && r.cfg.DeadPolicy == SkipDead && !it.lane.IsZero():
			r.askFor(it.dest, it.tenant, it.lane, now) // the lane goes on
		case it.mark.failure.Kind != FailDead:
			r.askFor(it.dest, it.tenant, KeyID{}, now.Add(it.mark.failure.Delay))
		}
	}
}

// releasesWritten ends the items that are given back.
func (r *relay) releasesWritten(items []*item, changed int) {
	r.fenced("release", len(items)-changed)
	now := time.Now()
	for _, it := range items {
		r.forget(it)
		if it.mark.wake {
			r.askFor(it.dest, it.tenant, it.lane, now)
		}
	}
}

func (r *relay) fenced(transition string, n int) {
	if n > 0 {
		r.notices.add(func() { r.o.obs.Fenced(transition, n) })
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
