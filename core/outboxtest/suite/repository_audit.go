package suite

import (
	"errors"
	"maps"
	"math"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func auditCases() []repositoryCase {
	return []repositoryCase{
		{"changes by people are listed, the newest first", auditListed},
		{"changes by people are counted by action", auditCounted},
		{"a reset of the keys is listed with its actor", resetAudited},
	}
}

func (f *fixture) audit(q core.AuditQuery) []core.AuditRecord {
	f.Helper()
	records, err := f.Repository.ListAudit(f.Context(), q)
	f.check(err)
	return records
}

func auditListed(f *fixture) {
	f.must(len(f.audit(core.AuditQuery{Limit: 10})) == 0, "a new table has audit rows")
	dead, overtaken, free := f.addDead(newRow("topic", "")), f.addDead(newRow("topic", "k")), newRow("other", "")
	f.commit(free)
	req := adminOf(dead.ID)
	req.Actor, req.Reason = "ann \u00e9", "schema registered"
	f.must(f.redrive(req) == 1, "redrove nothing")
	skip := adminOf(overtaken.ID)
	skip.SkipDead = true
	f.must(f.redrive(skip) == 1, "redrove nothing")
	f.must(f.discard(adminOf(free.ID)) == 1, "discarded nothing")

	all := f.audit(core.AuditQuery{Limit: 10})
	f.must(len(all) == 3, "audit %+v", all)
	last, appended, first := all[0], all[1], all[2]
	f.must(first.Action == "redrive" && first.Actor == req.Actor && first.Reason == req.Reason &&
		first.RowID == dead.ID &&
		first.EventID == dead.Event.ID && first.Topic == "topic" && first.NewID.IsZero(), "audit %+v", first)
	f.must(appended.Action == "redrive" && appended.RowID == overtaken.ID && !appended.NewID.IsZero() &&
		appended.NewID != overtaken.ID, "audit %+v", appended)
	f.must(last.Action == "discard" && last.RowID == free.ID && last.Topic == "other", "audit %+v", last)
	f.must(!first.At.After(last.At) && last.At.Sub(first.At) < time.Minute, "times %s, %s", first.At, last.At)

	page := f.audit(core.AuditQuery{Limit: 2})
	f.must(len(page) == 2 && page[0] == last && page[1] == appended, "page %+v", page)
	page = f.audit(core.AuditQuery{Limit: 2, Before: page[1].No})
	f.must(len(page) == 1 && page[0] == first, "next page %+v", page)
	page = f.audit(core.AuditQuery{Limit: 10, RowID: dead.ID})
	f.must(len(page) == 1 && page[0] == first, "of one row: %+v", page)
}

func auditCounted(f *fixture) {
	count := func(after, upTo int64, want map[string]int64) {
		f.Helper()
		rows, err := f.Repository.CountAudit(f.Context(), after, upTo)
		f.check(err)
		f.must(maps.Equal(rows, want), "rows above %d, up to %d: %v, want %v", after, upTo, rows, want)
	}
	count(0, math.MaxInt64, map[string]int64{})
	dead, late, free := f.addDead(newRow("topic", "")), f.addDead(newRow("topic", "k")), newRow("other", "")
	f.commit(free)
	f.must(f.redrive(adminOf(dead.ID)) == 1, "redrove nothing")
	f.must(f.discard(adminOf(free.ID)) == 1, "discarded nothing")
	f.must(f.redrive(adminOf(late.ID)) == 1, "redrove nothing")
	all := f.audit(core.AuditQuery{Limit: 10}) // the newest first
	f.must(len(all) == 3, "audit %+v", all)
	count(0, math.MaxInt64, map[string]int64{"redrive": 2, "discard": 1})
	count(all[2].No, all[0].No, map[string]int64{"redrive": 1, "discard": 1})
	count(all[2].No, all[1].No, map[string]int64{"discard": 1})
	count(all[0].No, all[0].No, map[string]int64{})
}

func resetAudited(f *fixture) {
	f.commit(newRow("topic", "a"), newRow("topic", "b"))
	_, err := f.Repository.ResetKeys(f.Context(), "ann", "")
	f.must(errors.Is(err, core.ErrInvalidRequest), "without a reason: %v", err)
	f.must(len(f.audit(core.AuditQuery{Limit: 10})) == 0, "a refused reset has an audit row")
	n, err := f.Repository.ResetKeys(f.Context(), "ann", "failover")
	f.check(err)
	all := f.audit(core.AuditQuery{Limit: 10})
	f.must(n == 2 && len(all) == 1, "%d keys, audit %+v", n, all)
	a := all[0]
	f.must(a.Action == core.AuditResetKeys && a.Actor == "ann" && a.Reason == "failover" && a.RowID.IsZero() &&
		a.EventID == "" && a.Topic == "" && a.NewID.IsZero(), "audit %+v", a)
}
