package suite

import (
	"context"
	"errors"

	"github.com/ormoutbox/ormoutbox/core"
)

func duplicateCases() []repositoryCase {
	return []repositoryCase{
		{"of a committed row", func(f *fixture) { f.refused(func(n core.NewRow) { f.commit(n) }) }},
		{"of a row that is done", func(f *fixture) {
			f.refused(func(n core.NewRow) { f.commit(n); f.done(false, n.ID) })
		}},
		{"of a discarded row", func(f *fixture) {
			f.refused(func(n core.NewRow) { f.commit(n); f.discard(adminOf(n.ID)) })
		}},
		{"alone, and the transaction goes on", duplicateAlone},
		{"within one transaction", duplicateInTransaction},
		{"within one call", duplicateInCall},
		{"under another key", duplicateUnderOtherKey},
		{"for another topic is none", duplicateForOtherTopic},
		{"after a deletion is none", duplicateAfterDeletion},
		{"that another transaction is about to commit", duplicateRace},
	}
}

// wantDuplicate requires that the insert is refused.
func (f *fixture) wantDuplicate(tx core.Tx, rows ...core.NewRow) error {
	f.Helper()
	_, err := f.Repository.Insert(f.Context(), tx, core.InsertRequest{
		Node: nodeA, ClaimNo: hotNo, Lease: longLease,
		Rows: rows,
	})
	f.must(errors.Is(err, core.ErrDuplicateEvent), "insert of a duplicate: %v", err)
	return err
}

// refused makes a row exist with add, and tries to insert it again together with rows of two keys.
// It requires that none of them is stored and that the numbers of the keys have no gap. The insert
// runs in a savepoint, and also without one if the database keeps the transaction usable.
func (f *fixture) refused(add func(core.NewRow)) {
	twin := newRow("topic", "k")
	add(twin)
	before := f.commit(newRow("topic", "k"), newRow("topic", "other"))
	last := before[0]

	tx := f.begin()
	own := newRow("topic", "k")
	place := f.insertIn(tx, own)[0]
	f.must(place.KeySeq == last.KeySeq+1, "key_seq %d after %d", place.KeySeq, last.KeySeq)
	f.exec(tx, "SAVEPOINT a")
	err := f.wantDuplicate(tx, newRow("topic", "k"), newRow("topic", "other"), newRow("topic", "fresh"),
		newRow("topic", ""), twin)
	if f.AbortsOnError || errors.Is(err, core.ErrTxAborted) {
		f.exec(tx, "ROLLBACK TO SAVEPOINT a")
	}
	if tx.Err() != nil {
		f.check(tx.Rollback())
		f.goesOn(f.commit(newRow("topic", "k"), newRow("topic", "other"), newRow("topic", "fresh")), last, before[1])
		return
	}
	after := f.insertIn(tx, newRow("topic", "k"), newRow("topic", "other"), newRow("topic", "fresh"))
	f.must(after[0].Prev == own.ID, "the refused rows have changed the key: %+v, want prev %s", after[0], own.ID)
	f.goesOn(after, place, before[1])
	f.check(tx.Commit())
	b, err := f.Repository.Backlog(f.Context(), 1000)
	f.check(err)
	f.must(b.Pending <= 7, "%d pending rows: the refused rows stayed", b.Pending)
}

// goesOn requires that keys k and other continue after their last places and that key fresh is
// opened.
func (f *fixture) goesOn(places []core.Inserted, k, other core.Inserted) {
	f.Helper()
	f.must(places[0].KeySeq == k.KeySeq+1 && !places[0].Opened, "key k: %+v after %+v", places[0], k)
	f.must(places[1].KeySeq == other.KeySeq+1 && !places[1].Opened, "key other: %+v after %+v", places[1], other)
	f.must(places[2].Opened, "key fresh: %+v, want it opened", places[2])
}

// duplicateAlone requires that a refused insert of a single row leaves nothing in the key rows:
// neither of a key in use, nor of a new one.
func duplicateAlone(f *fixture) {
	row := newRow("topic", "k")
	first := f.commit(row)[0]
	twin := row.Event
	twin.Key = "fresh"
	for _, refused := range []core.NewRow{row, rowOf(twin)} {
		tx := f.begin()
		f.exec(tx, "SAVEPOINT a")
		err := f.wantDuplicate(tx, refused)
		if f.AbortsOnError || errors.Is(err, core.ErrTxAborted) {
			f.exec(tx, "ROLLBACK TO SAVEPOINT a")
		}
		if tx.Err() != nil {
			f.check(tx.Rollback())
			tx = f.begin()
		}
		places := f.insertIn(tx, newRow("topic", "k"), newRow("topic", "fresh"))
		next := places[0]
		f.must(next.KeySeq == first.KeySeq+1 && next.Prev == row.ID, "key k: %+v after %+v", next, first)
		f.must(places[1].Opened, "key fresh: %+v, want it opened", places[1])
		f.check(tx.Rollback())
	}
}

func duplicateInTransaction(f *fixture) {
	row := newRow("topic", "k")
	tx := f.begin()
	f.insertIn(tx, row)
	_ = f.wantDuplicate(tx, row)
	f.check(tx.Rollback())
	f.none("rolled back")
}

func duplicateInCall(f *fixture) {
	for _, row := range []core.NewRow{newRow("topic", "k"), newRow("topic", "")} {
		tx := f.begin()
		_ = f.wantDuplicate(tx, newRow("topic", "k"), row, row)
		f.check(tx.Rollback())
	}
	f.none("rolled back")
}

func duplicateUnderOtherKey(f *fixture) {
	row := newRow("topic", "k")
	f.commit(row)
	twin := row.Event
	twin.Key = "another"
	tx := f.begin()
	_ = f.wantDuplicate(tx, rowOf(twin))
	f.check(tx.Rollback())
	f.wantIDs(f.heads(request(nodeA)), row)
}

func duplicateForOtherTopic(f *fixture) {
	row := newRow("topic", "k")
	twin := row.Event
	twin.Topic = "another"
	f.commit(row, rowOf(twin))
	f.wantSet(f.heads(request(nodeA)), row, rowOf(twin))
}

func duplicateAfterDeletion(f *fixture) {
	row := newRow("topic", "k")
	first := f.commit(row)[0]
	f.must(f.done(true, row.ID) == 1, "not deleted")
	second := f.commit(row)[0]
	f.must(second.KeySeq == first.KeySeq+1 && second.Prev == row.ID && !second.Opened, "second life %+v after %+v",
		second, first)
	f.wantIDs(f.heads(request(nodeA)), row)
}

// duplicateRace inserts one row in two transactions at once. Exactly one transaction commits it.
func duplicateRace(f *fixture) {
	for _, key := range []string{"", "k"} {
		row := newRow("topic", key)
		tx := f.begin()
		f.insertIn(tx, row)
		result := make(chan error, 1)
		started := make(chan struct{})
		go func() {
			close(started)
			_, err := f.tryCommit(core.InsertRequest{
				Node: nodeA, ClaimNo: hotNo, Lease: longLease, Rows: []core.NewRow{row},
			})
			result <- err
		}()
		<-started
		f.check(tx.Commit())
		f.within(func(ctx context.Context) error {
			select {
			case err := <-result:
				f.must(errors.Is(err, core.ErrDuplicateEvent), "the second insert: %v", err)
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		f.must(f.one(nodeA).ID == row.ID, "another row")
	}
}
