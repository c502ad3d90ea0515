package relay

import (
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// dbTimeout bounds each statement that the relay sends. A lock wait or a dead connection must not
// hold the relay without end.
const dbTimeout = 15 * time.Second

// maxDoneWakes is how many lanes are looked at one by one when their claimed runs are done.
const maxDoneWakes = 4

// writer is the only goroutine that writes marks. It writes them when a batch waits (see batchWaits),
// or after MarkDelay. A mark that cannot be written is tried again, because a lost mark is a repeated
// publish.
type writer struct {
	*engine
	failures int       // failed batches in a row
	due      time.Time // when the waiting marks are written; zero: none waits
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

// abandoned reports whether marks that cannot be written are given up.
func (r *engine) abandoned() bool {
	select {
	case <-r.life.abandon:
		return true
	default:
		return false
	}
}

// marksLeft is the work that waits for the writer.
type marksLeft struct {
	waiting   int
	full      bool      // enough for a batch
	postponed bool      // some are tried apart
	at        time.Time // when the next of these is
	stop      bool
}

func (s *state) marksLeft() marksLeft {
	l := marksLeft{
		waiting: s.marks.len(), full: s.marks.batchWaits() || s.phase >= phaseClosing, stop: s.phase == phaseClosed,
	}
	l.at, l.postponed = s.marks.later.next()
	return l
}

// writeMarks runs the writer.
func (r *engine) writeMarks() {
	w := &writer{engine: r}
	// after a failure: another goroutine has seen that the database is back
	var news <-chan struct{}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now, abandoned := time.Now(), r.abandoned()
		l := ask(r, (*state).marksLeft)
		if l.stop {
			return
		}
		w.plan(l.waiting, l.full, abandoned, now, r.cfg.MarkDelay)
		at := l.at
		if l.postponed && abandoned {
			at = now
		}
		if !l.postponed || l.waiting > 0 && w.due.Before(at) {
			at = w.due
		}
		if at.IsZero() {
			<-r.signals.marks
			continue
		}
		if wait := at.Sub(now); wait > 0 {
			timer.Reset(wait)
			abandon := r.life.abandon
			if abandoned {
				abandon = nil
			}
			select {
			case <-r.signals.marks:
			case <-timer.C:
			case <-news:
				news, w.due = nil, time.Now()
			case <-abandon:
			}
			continue
		}
		if l.waiting > 0 && !w.due.After(now) {
			w.due = time.Time{}
			heard := r.db.news()
			if err := w.writeBatch(abandoned); err == nil {
				w.failures, news = 0, nil
			} else {
				w.failures++
				news = heard
				w.due = time.Now().Add(w.heldBack(l.waiting, err))
			}
		}
		if l.postponed {
			w.writePostponed(abandoned)
		}
	}
}

// heldBack logs that no mark can be written, and returns how long to wait for the next try.
func (w *writer) heldBack(rows int, err error) time.Duration {
	wait := errorPause(w.failures, w.random())
	if w.noPool(err) {
		return wait
	}
	w.ob.Logger.Warn("outbox: cannot write marks, publishing is held back", "rows", rows,
		"failures", w.failures, "next_try", wait, "error", errtext.Of(err))
	return wait
}
