package suite

import (
	"errors"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

func byLogCases() []repositoryCase {
	return []repositoryCase{
		{"a row of a reader of the log is done, and nothing takes it", byLogDone},
		{"rows of a reader of the log are beside others in one call", byLogMixed},
		{"rows of a reader of the log take numbers of their key", byLogNumbers},
		{"a row of a reader of the log is refused a second time", byLogDuplicate},
		{"a row of a reader of the log leaves by its age", byLogCleanup},
		{"a replay is for the reader of the log too", byLogReplay},
	}
}

// byLog marks rows as published by a reader of the log, and returns them.
func byLog(rows ...core.NewRow) []core.NewRow {
	for i := range rows {
		rows[i].ByLog = true
	}
	return rows
}

// wantByLog requires that a row is stored for a reader of the log.
func (f *fixture) wantByLog(n core.NewRow) ops.Event {
	f.Helper()
	e := f.stored(n.ID)
	f.must(e.Status == ops.StatusDone && e.ClaimedBy == core.LogReader && e.LeaseUntil.IsZero() && e.Attempts == 0 &&
		!e.CreatedAt.IsZero() && !e.DoneAt.Before(e.CreatedAt) && e.DoneAt.Sub(e.CreatedAt) < time.Minute,
		"row %s is stored as %+v", n.ID, e)
	f.must(e.EventID == n.Event.ID && e.Topic == n.Event.Topic && e.Key == n.Event.Key &&
		(e.KeySeq > 0) == !n.KeyID.IsZero(), "row %s is stored as %+v, want %+v", n.ID, e, n.Event)
	return e
}

func byLogDone(f *fixture) {
	free, keyed := newRow("topic", ""), newRow("topic", "k")
	f.commit(byLog(free)...)
	f.commit(byLog(keyed)...)
	rows := []core.NewRow{free, keyed}
	check := func(after string) {
		f.Helper()
		f.none(after)
		f.must(len(f.lane(request(nodeB), keyed.KeyID)) == 0, "%s: claimed by its key", after)
		f.must(f.backlog(10) == core.Backlog{Limit: 10}, "%s: backlog %+v", after, f.backlog(10))
		_, ok, err := f.Repository.NextDue(f.Context(), request(nodeB))
		f.must(err == nil && !ok, "%s: something is due: %v", after, err)
		for _, n := range rows {
			f.wantByLog(n)
		}
	}
	check("after the insert")
	for _, n := range rows {
		for _, node := range []string{nodeA, core.LogReader} {
			claim := core.ClaimRef{ID: n.ID} // of claim number 0
			changed := f.fail(node, core.Failure{ClaimRef: claim, Kind: core.FailRetry, Code: "c"})
			f.must(!changed[0] && f.release(node, claim) == 0 && !f.renew(node, longLease, claim)[0] &&
				!f.beginSuspect(node, claim)[0], "a guess of %s changed it", node)
		}
	}
	f.must(f.done(false, free.ID, keyed.ID) == 0 && f.done(true, free.ID, keyed.ID) == 0, "a mark changed it")
	request := adminOf(free.ID, keyed.ID)
	request.Force = true
	f.must(f.redrive(request) == 0 && f.discard(request) == 0, "a person changed it")
	check("after marks")
}

func byLogMixed(f *fixture) {
	rows := byLog(newRows(3, "topic", "k")...)
	rows = append(rows, newRow("effect.x", "k"), newRow("effect.x", ""), newRow("effect.x", "k"))
	rows = append(rows, byLog(newRows(2, "topic", "")...)...)
	f.commit(rows...)
	one := append(byLog(newRow("topic", "")), newRow("effect.x", ""))
	f.commit(one...)
	open := 0
	for _, n := range append(rows, one...) {
		if n.ByLog {
			f.wantByLog(n)
			continue
		}
		open++
		e := f.stored(n.ID)
		f.must(e.Status == ops.StatusNew && e.ClaimedBy == "" && e.DoneAt.IsZero(), "another row is stored as %+v", e)
	}
	req := request(nodeA)
	req.Served = []string{"effect.x"}
	got := f.claimAny(req)
	f.must(len(got) == open, "claimed %d rows, want %d", len(got), open)
	for _, c := range got {
		f.must(c.Event.Topic == "effect.x", "claimed a row of %s", c.Event.Topic)
	}
}

// byLogNumbers has rows of a key for the reader of the log, and then one for a relay: numbers go
// on, and a done row stands in nobody's way.
func byLogNumbers(f *fixture) {
	first := f.commit(byLog(newRows(2, "topic", "k")...)...)
	f.must(first[0].Opened && first[1].KeySeq == first[0].KeySeq+1, "places %+v", first)
	next := byLog(newRow("topic", "k"))
	second := f.commit(next...)
	f.must(second[0].KeySeq == first[1].KeySeq+1 && !second[0].Opened, "place %+v after %+v", second, first)
	f.must(f.wantByLog(next[0]).KeySeq == second[0].KeySeq, "stored with another number than %+v", second)
	relayed := newRow("topic", "k")
	third := f.commit(relayed)
	f.must(third[0].KeySeq == second[0].KeySeq+1 && third[0].Prev == next[0].ID, "place %+v after %+v", third, second)
	f.must(f.one(nodeA).ID == relayed.ID, "another row was claimed")
}

func byLogDuplicate(f *fixture) {
	n := byLog(newRow("topic", "k"))
	f.commit(n...)
	for _, again := range [][]core.NewRow{n, {{ID: n[0].ID, Event: n[0].Event, KeyID: n[0].KeyID}}} {
		_, err := f.tryCommit(core.InsertRequest{Node: nodeA, ClaimNo: hotNo, Lease: longLease, Rows: again})
		f.must(errors.Is(err, core.ErrDuplicateEvent), "a second copy: %v", err)
	}
	f.wantByLog(n[0])
}

func byLogCleanup(f *fixture) {
	rows := byLog(newRow("topic", "k"), newRow("topic", ""))
	f.commit(rows...)
	deleted, _, err := f.Repository.Cleanup(f.Context(), cleanupOf(time.Hour, 100))
	f.must(err == nil && deleted == 0, "deleted %d young rows, %v", deleted, err)
	f.wantByLog(rows[0])
	f.eventually("both rows are deleted", func() bool {
		n, _, err := f.Repository.Cleanup(f.Context(), cleanupOf(2*clockStep, 100))
		f.check(err)
		deleted += n
		return deleted == len(rows)
	})
}

func byLogReplay(f *fixture) {
	keyed, relayed := byLog(newRow("topic", "k")), newRow("topic", "k")
	f.commit(keyed...)
	f.commit(relayed)
	f.done(false, relayed.ID)
	p := f.replay("p", keyed[0].ID, relayed.ID)
	f.must(p.Changed == 2, "plan %+v", p)
	e := f.stored(p.ReplayID(keyed[0].ID))
	f.must(e.ByLog() && !e.DoneAt.IsZero() && e.ReplayOf == keyed[0].ID && e.KeySeq > 0, "the copy is stored as %+v", e)
	f.must(f.one(nodeA).ReplayOf == relayed.ID, "another row was claimed")
}
