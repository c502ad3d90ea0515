package suite

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// seenCases are the cases of requests with AdminRequest.Seen.
func seenCases() []repositoryCase {
	all := []repositoryCase{
		{"a request leaves rows alone that have changed", func(f *fixture) { seenByRequest(f, false) }},
		{"a request appends no rows that have changed", func(f *fixture) { seenByRequest(f, true) }},
		{"a plan leaves rows alone that have changed", func(f *fixture) {
			for _, action := range []ops.Action{ops.ActionRedrive, ops.ActionDiscard} {
				s := seenRows(f)
				p, ok, err := f.Store.ChangePlan(f.Context(), ops.PlanChange{
					Plan: f.plan(string(action), action, s.ids...), IDs: s.ids,
					Request: core.AdminRequest{Actor: "bob", Reason: "go", Seen: s.seen},
				})
				f.must(ok && err == nil, "changed %t, %v", ok, err)
				f.wantSeen(s, action, p.Changed)
			}
		}},
		{"several people change a thousand rows, each once", seenByMany},
		{"pages over equal times have each row that stays once", pagesWhileRowsChange},
	}
	return all
}

func seenByRequest(f *fixture, skipDead bool) {
	for action, do := range map[ops.Action]func(core.AdminRequest) int{
		ops.ActionRedrive: f.redrive, ops.ActionDiscard: f.discard,
	} {
		s := seenRows(f)
		req := adminOf(s.ids...)
		req.Seen, req.SkipDead = s.seen, skipDead
		f.wantSeen(s, action, do(req))
	}
}

// seen are rows, how somebody saw them, and how they are now.
type seen struct {
	ids        []core.RowID
	seen       map[core.RowID]core.Sight
	dead, open []core.RowID // the unchanged ones
	now        map[core.RowID]ops.Event
}

// seenRows makes rows of every state, with a key and without, and changes some of them in every
// way.
func seenRows(f *fixture) *seen {
	f.Helper()
	s := &seen{seen: map[core.RowID]core.Sight{}, now: map[core.RowID]ops.Event{}}
	var again, discarded, opened, died, revived []core.NewRow
	row := func(key string) core.NewRow { return newRow("topic", key) }
	for _, prefix := range []string{"", "k"} {
		key := func(name string) string {
			if prefix == "" {
				return ""
			}
			return newRow("topic", "").ID.String() + name
		}
		dead, open := f.addDead(row(key("dead"))), row(key("open"))
		f.commit(open)
		s.dead, s.open = append(s.dead, dead.ID), append(s.open, open.ID)
		again = append(again, f.addDead(row(key("again"))))
		discarded = append(discarded, f.addDead(row(key("discarded"))))
		opened = append(opened, f.addDead(row(key("opened"))))
		waits, back := row(key("died")), row(key("revived"))
		f.commitLeased(longLease, hot(waits, back)...)
		died, revived = append(died, waits), append(revived, back)
	}
	s.ids = slices.Concat(s.dead, s.open, newIDs(again), newIDs(discarded), newIDs(opened), newIDs(died),
		newIDs(revived))
	for _, id := range s.ids {
		e := f.event(id)
		s.seen[id] = e.Sight()
	}
	at := f.event(s.ids[0]).ReadAt
	f.eventually("the clock goes on", func() bool { // SQLite counts milliseconds
		return f.event(s.ids[0]).ReadAt.After(at)
	})

	f.must(f.redrive(adminOf(newIDs(again)...)) == len(again), "not redriven")
	for _, c := range f.claimAny(request(nodeA)) {
		if slices.Contains(newIDs(again), c.ID) {
			f.kill(nodeA, c)
		} else {
			f.release(nodeA, ref(c))
		}
	}
	f.must(f.discard(adminOf(newIDs(discarded)...)) == len(discarded), "not discarded")
	f.must(f.redrive(adminOf(newIDs(opened)...)) == len(opened), "not redriven")
	for _, d := range slices.Concat(died, revived) {
		f.kill(nodeA, core.Claimed{ID: d.ID, ClaimNo: hotNo})
	}
	f.must(f.redrive(adminOf(newIDs(revived)...)) == len(revived), "not redriven")
	for _, id := range newIDs(slices.Concat(again, discarded, opened, died, revived)) {
		now := f.event(id)
		s.now[id] = now
	}
	return s
}

// wantSeen requires that the unchanged rows were changed, and that the others are as they were.
func (f *fixture) wantSeen(s *seen, action ops.Action, changed int) {
	f.Helper()
	want := len(s.dead)
	if action == ops.ActionDiscard {
		want += len(s.open)
	}
	f.must(changed == want, "%s: %d rows were changed, not %d", action, changed, want)
	for _, id := range s.dead {
		f.must(f.event(id).Status != ops.StatusDead, "%s: row %s is dead", action, id)
	}
	for id, before := range s.now {
		after := f.event(id)
		before.ReadAt, after.ReadAt = time.Time{}, time.Time{}
		f.must(before == after, "%s: a row has changed before, and again\nfrom %+v\nto   %+v", action, before, after)
	}
}

// deadRows commits rows at one time, every other one with a key, and makes them DEAD.
func (f *fixture) deadRows(n int) []core.RowID {
	f.Helper()
	rows := make([]core.NewRow, n)
	for i := range rows {
		key := ""
		if i%2 == 0 {
			key = strconv.Itoa(i)
		}
		rows[i] = newRow("topic", key)
	}
	f.commitLeased(longLease, hot(rows...)...)
	for some := range slices.Chunk(rows, 100) {
		failures := make([]core.Failure, len(some))
		for i, r := range some {
			failures[i] = core.Failure{
				ClaimRef: core.ClaimRef{ID: r.ID, ClaimNo: hotNo}, Kind: core.FailDead, Code: "boom",
			}
		}
		f.must(!slices.Contains(f.fail(nodeA, failures...), false), "not dead")
	}
	return newIDs(rows)
}

// seenByMany lets four people redrive and discard the same rows.
func seenByMany(f *fixture) {
	const many = 1000
	ids := f.deadRows(many)
	sights := map[core.RowID]core.Sight{}
	for _, e := range f.pages(ops.Scan{Filter: ops.Filter{Statuses: []ops.Status{ops.StatusDead}}, Limit: many}, nil) {
		sights[e.ID] = e.Sight()
	}
	f.must(len(sights) == many, "%d rows are dead", len(sights))
	audits := f.Audits(f.T)
	var redriven, discarded atomic.Int64
	f.parallel(4, func(ctx context.Context, worker int) error {
		do, sum := f.Repository.Redrive, &redriven
		if worker%2 == 1 {
			do, sum = f.Repository.Discard, &discarded
		}
		for some := range slices.Chunk(ids, 50) {
			req := adminOf(some...)
			req.Seen = sights
			n, err := do(ctx, req)
			if err != nil {
				return err
			}
			sum.Add(int64(n))
		}
		return nil
	})
	count := map[ops.Status]int64{}
	for _, id := range ids {
		count[f.event(id).Status]++
	}
	f.must(redriven.Load()+discarded.Load() == many && count[ops.StatusRetry] == redriven.Load() &&
		count[ops.StatusDiscarded] == discarded.Load(), "%d redriven, %d discarded, rows %v", redriven.Load(),
		discarded.Load(), count)
	f.must(f.Audits(f.T)-audits == many, "%d audit rows", f.Audits(f.T)-audits)
}

// pages reads all pages, and calls between after each.
func (f *fixture) pages(s ops.Scan, between func()) (all []ops.Event) {
	f.Helper()
	s.Look = 10 * s.Limit
	for {
		page, err := f.Store.ScanEvents(f.Context(), s)
		f.check(err)
		all = append(all, page.Events...)
		if page.Next == "" {
			return all
		}
		if s.After = page.Next; between != nil {
			between()
		}
	}
}

// pagesWhileRowsChange reads pages while rows of one time change between them.
func pagesWhileRowsChange(f *fixture) {
	for _, scan := range []ops.Scan{
		{Filter: ops.Filter{Statuses: []ops.Status{ops.StatusDead}}},
		{Filter: ops.Filter{Statuses: []ops.Status{ops.StatusDead}}, Newest: true},
		{Filter: ops.Filter{Topic: "topic"}},
		{Filter: ops.Filter{Topic: "topic"}, Newest: true},
	} {
		ids := f.deadRows(120)
		stay, change := ids[:60], ids[60:]
		scan.Limit = 7
		n := 0
		seen := map[core.RowID]int{}
		for _, e := range f.pages(scan, func() {
			if n < len(change) {
				do := []func(core.AdminRequest) int{f.redrive, f.discard}[n%2]
				f.must(do(adminOf(change[n], change[n+1], change[n+2])) == 3, "not changed")
				n += 3
			}
		}) {
			seen[e.ID]++
		}
		f.must(n > 0, "one page has all rows")
		for _, id := range stay {
			f.must(seen[id] == 1, "%+v: row %s is on %d pages", scan, id, seen[id])
		}
		f.discard(adminOf(stay...))
	}
}
