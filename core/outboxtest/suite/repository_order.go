package suite

import (
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
)

func orderCases() []repositoryCase {
	return []repositoryCase{
		{"numbers are dense and name what was before", laneDense},
		{"one call with several rows of several keys", laneBatch},
		{"an unordered row has no place", laneUnordered},
		{"keys are told apart by tenant, topic and key", laneDistinct},
		{"a rolled back transaction leaves the key as it was", laneRollback},
		{"a rolled back savepoint leaves the key as it was", laneSavepoint},
		{"a rolled back savepoint leaves a new key unopened", laneSavepointOpening},
		{"a released savepoint keeps the key", laneRelease},
		{"the row before is named whatever became of it", lanePrev},
		{"a second producer waits for the first", laneWaits},
		{"a second producer opens the key that the first did not", laneWaitsForRollback},
	}
}

// chain requires that places follow each other in one key. prev and prevID are the place and the id
// of the row before the first one. If prev is nil, the first row opens the key.
func (f *fixture) chain(rows []core.NewRow, places []core.Inserted, prev *core.Inserted, prevID core.RowID) {
	f.Helper()
	for i, p := range places {
		switch {
		case i == 0 && prev == nil:
			f.must(p.Opened && p.Prev.IsZero() && p.KeySeq > 0, "first place %+v, want an opened key", p)
		case i == 0:
			f.must(!p.Opened && p.Prev == prevID && p.KeySeq == prev.KeySeq+1, "place %+v, want it after %s at %d", p,
				prevID, prev.KeySeq)
		default:
			f.must(!p.Opened && p.Prev == rows[i-1].ID && p.KeySeq == places[i-1].KeySeq+1,
				"place %d: %+v, want it after %s at %d",
				i, p, rows[i-1].ID, places[i-1].KeySeq)
		}
	}
}

func laneDense(f *fixture) {
	rows := newRows(5, "topic", "k")
	var places []core.Inserted
	for _, r := range rows {
		places = append(places, f.commit(r)...)
	}
	f.chain(rows, places, nil, core.RowID{})
	f.wantIDs(f.heads(request(nodeA)), rows...)
}

func laneBatch(f *fixture) {
	lanes := map[string][]int{} // indexes of the rows of a key
	var rows []core.NewRow
	for i := range 60 { // so that keys and rows sort differently from the order of the call
		key := fmt.Sprint("key", i*7%5)
		lanes[key] = append(lanes[key], len(rows))
		rows = append(rows, newRow("topic", key))
	}
	for range 2 { // in the second call the keys exist
		before := f.commit(newRow("topic", "key0"))[0]
		places := f.commit(rows...)
		for key, indexes := range lanes {
			own := make([]core.NewRow, 0, len(indexes))
			at := make([]core.Inserted, 0, len(indexes))
			for _, i := range indexes {
				own, at = append(own, rows[i]), append(at, places[i])
			}
			f.chain(own[1:], at[1:], &at[0], own[0].ID)
			f.must(key != "key0" || at[0].KeySeq == before.KeySeq+1, "key0 goes on at %+v after %+v", at[0],
				before)
		}
		for i, r := range rows {
			rows[i] = newRow("topic", r.Event.Key)
		}
	}
}

func laneUnordered(f *fixture) {
	keyed := newRow("topic", "k")
	keyed.KeyID, keyed.Event.Unordered = core.KeyID{}, true
	places := f.commit(newRow("topic", ""), keyed, newRow("topic", "k"))
	f.must(places[0] == core.Inserted{} && places[1] == core.Inserted{}, "unordered rows have places: %+v", places[:2])
	f.must(places[2].Opened, "an unordered row of the same key opened it: %+v", places[2])
	f.must(len(f.claim(request(nodeA))) == 2, "want two unordered rows")
}

func laneDistinct(f *fixture) {
	e := func(tenant, topic, key string) core.NewRow {
		n := newRow(topic, key).Event
		n.TenantID = tenant
		return rowOf(n)
	}
	rows := []core.NewRow{
		e("", "t", "k"), e("x", "t", "k"), e("", "u", "k"), e("", "t", "l"), e("", "tk", "k"), e("xt", "t", "k"),
		e("x", "tt", "k"), e("", "t", "tk"),
	}
	for _, p := range f.commit(rows...) {
		f.must(p.Opened, "two keys share a key id: %+v", p)
	}
	f.wantSet(f.heads(request(nodeA)), rows...)
}

func laneRollback(f *fixture) {
	first := newRow("topic", "k")
	place := f.commit(first)
	tx := f.begin()
	f.insertIn(tx, newRows(3, "topic", "k")...)
	f.check(tx.Rollback())
	next := newRow("topic", "k")
	f.chain([]core.NewRow{next}, f.commit(next), &place[0], first.ID)
}

func laneSavepoint(f *fixture) {
	a, lost, c := newRow("topic", "k"), newRows(2, "topic", "k"), newRow("topic", "k")
	tx := f.begin()
	first := f.insertIn(tx, a)
	f.exec(tx, "SAVEPOINT s")
	f.insertIn(tx, lost...)
	f.insertIn(tx, newRow("topic", ""))
	f.exec(tx, "ROLLBACK TO SAVEPOINT s")
	f.chain([]core.NewRow{c}, f.insertIn(tx, c), &first[0], a.ID)
	f.check(tx.Commit())
	f.wantIDs(f.claimAny(request(nodeA)), a, c)
}

func laneSavepointOpening(f *fixture) {
	row := newRow("topic", "k")
	tx := f.begin()
	f.exec(tx, "SAVEPOINT s")
	f.insertIn(tx, newRow("topic", "k"))
	f.exec(tx, "ROLLBACK TO SAVEPOINT s")
	f.chain([]core.NewRow{row}, f.insertIn(tx, row), nil, core.RowID{})
	f.check(tx.Commit())
	f.wantIDs(f.claimAny(request(nodeA)), row)
}

func laneRelease(f *fixture) {
	rows := newRows(3, "topic", "k")
	tx := f.begin()
	f.exec(tx, "SAVEPOINT s")
	places := f.insertIn(tx, rows[0])
	f.exec(tx, "SAVEPOINT deeper")
	places = append(places, f.insertIn(tx, rows[1])...)
	f.exec(tx, "RELEASE SAVEPOINT deeper")
	f.exec(tx, "RELEASE SAVEPOINT s")
	places = append(places, f.insertIn(tx, rows[2])...)
	f.check(tx.Commit())
	f.chain(rows, places, nil, core.RowID{})
	f.wantIDs(f.heads(request(nodeA)), rows...)
}

func lanePrev(f *fixture) {
	for name, end := range map[string]func(core.NewRow){
		"done":      func(n core.NewRow) { f.done(false, n.ID) },
		"deleted":   func(n core.NewRow) { f.done(true, n.ID) },
		"discarded": func(n core.NewRow) { f.discard(adminOf(n.ID)) },
	} {
		first, next := newRow("topic", name), newRow("topic", name)
		place := f.commit(first)
		end(first)
		f.chain([]core.NewRow{next}, f.commit(next), &place[0], first.ID)
	}
}

// waitingProducer starts a second transaction for the key while tx holds the key. The returned
// function waits for the result of the transaction.
func (f *fixture) waitingProducer(row core.NewRow) (wait func() core.Inserted) {
	type result struct {
		places []core.Inserted
		err    error
	}
	done, started := make(chan result, 1), make(chan struct{})
	go func() {
		close(started)
		places, err := f.tryCommit(core.InsertRequest{
			Node: nodeA, ClaimNo: hotNo, Lease: longLease, Rows: []core.NewRow{row},
		})
		done <- result{places, err}
	}()
	<-started
	return func() core.Inserted {
		f.Helper()
		select {
		case r := <-done:
			f.check(r.err)
			return r.places[0]
		case <-f.Context().Done():
			f.Fatal("the second producer still waits")
		}
		return core.Inserted{}
	}
}

func laneWaits(f *fixture) {
	for range 5 {
		rows := newRows(2, "topic", core.NewEventID())
		tx := f.begin()
		first := f.insertIn(tx, rows[0])
		wait := f.waitingProducer(rows[1])
		f.check(tx.Commit())
		f.chain(rows[1:], []core.Inserted{wait()}, &first[0], rows[0].ID)
	}
}

func laneWaitsForRollback(f *fixture) {
	for range 5 {
		rows := newRows(2, "topic", core.NewEventID())
		tx := f.begin()
		f.insertIn(tx, rows[0])
		wait := f.waitingProducer(rows[1])
		f.check(tx.Rollback())
		f.chain(rows[1:], []core.Inserted{wait()}, nil, core.RowID{})
	}
}
