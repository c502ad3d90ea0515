package suite

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// replayCases are part of planCases.
func replayCases() []repositoryCase {
	return []repositoryCase{
		{"a replay inserts rows and leaves those that were done", replayInserts},
		{"a replay takes only done rows that are no replays", replayTakesDone},
		{"a replay carries the first number of an event that was appended", replayOfAppended},
	}
}

// replay changes a plan that replays the rows.
func (f *fixture) replay(plan string, ids ...core.RowID) ops.StoredPlan {
	f.Helper()
	p := f.plan(plan, ops.ActionReplay, ids...)
	p.Position = len(ids)
	p, ok, err := f.Store.ChangePlan(f.Context(), ops.PlanChange{
		Plan: p, IDs: ids, Request: core.AdminRequest{Actor: "bob", Reason: "consumer was down"},
	})
	f.must(ok && err == nil, "replayed %t %v", ok, err)
	return p
}

// stored returns a row as people see it, without the time of the reading.
func (f *fixture) stored(id core.RowID) ops.Event {
	f.Helper()
	s, err := f.Store.ScanEvents(f.Context(), ops.Scan{ID: id, Limit: 1, Look: 1})
	f.check(err)
	f.must(len(s.Events) == 1, "row %s: %+v", id, s)
	s.Events[0].ReadAt = time.Time{}
	return s.Events[0]
}

// wantReplay checks the row that replays another one.
func (f *fixture) wantReplay(got core.Claimed, p *ops.StoredPlan, of core.NewRow, headers map[string]string) {
	f.Helper()
	want := of.Event
	want.Headers = headers
	f.must(diffEvent(got.Event, want) == "", "replayed with %s", diffEvent(got.Event, want))
	f.must(got.ID == p.ReplayID(of.ID) && got.ReplayOf == of.ID && got.Attempts == 0 && got.LostClaims == 0 &&
		got.Age < time.Minute, "replayed as %+v", got)
	key := core.KeyID{}
	if !of.KeyID.IsZero() {
		key = core.ReplayKeyID(of.KeyID)
	}
	f.must(got.KeyID == key && (got.KeySeq > 0) == !key.IsZero(), "replayed as %+v", got)
}

func replayInserts(f *fixture) {
	first, second, free := newRow("topic", "k"), newRow("topic", "k"), newRow("topic", "")
	first.Event.Headers = map[string]string{"h": "v"}
	free.Event.Headers = map[string]string{"h": "w"}
	places := f.commit(first, second, free)
	f.done(false, first.ID, second.ID, free.ID)
	before := []ops.Event{f.stored(first.ID), f.stored(second.ID), f.stored(free.ID)}
	live := newRow("topic", "k") // waits, and neither waits for a replay nor delays it
	f.commit(live)

	p := f.replay("p", second.ID, free.ID, first.ID, first.ID)
	f.must(p.Changed == 3 && f.readPlan("p").Changed == 3, "plan %+v", p)
	f.audited(1 + 3) // of the plan and of the rows
	audit := f.audit(core.AuditQuery{RowID: first.ID, Limit: 10})
	f.must(len(audit) == 1 && audit[0].Action == "replay" && audit[0].Actor == "bob" &&
		audit[0].NewID == p.ReplayID(first.ID), "audit %+v", audit)

	rows := f.claim(request(nodeA))
	f.must(len(rows) == 1, "claimed %s, want the replay without a key", idsOf(rows))
	f.wantReplay(rows[0], &p, free, free.Event.Headers)
	got := f.heads(request(nodeA))
	f.must(len(got) == 3, "claimed %s, want the live event and two replays", idsOf(got))
	got = slices.DeleteFunc(got, func(c core.Claimed) bool { return c.ID == live.ID && c.KeyID == live.KeyID })
	f.must(len(got) == 2 && got[0].KeySeq < got[1].KeySeq, "claimed %s, want two replays in order", idsOf(got))
	header := func(of int, more map[string]string) map[string]string {
		h := map[string]string{core.HeaderFirstKeySeq: strconv.FormatInt(places[of].KeySeq, 10)}
		maps.Copy(h, more)
		return h
	}
	f.wantReplay(got[0], &p, first, header(0, first.Event.Headers))
	f.wantReplay(got[1], &p, second, header(1, second.Event.Headers))

	outcomes := func(want ops.Status) {
		f.Helper()
		all, err := f.Store.ReadStatuses(f.Context(), []core.RowID{p.ReplayID(first.ID)}, "")
		f.check(err)
		f.must(len(all) == 1 && all[0].Status == want && all[0].ID == p.ReplayID(first.ID), "outcomes %+v", all)
	}
	outcomes(ops.StatusNew)
	f.done(false, got[0].ID)
	outcomes(ops.StatusDone)

	again := f.replay("q", first.ID) // another plan: behind the replays that are there
	f.done(false, got[1].ID)
	rows = f.heads(request(nodeA))
	f.must(again.Changed == 1 && len(rows) == 1 && rows[0].KeySeq > got[1].KeySeq, "claimed %s", idsOf(rows))
	f.wantReplay(rows[0], &again, first, header(0, first.Event.Headers))
	for i, row := range []core.NewRow{first, second, free} {
		f.must(f.stored(row.ID) == before[i], "row %s was %+v and is %+v", row.ID, before[i], f.stored(row.ID))
	}
	replay := f.stored(rows[0].ID)
	f.must(replay.ReplayOf == first.ID && replay.EventID == first.Event.ID, "the replay is %+v", replay)
}

func replayTakesDone(f *fixture) {
	done, open, dead := newRow("topic", "k"), newRow("topic", "k"), newRow("topic", "")
	f.commit(done)
	f.done(false, done.ID)
	f.addDead(dead)
	f.commit(open)
	gone := newRow("topic", "").ID
	p := f.replay("p", done.ID, open.ID, dead.ID, gone)
	f.must(p.Changed == 1, "plan %+v", p)
	f.audited(1 + 1)
	replayed := p.ReplayID(done.ID)
	f.done(false, replayed)
	f.must(f.replay("q", replayed).Changed == 0, "a replay was replayed")

	// The plan that replayed a row can never do it again.
	p = f.readPlan("p")
	_, ok, err := f.Store.ChangePlan(f.Context(), ops.PlanChange{
		Plan: p, IDs: []core.RowID{done.ID}, Request: core.AdminRequest{Actor: "bob", Reason: "again"},
	})
	f.must(!ok && err != nil && f.readPlan("p").Version == p.Version, "one plan replayed a row twice: %t %v", ok, err)
	f.audited(2 + 1)
}

func replayOfAppended(f *fixture) {
	dead := newRow("topic", "k")
	f.addDead(dead)
	firstSeq := f.commit(newRow("topic", "k"))[0].KeySeq - 1
	req := adminOf(dead.ID)
	req.SkipDead = true
	f.must(f.redrive(req) == 1, "not redriven")
	claim := request(nodeA)
	claim.SkipDead = true
	rows := f.heads(claim)
	f.must(len(rows) == 2, "claimed %s", idsOf(rows))
	appended := rows[1]
	f.done(false, rows[0].ID, appended.ID)
	p := f.replay("p", dead.ID, appended.ID) // the dead row is discarded
	f.must(p.Changed == 1, "plan %+v", p)
	rows = f.heads(claim)
	f.must(len(rows) == 1 && rows[0].ReplayOf == appended.ID &&
		rows[0].Event.Headers[core.HeaderFirstKeySeq] == strconv.FormatInt(firstSeq, 10), "replayed as %+v", rows)
}
