package suite

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

func backlogCases() []repositoryCase {
	return []repositoryCase{
		{"of an empty table", func(f *fixture) {
			f.must(f.backlog(100) == core.Backlog{Limit: 100}, "backlog %+v", f.backlog(100))
		}},
		{"counts what is open, dead and blocked", backlogCounts},
		{"counts up to its limit", backlogLimit},
		{"says that there is more behind dead rows", backlogMore},
		{"names the age of the oldest", backlogAge},
		{"counts each type, by status", backlogOfTypes},
	}
}

func (f *fixture) backlog(limit int) core.Backlog {
	f.Helper()
	b, err := f.Repository.Backlog(f.Context(), limit)
	f.check(err)
	f.must(b.Limit == int64(limit), "limit %d, want %d", b.Limit, limit)
	return b
}

func (f *fixture) typeBacklog(limit int) []core.TypeBacklog {
	f.Helper()
	all, err := f.Repository.TypeBacklog(f.Context(), limit)
	f.check(err)
	return all
}

func backlogOfTypes(f *fixture) {
	f.must(len(f.typeBacklog(100)) == 0, "an empty table has types: %+v", f.typeBacklog(100))
	add := func(typ, key string) core.NewRow {
		row := newRow("topic", key)
		row.Event.Type = typ
		return row
	}
	f.addDead(add("paid", "k"))
	f.commit(add("paid", "k"), add("paid", ""), add("Paid", ""), add("sent", "l"), add("sent", "l"))
	retry, done := add("paid", ""), add("gone", "")
	f.commit(hot(retry)...)
	f.fail(nodeA, core.Failure{ClaimRef: hotRef(retry), Kind: core.FailRetry, Delay: time.Hour, Code: "c"})
	f.commit(hot(done)...)
	f.must(f.done(true, done.ID) == 1, "not done")
	want := []core.TypeBacklog{
		{Type: "paid", New: 2, Retry: 1, Dead: 1}, {Type: "sent", New: 2}, {Type: "Paid", New: 1},
	}
	f.must(slices.Equal(f.typeBacklog(100), want), "types %+v", f.typeBacklog(100))
	n := int64(0)
	for _, t := range f.typeBacklog(1) {
		n += t.New + t.Retry + t.Dead
	}
	// the one row of a key that is looked at may be dead
	f.must(n == 2 || n == 3, "with a limit of 1 row of each kind %d are counted: %+v", n, f.typeBacklog(1))
}

func backlogCounts(f *fixture) {
	f.addDead(newRow("topic", ""))
	for _, key := range []string{"k", "l"} {
		f.addDead(newRow("topic", key))
		f.commit(newRow("topic", key))
	}
	f.commitLeased(longLease, hot(newRow("topic", "m"))...)
	retry := newRow("topic", "")
	f.commit(hot(retry)...)
	f.fail(nodeA, core.Failure{
		ClaimRef: hotRef(retry), Kind: core.FailRetry,
		Delay: time.Hour, Code: "c",
	})
	done, discarded := newRow("topic", ""), newRow("topic", "")
	f.commit(done, discarded)
	f.done(false, done.ID)
	f.discard(adminOf(discarded.ID))
	b := f.backlog(100)
	f.must(b.Pending == 4 && b.Dead == 3 && b.BlockedKeys == 2, "backlog %+v", b)
}

func backlogLimit(f *fixture) {
	f.commit(newRows(5, "topic", "")...)
	for _, key := range []string{"k", "l", "m"} {
		f.addDead(newRow("topic", key))
	}
	b := f.backlog(2)
	f.must(b.Pending == 2 && b.Dead == 2 && b.BlockedKeys == 2, "backlog %+v", b)
	b = f.backlog(5)
	f.must(b.Pending == 5 && b.Dead == 3 && b.BlockedKeys == 3, "backlog %+v", b)
}

// backlogMore counts rows of which the first ones are dead. Exactly the examined rows are counted.
func backlogMore(f *fixture) {
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		f.addDead(newRow("topic", key))
		f.commit(newRow("topic", key))
	}
	b := f.backlog(11)
	f.must(b.Pending == 5 && b.Dead == 5 && !b.More, "backlog %+v of all rows", b)
	b = f.backlog(3)
	f.must(b.Pending == 1 && b.Dead == 3 && b.BlockedKeys == 3 && b.More, "backlog %+v of three rows of each kind", b)
}

func backlogAge(f *fixture) {
	f.addDead(newRow("topic", "")) // a dead row does not count for the age
	f.must(f.backlog(10).OldestAge == 0, "age %s of nothing pending", f.backlog(10).OldestAge)
	old := newRow("topic", "")
	start := time.Now()
	f.commit(old)
	f.eventually("the row is older", func() bool { return f.backlog(10).OldestAge >= 50*time.Millisecond })
	f.after(start, 50*time.Millisecond, "an age of 50 ms")
	f.must(f.backlog(10).OldestAge < time.Minute, "age %s", f.backlog(10).OldestAge)
	f.commit(newRow("topic", "k"))
	f.must(f.backlog(10).OldestAge >= 50*time.Millisecond, "the age is that of a younger row: %s",
		f.backlog(10).OldestAge)
}

func adminCases() []repositoryCase {
	return []repositoryCase{
		{"dead rows are listed page by page", listPages},
		{"dead rows are listed by topic, type and tenant", listFilters},
		{"redrive opens a dead row at its place", redriveInPlace},
		{"redrive touches dead rows only", redriveOthers},
		{"redrive appends where the key went on", redriveAppends},
		{"redrive of many appends each key in its order", redriveManyInOrder},
		{"a copy has the fields of its event", redriveFields},
		{"redrive of an unordered row where dead rows are skipped", redriveUnordered},
		{"discard ends dead and free rows", discardFree},
		{"discard of a leased row needs force", discardLeased},
		{"discard of a row whose lease ran out", discardExpired},
		{"discard opens the key", discardOpens},
		{"nothing to do", func(f *fixture) {
			f.must(f.redrive(adminOf()) == 0 && f.discard(adminOf()) == 0, "changed something")
			skip := adminOf()
			skip.SkipDead = true
			f.must(f.redrive(skip) == 0, "changed something")
			f.audited(0)
		}},
	}
}

// audited requires n audit rows.
func (f *fixture) audited(n int) {
	f.Helper()
	f.must(f.Audits(f) == n, "%d audit rows, want %d", f.Audits(f), n)
}

func listPages(f *fixture) {
	var want []core.RowID
	for i := range 7 {
		want = append(want, f.addDead(newRow("topic", []string{"", "k", "l"}[i%3])).ID)
	}
	slices.SortFunc(want, compareIDs)
	var got []core.RowID
	q := core.DeadQuery{Limit: 3}
	for range 4 {
		page, err := f.Repository.ListDead(f.Context(), q)
		f.check(err)
		f.must(len(page) <= 3, "%d rows, more than the limit", len(page))
		for _, d := range page {
			got = append(got, d.ID)
			q.After = d.ID
		}
	}
	f.must(slices.Equal(got, want), "listed %s, want %s", got, want)
	f.must(len(f.dead()) == 7, "without a limit %d rows are listed", len(f.dead()))
}

func listFilters(f *fixture) {
	add := func(topic, typ, tenant string) core.RowID {
		e := newRow(topic, "").Event
		e.Type, e.TenantID = typ, tenant
		return f.addDead(rowOf(e)).ID
	}
	a, b, c, d := add("t", "x", ""), add("t", "y", "acme"), add("u", "x", "acme"), add("T", "X", "ACME")
	probe := func(q core.DeadQuery, want ...core.RowID) {
		f.Helper()
		events, err := f.Repository.ListDead(f.Context(), q)
		f.check(err)
		var got []core.RowID
		for _, e := range events {
			got = append(got, e.ID)
		}
		f.must(sameSet(got, want), "%+v lists %s, want %s", q, got, want)
	}
	probe(core.DeadQuery{}, a, b, c, d)
	probe(core.DeadQuery{Topic: "t"}, a, b)
	probe(core.DeadQuery{Type: "x"}, a, c)
	probe(core.DeadQuery{TenantID: "acme"}, b, c)
	probe(core.DeadQuery{Topic: "t", Type: "x"}, a)
	probe(core.DeadQuery{Topic: "u", TenantID: "acme", Type: "y"})
	probe(core.DeadQuery{Topic: "' OR '1'='1"})
}

func redriveInPlace(f *fixture) {
	for _, key := range []string{"", "k"} {
		row, follower := newRow("topic", key), newRow("topic", "k")
		audits := f.Audits(f)
		f.addDead(row)
		f.commit(follower)
		f.must(f.redrive(adminOf(row.ID)) == 1, "not redriven")
		f.audited(audits + 1)
		f.must(len(f.dead()) == 0, "still listed as dead")
		req := request(nodeB)
		got := f.claimAny(req)
		i := slices.IndexFunc(got, func(c core.Claimed) bool { return c.ID == row.ID })
		f.must(i == 0, "claimed %s, want the redriven row %s first", idsOf(got), row.ID)
		f.must(got[0].Attempts == 0 && got[0].LostClaims == 0,
			"claimed %+v, want fresh attempts", got[0])
		f.changesNothing(nodeA, hotRef(row))
		f.must(f.redrive(adminOf(row.ID)) == 0, "redriven twice")
		f.done(false, row.ID, follower.ID)
	}
}

func redriveOthers(f *fixture) {
	rows := newRows(4, "topic", "")
	f.commit(rows...)
	own := f.claim(request(nodeA))[0].ClaimNo
	f.fail(nodeA, core.Failure{
		ClaimRef: core.ClaimRef{ID: rows[1].ID, ClaimNo: own}, Kind: core.FailRetry,
		Delay: time.Hour, Code: "c",
	})
	f.done(false, rows[2].ID)
	force := adminOf(rows[3].ID)
	force.Force = true
	f.discard(force)
	ids := append(newIDs(rows), newRow("topic", "").ID)
	for _, skip := range []bool{false, true} {
		req := adminOf(ids...)
		req.SkipDead = skip
		f.must(f.redrive(req) == 0, "redrove a row that is not dead")
	}
	f.audited(1) // the audit row of the discard
	f.none("nothing was dead")
	dead := f.addDead(newRow("topic", ""))
	f.must(f.redrive(adminOf(append(ids, dead.ID, dead.ID)...)) == 1, "want the dead row redriven, once")
	f.audited(2)
}

// redriveManyInOrder redrives more rows than one transaction changes. Their ids are in no order, as
// if they were not made of the time.
func redriveManyInOrder(f *fixture) {
	tx := f.begin()
	postgres := tx.Dialect() == core.Postgres
	f.check(tx.Rollback())
	// It takes seconds, and PostgreSQL has many ways to be opened.
	if postgres && testing.Short() {
		return
	}
	const many = 503
	var rows []core.NewRow
	var want []string
	var failures []core.Failure
	for range many {
		e := newRow("topic", "k").Event
		e.ID = randomEventID()
		row := hot(rowOf(e))[0]
		rows, want = append(rows, row), append(want, e.ID)
		failures = append(failures, core.Failure{ClaimRef: hotRef(row), Kind: core.FailDead, Code: "c", SkipDead: true})
	}
	f.commitLeased(longLease, rows...)
	for _, ok := range f.fail(nodeA, failures...) {
		f.must(ok, "not dead")
	}
	req := adminOf(newIDs(rows)...)
	req.SkipDead = true
	f.must(f.redrive(req) == many, "not redriven")
	s, err := f.Store.ScanEvents(f.Context(), ops.Scan{
		KeyID: rows[0].KeyID, Limit: 2 * many, Look: 2 * many,
	})
	f.check(err)
	var got []string
	for _, e := range s.Events {
		got = append(got, e.EventID)
	}
	f.must(slices.Equal(got, want), "the key has its %d events in another order", len(got))
}

// randomEventID is a UUID of version 4.
func randomEventID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func redriveAppends(f *fixture) {
	first, second := newRow("topic", "k"), newRow("topic", "k")
	first.Event.Headers = map[string]string{"h": "v"}
	f.addDead(first)
	last := f.commit(second)[0]
	firstSeq := last.KeySeq - 1
	req := adminOf(first.ID)
	req.SkipDead = true
	f.must(f.redrive(req) == 1, "not redriven")
	f.audited(1)
	f.must(f.redrive(req) == 0, "redriven twice")
	f.audited(1)
	f.must(len(f.dead()) == 0 && f.done(false, first.ID) == 0, "the old row is not discarded")
	claim := request(nodeA)
	claim.SkipDead = true
	got := f.heads(claim)
	f.must(len(got) == 2 && got[0].ID == second.ID, "claimed %s, want two rows, the second event first", idsOf(got))
	again := got[1]
	f.must(again.KeySeq == last.KeySeq+1 && again.KeyID == first.KeyID && again.ID != first.ID,
		"appended as %+v after %+v", again, last)
	f.must(again.Attempts == 0 && again.LostClaims == 0, "appended as %+v", again)
	// The header of the copy has the first number of its event, and a later copy has the same.
	wantCopy := func(got core.Claimed) {
		want := first.Event
		want.Headers = map[string]string{"h": "v", core.HeaderFirstKeySeq: strconv.FormatInt(firstSeq, 10)}
		f.must(diffEvent(got.Event, want) == "", "appended with %s", diffEvent(got.Event, want))
	}
	wantCopy(again)
	from, to, err := core.RowIDRange(first.Event.ID)
	f.check(err)
	f.must(bytes.Compare(again.ID[:], from[:]) >= 0 && bytes.Compare(again.ID[:], to[:]) <= 0,
		"row id %s is not one of the event", again.ID)
	next := newRow("topic", "k")
	f.chain([]core.NewRow{next}, f.commit(next), &core.Inserted{KeySeq: again.KeySeq}, again.ID)
	f.fail(nodeA, core.Failure{ClaimRef: ref(again), Kind: core.FailDead, Code: "c"})
	req = adminOf(again.ID)
	req.SkipDead = true
	f.must(f.redrive(req) == 1, "not redriven again")
	f.done(false, second.ID, next.ID)
	got = f.heads(claim)
	f.must(len(got) == 1, "claimed %s, want the copy of the copy", idsOf(got))
	wantCopy(got[0])
}

func redriveUnordered(f *fixture) {
	row := f.addDead(newRow("topic", ""))
	req := adminOf(row.ID)
	req.SkipDead = true
	f.must(f.redrive(req) == 1 && len(f.dead()) == 0, "not redriven")
	f.audited(1)
	got := f.claim(request(nodeB))
	f.must(len(got) == 1 && got[0].Event.ID == row.Event.ID && got[0].Attempts == 0 && got[0].LostClaims == 0,
		"claimed %+v", got)
}

func discardFree(f *fixture) {
	cold, retry, dead, done := newRow("topic", ""), newRow("topic", ""), newRow("topic", "k"), newRow("topic", "")
	f.commit(cold, done)
	f.commit(hot(retry)...)
	f.fail(nodeA, core.Failure{
		ClaimRef: hotRef(retry), Kind: core.FailRetry,
		Delay: time.Hour, Code: "c",
	})
	f.addDead(dead)
	f.done(false, done.ID)
	req := adminOf(cold.ID, retry.ID, dead.ID, done.ID, newRow("topic", "").ID, cold.ID)
	f.must(f.discard(req) == 3, "want three rows discarded")
	f.audited(3)
	f.must(f.discard(req) == 0, "discarded twice")
	f.audited(3)
	f.none("discarded")
	f.must(f.backlog(10) == core.Backlog{Limit: 10}, "backlog %+v", f.backlog(10))
	for _, n := range []core.NewRow{cold, retry, dead} {
		f.must(f.done(false, n.ID) == 0, "a discarded row is done")
	}
}

func discardLeased(f *fixture) {
	for _, key := range []string{"", "k"} {
		row := newRow("topic", key)
		audits := f.Audits(f)
		f.commit(hot(row)...)
		own := hotRef(row)
		f.must(f.discard(adminOf(row.ID)) == 0, "discarded a leased row")
		f.audited(audits)
		f.must(f.renew(nodeA, longLease, own)[0], "the refused discard touched the claim")
		req := adminOf(row.ID)
		req.Force = true
		f.must(f.discard(req) == 1, "force did not discard")
		f.audited(audits + 1)
		f.changesNothing(nodeA, own)
		f.must(f.done(false, row.ID) == 0, "a late acknowledgement changed a discarded row")
		f.none("discarded")
	}
}

func discardExpired(f *fixture) {
	row := newRow("topic", "k")
	f.commitLeased(shortLease, hot(row)...)
	f.eventually("the lease ends", func() bool { return f.discard(adminOf(row.ID)) == 1 })
	f.audited(1)
}

func discardOpens(f *fixture) {
	rows := newRows(2, "topic", "k")
	f.addDead(rows[0])
	f.commit(rows[1])
	f.none("behind a dead row")
	f.must(f.discard(adminOf(rows[0].ID)) == 1, "not discarded")
	f.wantIDs(f.heads(request(nodeA)), rows[1])
}
