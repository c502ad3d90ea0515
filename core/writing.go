package core

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/failgroup"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// maxRefusals bounds how many statements of one batch fail before the rest of the batch waits for
// the next try.
const maxRefusals = 64

// batchResult is the result of writing a batch.
type batchResult struct {
	wrote   bool    // some marks are written
	left    []*item // not written; they may be later, as a whole
	refused []*item // refused one by one
	err     error   // the reason
	away    bool    // the database is away: no other mark needs to be tried
}

// writeBatch writes the waiting marks. It returns an error if some of them must be tried again and
// hold up later ones.
func (r *relay) writeBatch(last bool) error {
	r.mu.Lock()
	items := r.writer.marks.take()
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
	if b.wrote { // the marks are refused, and the database works
		r.postpone(b.refused, b.err, true)
		b.refused = nil
	}
	if b.left = append(b.left, b.refused...); len(b.left) == 0 {
		return nil
	}
	r.writer.marks.putBack(b.left)
	return b.err
}

// writePostponed tries the postponed marks that are due again.
func (r *relay) writePostponed(last bool) {
	r.mu.Lock()
	items := r.writer.marks.later.take(time.Now(), last)
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
	r.postpone(b.left, b.err, false)
	r.postpone(b.refused, b.err, true)
}

// postpone lets the other marks go on without these, which are tried apart. A guess that the
// database refuses twice is abandoned: its lease will end.
func (r *relay) postpone(items []*item, cause error, refused bool) {
	now := time.Now()
	for _, it := range items {
		r.written(it)
		r.crew.suspectDone(it) // the lock of its row may last long
		id, topic := it.id, it.delivery.Topic
		if refused && it.markKind() != markDone && it.mark.tries > 0 {
			r.forget(it)
			r.notices.add(func() {
				r.cfg.Logger.Error("outbox: the database refuses to change a row: its event is tried again when its "+
					"lease ends",
					"component", "outbox", "row_id", id.String(), "destination", topic, "err", errorText(cause))
			})
			continue
		}
		if r.writer.marks.later.add(it, now, r.random()) {
			tries := it.mark.tries
			r.notices.add(func() {
				r.cfg.Logger.Warn("outbox: the mark of an event cannot be written yet, others can: is its row "+
					"locked for long?", "component", "outbox",
					"row_id", id.String(), "destination", topic, "failures", tries, "err", errorText(cause))
			})
		}
	}
}

// written notes that a mark no longer holds publishing back.
func (r *relay) written(it *item) {
	if r.writer.marks.ended(it) {
		r.crew.work.Broadcast()
	}
}

// write writes marks and finds out which of them cannot be written. It tries all marks of a kind at
// once, then without the texts for people, then in smaller and smaller parts.
func (r *relay) write(items []*item) (b batchResult) {
	// computed before anything is written: a gone item has no mark any more
	parts := map[markKind][]*item{}
	for _, it := range items {
		parts[it.markKind()] = append(parts[it.markKind()], it)
	}
	for _, kind := range markKinds {
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

func (r *relay) writeKind(kind markKind, items []*item, b *batchResult) {
	err := r.attempt(kind, items, true)
	texts := true
	if err != nil && !databaseAway(err) && hasTexts(items) {
		if err = r.attempt(kind, items, false); err == nil {
			r.cfg.Logger.Warn("outbox: error texts or receipts could not be saved", "component", "outbox", "rows",
				len(items))
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
		if refusals > 0 { // the whole has already failed above
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
		return it.state == itemAcked && it.mark.receipt != "" || it.state == itemFailed && it.mark.failure.Message != ""
	})
}

// databaseAway reports whether an error concerns the database and not the rows.
func databaseAway(err error) bool {
	if isTimeout(err) || errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrBadConn) ||
		DefaultClassifier(err) == ClassUnavailable {
		return true
	}
	return sqlerr.Away(err)
}

// attempt writes marks of one kind in one call and ends their items. Rows that other transactions
// hold are postponed.
func (r *relay) attempt(kind markKind, items []*item, texts bool) error {
	slices.SortFunc(items, byID) // one lock order for all batches
	start := time.Now()
	ctx, cancel := context.WithTimeout(r.life.writes, dbTimeout)
	defer cancel()
	changed, flags := 0, []bool(nil)
	var err error
	switch kind {
	case markDone:
		done := make([]Done, len(items))
		for i, it := range items {
			done[i] = Done{ID: it.id}
			if texts {
				done[i].Receipt = it.mark.receipt
			}
		}
		changed, err = r.repo().MarkDone(ctx, done, r.cfg.Retention.DeleteOnSuccess)
	case markFailed:
		failures := make([]Failure, len(items))
		for i, it := range items {
			failures[i] = it.mark.failure
			f := &failures[i]
			f.Group = failgroup.Of(f.Code, it.delivery.Topic, it.delivery.Type, f.Message)
			if !texts {
				failures[i].Message = ""
			}
		}
		flags, err = r.repo().MarkFailed(ctx, r.cfg.Node, failures)
	case markReleased:
		changed, err = r.repo().Release(ctx, r.cfg.Node, r.claimRefs(items))
	}
	locked, _ := errors.AsType[*LockedError](err)
	if locked == nil {
		r.o.obs.Marked(len(items), time.Since(start), err)
		if err != nil {
			return err
		}
	}

	if r.writer.failures > 0 { // before any caller hears that a mark is written
		r.db.succeeded()
	}
	r.mu.Lock()
	defer r.unlock()
	if locked != nil {
		var held []*item
		items, flags, held = apart(items, flags, locked.Rows)
		r.postpone(held, err, false)
		r.notices.add(func() { r.o.obs.Marked(len(items), time.Since(start), nil) })
	}
	for _, it := range items {
		r.written(it)
	}
	switch kind {
	case markDone:
		r.doneWritten(items, changed)
	case markFailed:
		r.failuresWritten(items, flags)
	case markReleased:
		r.releasesWritten(items, changed)
	}
	return nil
}

// apart separates items, with their flags if there are any, from the items of the given rows.
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
		claims[i] = ClaimRef{ID: it.id, ClaimNo: it.lease.claimNo}
	}
	return claims
}
