package suite

import (
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func markDoneCases() []repositoryCase {
	return []repositoryCase{
		{"of a new row by anybody", func(f *fixture) { f.markDone(func(n core.NewRow) { f.commit(n) }) }},
		{"of a leased row by anybody", func(f *fixture) { f.markDone(func(n core.NewRow) { f.commit(hot(n)...) }) }},
		{"of a row that waits for a retry", func(f *fixture) {
			f.markDone(func(n core.NewRow) {
				f.commit(hot(n)...)
				f.fail(nodeA, core.Failure{
					ClaimRef: hotRef(n), Kind: core.FailRetry,
					Delay: time.Hour, Code: "c",
				})
			})
		}},
		{"of a dead row", func(f *fixture) { f.markDone(func(n core.NewRow) { f.addDead(n) }) }},
		{"of a discarded row is late", markDoneDiscarded},
		{"with a receipt", markDoneReceipt},
		{"of many rows, some of them twice or unknown", markDoneMany},
		{"of nothing", func(f *fixture) {
			f.must(f.done(false) == 0 && f.done(true) == 0, "changed something")
			f.must(f.done(false, newRow("topic", "").ID) == 0, "changed a row that does not exist")
		}},
	}
}

// markDone prepares rows and requires that MarkDone ends them, kept or deleted. Later calls must
// not change them.
func (f *fixture) markDone(prepare func(core.NewRow)) {
	for _, key := range []string{"", "k"} {
		for _, deleteRows := range []bool{false, true} {
			row := newRow("topic", key)
			prepare(row)
			f.must(f.done(deleteRows, row.ID) == 1, "MarkDone changed nothing")
			f.must(f.done(deleteRows, row.ID) == 0, "MarkDone changed a row twice")
			f.staysEnded(row)
		}
	}
}

// staysEnded requires that no call makes the row open again.
func (f *fixture) staysEnded(row core.NewRow) {
	f.Helper()
	for _, claim := range []int64{0, hotNo, lastClaimNo.Load()} {
		c := core.ClaimRef{ID: row.ID, ClaimNo: claim}
		for _, kind := range []core.FailureKind{core.FailRetry, core.FailDead, core.FailUnavailable} {
			f.must(!f.fail(nodeA, core.Failure{ClaimRef: c, Kind: kind, Code: "c"})[0],
				"a guess of kind %d changed an ended row", kind)
		}
		f.must(!f.renew(nodeA, longLease, c)[0], "an ended row was renewed")
		f.must(f.release(nodeA, c) == 0, "an ended row was released")
	}
	force := adminOf(row.ID)
	force.Force = true
	f.must(f.redrive(adminOf(row.ID)) == 0 && f.discard(force) == 0, "an ended row was redriven or discarded")
	f.none("ended")
	f.must(len(f.dead()) == 0, "an ended row is listed as dead")
}

func markDoneDiscarded(f *fixture) {
	row := newRow("topic", "")
	f.commit(row)
	f.must(f.discard(adminOf(row.ID)) == 1, "not discarded")
	f.must(f.done(false, row.ID) == 0 && f.done(true, row.ID) == 0, "a late acknowledgement changed a discarded row")
	tx := f.begin()
	_ = f.wantDuplicate(tx, row) // the row was not deleted either
}

func markDoneReceipt(f *fixture) {
	rows := newRows(2, "topic", "")
	f.commit(rows...)
	changed, err := f.Repository.MarkDone(f.Context(), []core.Done{
		{ID: rows[0].ID, Receipt: "orders/3@1042"},
		{ID: rows[1].ID, Receipt: strings.Repeat("é", 127)},
	}, false)
	f.check(err)
	f.must(changed == 2, "%d rows changed", changed)
}

func markDoneMany(f *fixture) {
	rows := newRows(700, "topic", "")
	f.commit(rows...)
	ids := newIDs(rows)
	ids = append(ids, ids[:50]...)
	for range 50 {
		ids = append(ids, newRow("topic", "").ID)
	}
	f.must(f.done(false, ids...) == len(rows), "want each row counted once")
	f.none("all are done")
}
