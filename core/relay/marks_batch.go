package relay

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/failgroup"
)

// maxRefusals bounds how many statements of one batch fail before the rest of the batch waits for
// the next try.
const maxRefusals = 64

// batchResult is the result of writing a batch.
type batchResult struct {
	wrote   bool   // some marks are written
	left    []mark // not written; they may be later, as a whole
	refused []mark // refused one by one
	err     error  // the reason
	away    bool   // the database is away: no other mark needs to be tried
}

// writeBatch writes the waiting marks. It returns an error if some of them must be tried again and
// hold up later ones.
func (w *writer) writeBatch(last bool) error {
	lists := ask(w.engine, func(s *state) [markKinds][]mark { return s.marks.take() })
	b := w.write(lists)
	return ask(w.engine, func(s *state) error {
		if last { // shutdown has waited long enough
			for _, m := range slices.Concat(b.left, b.refused) {
				s.written(m.it)
				s.forget(m.it)
			}
			return nil
		}
		if b.wrote { // the marks are refused, and the database works
			s.postpone(b.refused, b.err, true)
			b.refused = nil
		}
		if b.left = append(b.left, b.refused...); len(b.left) == 0 {
			return nil
		}
		s.marks.putBack(b.left)
		return b.err
	})
}

// writePostponed tries the postponed marks that are due again.
func (w *writer) writePostponed(last bool) {
	due := ask(w.engine, func(s *state) (lists [markKinds][]mark) {
		for _, m := range s.marks.later.take(time.Now(), last) {
			lists[m.kind] = append(lists[m.kind], m)
		}
		return lists
	})
	b := w.write(due)
	w.do(func(s *state) {
		if last {
			for _, m := range slices.Concat(b.left, b.refused) {
				s.forget(m.it)
			}
			return
		}
		s.postpone(b.left, b.err, false)
		s.postpone(b.refused, b.err, true)
	})
}

// write writes marks and finds out which of them cannot be written. It tries all marks of a kind at
// once, then without the texts for people, then in smaller and smaller parts.
func (w *writer) write(lists [markKinds][]mark) (b batchResult) {
	for kind, part := range lists {
		switch {
		case len(part) == 0:
		case b.away:
			b.left = append(b.left, part...)
		default:
			w.writeKind(markKind(kind), part, &b)
		}
	}
	return b
}

func (w *writer) writeKind(kind markKind, marks []mark, b *batchResult) {
	err := w.attempt(kind, marks, true)
	texts := true
	if err != nil && !w.databaseAway(err) && hasTexts(marks) {
		if err = w.attempt(kind, marks, false); err == nil {
			w.ob.Logger.Warn("outbox: error texts or receipts could not be saved", "rows", len(marks))
		}
		texts = false
	}
	if err == nil {
		b.wrote = true
		return
	}
	parts := [][]mark{marks}
	for refusals := 0; len(parts) > 0; {
		part := parts[0]
		parts = parts[1:]
		if refusals > 0 { // the whole has already failed above
			if err = w.attempt(kind, part, texts); err == nil {
				b.wrote = true
				continue
			}
		}
		b.err = err
		refusals++
		switch b.away = w.databaseAway(err); {
		case b.away || refusals >= maxRefusals:
			b.left = append(b.left, part...)
			b.left = append(b.left, slices.Concat(parts...)...)
			return
		case len(part) == 1:
			b.refused = append(b.refused, part[0])
		default:
			parts = append(parts, part[:len(part)/2], part[len(part)/2:])
		}
	}
}

func hasTexts(marks []mark) bool {
	return slices.ContainsFunc(marks, func(m mark) bool {
		return m.receipt != "" || m.failure != nil && m.failure.Message != ""
	})
}

// databaseAway reports whether an error concerns the database and not the rows.
func (r *engine) databaseAway(err error) bool {
	switch r.repo().Classify(err) {
	case core.ErrorUnavailable, core.ErrorPoolClosed:
		return true
	case core.ErrorOther, core.ErrorConflict, core.ErrorTimeLimit: // smaller parts may be written
	}
	return isTimeout(err) || errors.Is(err, context.Canceled) || core.DefaultClassifier(err) == core.ClassUnavailable
}

// attempt writes marks of one kind in one call and ends their items. Rows that other transactions
// hold are postponed.
func (w *writer) attempt(kind markKind, marks []mark, texts bool) error {
	slices.SortFunc(
		marks,
		func(a, b mark) int { return slices.Compare(a.id[:], b.id[:]) },
	) // one lock order for all batches
	if err := w.life.writes.Err(); err != nil { // nothing is written any more
		return err
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(w.life.writes, dbTimeout)
	defer cancel()
	changed, flags := 0, []bool(nil)
	var err error
	switch kind {
	case markDone:
		done := make([]core.Done, len(marks))
		for i := range marks {
			done[i] = core.Done{ID: marks[i].id}
			if texts {
				done[i].Receipt = marks[i].receipt
			}
		}
		changed, err = w.repo().MarkDone(ctx, done, w.cfg.Retention.DeleteOnSuccess)
	case markFailed:
		failures := make([]core.Failure, len(marks))
		for i, m := range marks {
			failures[i] = *m.failure
			f := &failures[i]
			f.Group = failgroup.Of(f.Code, m.delivery.Topic, m.delivery.Type, f.Message)
			if !texts {
				f.Message = ""
			}
		}
		flags, err = w.repo().MarkFailed(ctx, w.ob.Node, failures)
	case markReleased:
		changed, err = w.repo().Release(ctx, w.ob.Node, w.claimsOf(marks))
	case markKinds:
	}
	locked, _ := errors.AsType[*core.LockedError](err)
	if locked == nil {
		w.obs.Marked(len(marks), time.Since(start), err)
		if err != nil {
			w.doubt()
			return err
		}
	}

	if w.failures > 0 { // before callers are told that a mark is written
		w.db.succeeded()
	}
	w.do(func(s *state) {
		if locked != nil {
			var held []mark
			marks, flags, held = apart(marks, flags, locked.Rows)
			s.postpone(held, err, false)
			s.effects.Call(func() { s.obs.Marked(len(marks), time.Since(start), nil) })
		}
		for _, m := range marks {
			s.written(m.it)
		}
		switch kind {
		case markDone:
			s.doneWritten(marks, changed)
		case markFailed:
			s.failuresWritten(marks, flags)
		case markReleased:
			s.releasesWritten(marks, changed)
		case markKinds:
		}
	})
	return nil
}

// claimsOf names the claims of the items of marks as they are now: a row may have been claimed again.
func (w *writer) claimsOf(marks []mark) []core.ClaimRef {
	claims := make([]core.ClaimRef, len(marks))
	w.do(func(s *state) {
		for i, m := range marks {
			claims[i] = m.it.claimRef()
		}
	})
	return claims
}

// apart separates marks, with their flags if there are any, from the marks of the given rows.
func apart(marks []mark, flags []bool, rows []core.RowID) (others []mark, otherFlags []bool, of []mark) {
	is := make(map[core.RowID]bool, len(rows))
	for _, id := range rows {
		is[id] = true
	}
	for i, m := range marks {
		if is[m.id] {
			of = append(of, m)
			continue
		}
		others = append(others, m)
		if i < len(flags) {
			otherFlags = append(otherFlags, flags[i])
		}
	}
	return others, otherFlags, of
}

// postpone lets the other marks go on without these, which are tried apart. A guess that the
// database refuses twice is abandoned: its lease will end.
func (s *state) postpone(marks []mark, cause error, refused bool) {
	now := time.Now()
	for _, m := range marks {
		s.written(m.it)
		s.crew.suspectDone(m.it) // the lock of its row may last long
		id, topic := m.id, m.delivery.Topic
		if refused && m.kind != markDone && m.it.mark.tries > 0 {
			s.forget(m.it)
			s.effects.Call(func() {
				s.ob.Logger.Error("outbox: the database refuses to change a row: its event is tried again when its "+
					"lease ends",
					"row_id", id.String(), "destination", topic, "error", errtext.Of(cause))
			})
			continue
		}
		if s.marks.later.add(m, now, s.random()) {
			tries := m.it.mark.tries
			s.effects.Call(func() {
				s.ob.Logger.Warn("outbox: the mark of an event cannot be written yet, others can: is its row "+
					"locked for long?", "row_id", id.String(), "destination", topic, "failures", tries,
					"error", errtext.Of(cause))
			})
		}
	}
}

// doneWritten ends the items that are marked DONE.
func (s *state) doneWritten(marks []mark, changed int) {
	if late := len(marks) - changed; late > 0 {
		s.effects.Call(func() { s.obs.LateAcks(late) })
	}
	now := time.Now()
	wakes := 0
	for _, m := range marks {
		s.forget(m.it)
		if m.it.mark.wake {
			wakes++
		}
	}
	for _, m := range marks {
		switch it := m.it; {
		case !it.mark.wake:
		case wakes > maxDoneWakes && !s.poller.sweep.resting(now): // one look at all lanes is cheaper
			s.wakes.poll(now)
		default:
			s.askFor(it.dest, it.tenant, it.lane, now)
		}
	}
}

// failuresWritten ends the items whose failure is written.
func (s *state) failuresWritten(marks []mark, changed []bool) {
	s.fenced("failed", count(changed, false))
	now := time.Now()
	for _, m := range marks {
		it := m.it
		s.forget(it)
		switch {
		case m.failure.Kind == core.FailDead && s.ob.DeadPolicy == core.SkipDead && !it.lane.IsZero():
			s.askFor(it.dest, it.tenant, it.lane, now) // the lane goes on
		case m.failure.Kind != core.FailDead:
			s.askFor(it.dest, it.tenant, core.KeyID{}, now.Add(m.failure.Delay))
		}
	}
}

// releasesWritten ends the items that are given back.
func (s *state) releasesWritten(marks []mark, changed int) {
	s.fenced("release", len(marks)-changed)
	now := time.Now()
	for _, m := range marks {
		s.forget(m.it)
		if m.it.mark.wake {
			s.askFor(m.it.dest, m.it.tenant, m.it.lane, now)
		}
	}
}

func (s *state) fenced(transition string, n int) {
	if n > 0 {
		s.effects.Call(func() { s.obs.Fenced(transition, n) })
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
