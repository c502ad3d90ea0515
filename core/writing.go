package core

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// maxRefusals bounds how many statements of one batch fail before the rest waits for the next try.
const maxRefusals = 64

// outcomeKind is a kind of outcomes: each is written by a statement of its own.
type outcomeKind string

const (
	outcomeDone     outcomeKind = "mark done"
	outcomeFailed   outcomeKind = "mark failed"
	outcomeReleased outcomeKind = "release"
)

// outcomeKinds are in the order in which they are written: facts first.
var outcomeKinds = [...]outcomeKind{outcomeDone, outcomeFailed, outcomeReleased}

func (it *item) outcome() outcomeKind {
	switch it.state {
	case itemAcked:
		return outcomeDone
	case itemFailed:
		return outcomeFailed
	default:
		return outcomeReleased
	}
}

// batchResult is what became of a batch.
type batchResult struct {
	wrote   bool    // some of it is written
	left    []*item // is not written, and may be as a whole later
	refused []*item // was refused alone
	err     error   // why
	away    bool    // the database is away: nothing else needs to be tried
}

// writeBatch writes what waits. It returns an error when something has to be tried again and holds up what comes.
func (r *relay) writeBatch(last bool) error {
	r.mu.Lock()
	items := slices.Concat(r.done, r.failed, r.released)
	r.done, r.failed, r.released = nil, nil, nil
	r.mu.Unlock()
	b := r.write(items)

	r.mu.Lock()
	defer r.unlock()
	if last { // shutdown has waited long enough
		for _, it := range slices.Concat(b.left, b.refused) {
			r.written(it)
			r.forget(it)
		}
		return nil
	}
	if b.wrote { // it is them, and not the database
		r.setAside(b.refused, b.err, true)
		b.refused = nil
	}
	if b.left = append(b.left, b.refused...); len(b.left) == 0 {
		return nil
	}
	r.putBack(b.left)
	return b.err
}

// putBack queues outcomes before those that have come in meanwhile.
func (r *relay) putBack(items []*item) {
	var done, failed, released []*item
	for _, it := range items {
		switch it.outcome() {
		case outcomeDone:
			done = append(done, it)
		case outcomeFailed:
			failed = append(failed, it)
		case outcomeReleased:
			released = append(released, it)
		}
	}
	r.done, r.failed, r.released = append(done, r.done...), append(failed, r.failed...), append(released, r.released...)
}

// writeAside tries again what was set aside and is due.
func (r *relay) writeAside(last bool) {
	r.mu.Lock()
	items := r.aside.take(time.Now(), last)
	r.mu.Unlock()
	if len(items) == 0 {
		return
	}
	b := r.write(items)
	r.mu.Lock()
	defer r.unlock()
	if last {
		for _, it := range slices.Concat(b.left, b.refused) {
			r.forget(it)
		}
		return
	}
	r.setAside(b.left, b.err, false)
	r.setAside(b.refused, b.err, true)
}

// setAside lets the others go on without these, which are tried apart. A guess that the database refuses again is given up:
// its lease will end.
func (r *relay) setAside(items []*item, cause error, refused bool) {
	now := time.Now()
	for _, it := range items {
		r.written(it)
		r.suspectDone(it) // the lock of its row may last for long
		id, topic := it.id, it.delivery.Topic
		if refused && it.outcome() != outcomeDone && it.tries > 0 {
			r.forget(it)
			r.notes = append(r.notes, func() {
				r.cfg.Logger.Error("outbox: the database refuses to change a row: its event is tried again when its lease ends",
					"component", "outbox", "row_id", id.String(), "destination", topic, "err", errorText(cause))
			})
			continue
		}
		if r.aside.add(it, now, r.random()) {
			tries := it.tries
			r.notes = append(r.notes, func() {
				r.cfg.Logger.Warn("outbox: the outcome of an event cannot be written yet, others are: is its row locked for long?", "component", "outbox",
					"row_id", id.String(), "destination", topic, "failures", tries, "err", errorText(cause))
			})
		}
	}
}

// written ends that an outcome holds others up.
func (r *relay) written(it *item) {
	if it.tries > 0 { // it did not any more
		return
	}
	if it.outcome() == outcomeReleased {
		r.releasing--
	} else {
		r.unwritten--
	}
	r.work.Broadcast()
}

// write writes outcomes and finds out which of them cannot be: first all of a kind at once, then without the texts for people,
// then in smaller and smaller parts.
func (r *relay) write(items []*item) (b batchResult) {
	parts := map[outcomeKind][]*item{} // before anything is written: an item that is settled has no outcome any more
	for _, it := range items {
		parts[it.outcome()] = append(parts[it.outcome()], it)
	}
	for _, kind := range outcomeKinds {
		part := parts[kind]
		switch {
		case len(part) == 0:
		case b.away:
			b.left = append(b.left, part...)
		default:
			r.writeKind(kind, part, &b)
		}
	}
	return b
}

func (r *relay) writeKind(kind outcomeKind, items []*item, b *batchResult) {
	err := r.attempt(kind, items, true)
	texts := true
	if err != nil && !databaseAway(err) && hasTexts(items) {
		if err = r.attempt(kind, items, false); err == nil {
			r.cfg.Logger.Warn("outbox: error texts or receipts could not be stored", "component", "outbox", "rows", len(items))
		}
		texts = false
	}
	if err == nil {
		b.wrote = true
		return
	}
	parts := [][]*item{items}
	for refusals := 0; len(parts) > 0; {
		part := parts[0]
		parts = parts[1:]
		if refusals > 0 { // the whole has failed above
			if err = r.attempt(kind, part, texts); err == nil {
				b.wrote = true
				continue
			}
		}
		b.err = err
		refusals++
		switch b.away = databaseAway(err); {
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

func hasTexts(items []*item) bool {
	return slices.ContainsFunc(items, func(it *item) bool {
		return it.state == itemAcked && it.receipt != "" || it.state == itemFailed && it.failure.Message != ""
	})
}

// databaseAway reports whether an error is about the database and not about the rows.
func databaseAway(err error) bool {
	if isTimeout(err) || errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrBadConn) || DefaultClassifier(err) == ClassUnavailable {
		return true
	}
	return sqlerr.Away(err)
}

// attempt writes outcomes of one kind in one call and ends those that are written. Rows that other transactions hold are set aside.
func (r *relay) attempt(kind outcomeKind, items []*item, texts bool) error {
	slices.SortFunc(items, byID) // one lock order for all batches
	start := time.Now()
	ctx, cancel := context.WithTimeout(r.writeCtx, dbTimeout)
	defer cancel()
	changed, flags := 0, []bool(nil)
	var err error
	switch kind {
	case outcomeDone:
		done := make([]Done, len(items))
		for i, it := range items {
			done[i] = Done{ID: it.id}
			if texts {
				done[i].Receipt = it.receipt
			}
		}
		changed, err = r.repo.MarkDone(ctx, done, r.cfg.Retention.DeleteOnSuccess)
	case outcomeFailed:
		failures := make([]Failure, len(items))
		for i, it := range items {
			failures[i] = it.failure
			if !texts {
				failures[i].Message = ""
			}
		}
		flags, err = r.repo.MarkFailed(ctx, r.cfg.Node, failures)
	case outcomeReleased:
		changed, err = r.repo.Release(ctx, r.cfg.Node, r.claimRefs(items))
	}
	locked, _ := errors.AsType[*LockedError](err)
	if locked == nil {
		r.o.obs.Marked(len(items), time.Since(start), err)
		if err != nil {
			return err
		}
	}

	if r.writeFails > 0 { // before anybody hears that something is written
		r.db.succeeded()
	}
	r.mu.Lock()
	defer r.unlock()
	if locked != nil {
		var held []*item
		items, flags, held = apart(items, flags, locked.Rows)
		r.setAside(held, err, false)
		r.notes = append(r.notes, func() { r.o.obs.Marked(len(items), time.Since(start), nil) })
	}
	for _, it := range items {
		r.written(it)
	}
	switch kind {
	case outcomeDone:
		r.settleDone(items, changed)
	case outcomeFailed:
		r.settleFailed(items, flags)
	case outcomeReleased:
		r.settleReleased(items, changed)
	}
	return nil
}

// apart divides items, with their flags if there are any, from those of the given rows.
func apart(items []*item, flags []bool, rows []RowID) (others []*item, otherFlags []bool, of []*item) {
	is := make(map[RowID]bool, len(rows))
	for _, id := range rows {
		is[id] = true
	}
	for i, it := range items {
		if is[it.id] {
			of = append(of, it)
			continue
		}
		others = append(others, it)
		if i < len(flags) {
			otherFlags = append(otherFlags, flags[i])
		}
	}
	return others, otherFlags, of
}

// claimRefs names the claims of items.
func (r *relay) claimRefs(items []*item) []ClaimRef {
	r.mu.Lock()
	defer r.mu.Unlock()
	claims := make([]ClaimRef, len(items))
	for i, it := range items {
		claims[i] = ClaimRef{ID: it.id, ClaimNo: it.claimNo}
	}
	return claims
}
