package suite

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

func planCases() []repositoryCase {
	all := []repositoryCase{
		{"a plan is read as it was stored", planRead},
		{"a change and its rows happen together, or not at all", planChanged},
		{"a plan discards", planDiscards},
		{"outcomes of redriven rows", planOutcomes},
		{"outcomes of redriven rows that were deleted", planOutcomesDeleted},
		{"plans that ended are deleted after their time", planForgotten},
	}
	all = append(all, replayCases()...)
	return all
}

// plan stores a plan and returns it as it is read.
func (f *fixture) plan(id string, action ops.Action, ids ...core.RowID) ops.StoredPlan {
	f.Helper()
	sights := make([]core.Sight, len(ids))
	for i := range sights {
		sights[i] = core.Sight(1<<32 - 1 - i)
	}
	f.check(f.Store.InsertPlan(f.Context(), ops.StoredPlan{
		ID: id, State: ops.PlanPlanned, Events: len(ids), Actor: "ann \u00e9", Reason: "repaired",
		Plan: ops.Plan{Action: action, IDs: ids, Seen: sights, Filter: ops.Filter{Topic: "topic"}, Digest: "d"},
	}, "plan", time.Hour))
	return f.readPlan(id)
}

func (f *fixture) readPlan(id string) ops.StoredPlan {
	f.Helper()
	p, found, err := f.Store.ReadPlan(f.Context(), id)
	f.check(err)
	f.must(found, "there is no plan %s", id)
	return p
}

func planRead(f *fixture) {
	_, found, err := f.Store.ReadPlan(f.Context(), "none")
	f.must(!found && err == nil, "a plan that was never stored: %v", err)
	first, second := newRow("topic", "").ID, newRow("topic", "").ID
	one := f.plan("z", ops.ActionRedrive, second, first)
	f.must(one.State == ops.PlanPlanned && one.Action == ops.ActionRedrive && one.Actor == "ann \u00e9" &&
		one.Reason == "repaired" && one.Filter.Topic == "topic" && one.Digest == "d" && one.Events == 2 &&
		one.Version > 0 && !one.Running(), "plan %+v", one)
	f.must(slices.Equal(one.IDs, []core.RowID{second, first}), "the ids are in another order: %v", one.IDs)
	f.must(slices.Equal(one.Seen, []core.Sight{1<<32 - 1, 1<<32 - 2}), "the rows were seen as %v", one.Seen)
	age := one.ReadAt.Sub(one.CreatedAt)
	f.must(age >= 0 && age < time.Minute && one.UpdatedAt.Equal(one.CreatedAt), "plan %+v", one)

	f.must(f.Store.InsertPlan(f.Context(), one, "plan", time.Hour) != nil, "a second plan has the same id")
	two := f.plan("a", ops.ActionDiscard, first)
	all, err := f.Store.ReadPlans(f.Context(), 10)
	f.check(err)
	f.must(len(all) == 2 && all[0].ID == two.ID && all[1].ID == one.ID && all[0].IDs == nil && all[0].Seen == nil &&
		all[0].Events == 1, "plans %+v", all)
	all, err = f.Store.ReadPlans(f.Context(), 1)
	f.must(err == nil && len(all) == 1 && all[0].ID == two.ID, "the newest plan: %+v, %v", all, err)
	if audit := f.wholeAudit(); len(audit) != 2 || audit[0].Action != "plan" || audit[0].Actor != "ann \u00e9" {
		f.Fatalf("audit %+v", audit)
	}
}

// wholeAudit returns the audit rows that name no event.
func (f *fixture) wholeAudit() []core.AuditRecord {
	f.Helper()
	return slices.DeleteFunc(f.audit(core.AuditQuery{Limit: 100}), func(a core.AuditRecord) bool {
		return !a.RowID.IsZero()
	})
}

func planChanged(f *fixture) {
	first, second := f.addDead(newRow("topic", "")), f.addDead(newRow("topic", "k"))
	read := f.plan("p", ops.ActionRedrive, first.ID, second.ID)
	f.eventually("the clock goes on", func() bool { // SQLite counts milliseconds
		read = f.readPlan("p")
		return read.ReadAt.After(read.UpdatedAt)
	})

	next := read
	next.State, next.Position, next.Worker, next.Stage = ops.PlanRunning, 1, "w", 1
	change := ops.PlanChange{
		Plan: next, Lease: time.Minute, IDs: []core.RowID{first.ID}, Audit: "run-plan",
		Request: core.AdminRequest{Actor: "bob", Reason: "go"},
	}
	got, ok, err := f.Store.ChangePlan(f.Context(), change)
	f.check(err)
	f.must(ok && got.Changed == 1 && got.Version > read.Version, "changed %t %+v", ok, got)
	stored := f.readPlan("p")
	f.must(stored.State == ops.PlanRunning && stored.Position == 1 && stored.Changed == 1 && stored.Stage == 1 &&
		stored.Worker == "w" && stored.Running() && stored.Version == got.Version &&
		slices.Equal(stored.IDs, read.IDs) && slices.Equal(stored.Seen, read.Seen), "plan %+v", stored)
	f.must(got.Running() && got.UpdatedAt.Equal(stored.UpdatedAt) && got.UpdatedAt.After(read.UpdatedAt),
		"the times of the change are %+v, stored are %+v", got, stored)
	f.must(len(f.dead()) == 1 && f.dead()[0].ID == second.ID, "dead are %v", f.dead())
	f.must(f.wholeAudit()[0].Actor == "bob" && f.wholeAudit()[0].Action == "run-plan", "audit %+v", f.wholeAudit())

	// The plan has changed since it was read.
	change.IDs, change.Plan.Position = []core.RowID{second.ID}, 2
	audits := f.Audits(f.T)
	_, ok, err = f.Store.ChangePlan(f.Context(), change)
	f.must(!ok && err == nil, "a change of an old version: %t %v", ok, err)
	f.must(len(f.dead()) == 1 && f.readPlan("p").Position == 1 && f.Audits(f.T) == audits, "it changed something")

	change.Plan, change.Lease, change.Audit = got, 0, ""
	change.Plan.State = ops.PlanDone
	_, ok, err = f.Store.ChangePlan(f.Context(), change)
	f.must(ok && err == nil, "the next change: %t %v", ok, err)
	stored = f.readPlan("p")
	f.must(stored.State == ops.PlanDone && stored.Changed == 2 && !stored.Running() && len(f.dead()) == 0,
		"plan %+v", stored)
	change.Plan.ID = "none"
	_, ok, err = f.Store.ChangePlan(f.Context(), change)
	f.must(!ok && err == nil, "a change of no plan: %t %v", ok, err)
}

func planDiscards(f *fixture) {
	dead, other := f.addDead(newRow("topic", "k")), f.addDead(newRow("topic", ""))
	p := f.plan("p", ops.ActionDiscard, dead.ID)
	got, ok, err := f.Store.ChangePlan(f.Context(), ops.PlanChange{
		Plan: p, IDs: p.IDs, Request: core.AdminRequest{Actor: "bob", Reason: "go"},
	})
	f.must(ok && err == nil && got.Changed == 1, "changed %t %+v %v", ok, got, err)
	f.must(len(f.dead()) == 1 && f.dead()[0].ID == other.ID, "dead are %v", f.dead())
}

func planOutcomes(f *fixture) {
	outcomes := func(ids ...core.RowID) []ops.RowStatus {
		all, err := f.Store.ReadStatuses(f.Context(), ids, "because")
		f.check(err)
		return all
	}
	f.must(len(outcomes()) == 0, "outcomes of no row")
	others := f.addDead(newRow("topic", ""))
	req := adminOf(others.ID)
	req.Reason = "another plan"
	f.must(f.redrive(req) == 1 && f.discard(req) == 1, "not redriven and discarded")
	f.must(len(outcomes(others.ID)) == 0, "outcomes of a row that was redriven for another reason")
	free, keyed := f.addDead(newRow("topic", "")), f.addDead(newRow("topic", "k"))
	none := newRow("topic", "").ID
	f.must(f.redrive(adminOf(free.ID)) == 1, "redrove nothing")
	skip := adminOf(keyed.ID) // appended at the end of its key: another row
	skip.SkipDead = true
	f.must(f.redrive(skip) == 1, "redrove nothing")
	open := func(want map[core.RowID]ops.Status) {
		f.Helper()
		all := outcomes(free.ID, keyed.ID, none)
		f.must(len(all) == 2, "outcomes %+v", all)
		for _, o := range all {
			f.must(o.Status == want[o.ID] || o.Status.Open() && want[o.ID].Open(), "outcomes %+v, want %v", all, want)
		}
	}
	open(map[core.RowID]ops.Status{free.ID: ops.StatusRetry, keyed.ID: ops.StatusNew})
	claimed := f.claimAny(request(nodeA))
	f.must(len(claimed) == 2, "claimed %d rows", len(claimed))
	for _, c := range claimed {
		if c.ID == free.ID {
			f.fail(nodeA, core.Failure{ClaimRef: ref(c), Kind: core.FailRetry, Code: "c", Delay: time.Hour})
			continue
		}
		f.kill(nodeA, c)
	}
	for _, o := range outcomes(free.ID, keyed.ID) {
		f.must(o.ID == free.ID && o.Status == ops.StatusRetry && o.Attempts == 1 ||
			o.ID == keyed.ID && o.Status == ops.StatusDead, "outcome %+v", o)
	}
}

// planOutcomesDeleted redrives rows that are appended at the end of their keys. The discarded rows
// are deleted before the appended ones are published. One appended row is deleted after it is done.
func planOutcomesDeleted(f *fixture) {
	skip := adminOf()
	skip.SkipDead = true
	for n := range 3 {
		skip.IDs = append(skip.IDs, f.addDead(newRow("topic", strconv.Itoa(n))).ID)
	}
	f.must(f.redrive(skip) == 3, "redrove too little")
	deleted := 0
	f.eventually("the discarded rows are deleted", func() bool {
		n, _, err := f.Repository.Cleanup(f.Context(), cleanupOf(time.Millisecond, 100))
		f.check(err)
		deleted += n
		return deleted == 3
	})
	outcomes := func() string {
		all, err := f.Store.ReadStatuses(f.Context(), skip.IDs, "because")
		f.check(err)
		var texts []string
		for _, id := range skip.IDs {
			text := "none"
			for _, o := range all {
				if o.ID == id {
					text = o.Status.String()
				}
			}
			texts = append(texts, text)
		}
		return strings.Join(texts, " ")
	}
	f.must(outcomes() == "new new new", "outcomes %s", outcomes())
	for _, c := range f.claimAny(request(nodeA)) {
		switch c.Event.Key {
		case "0":
			f.kill(nodeA, c)
		case "1":
			f.done(false, c.ID)
		}
	}
	f.must(outcomes() == "dead done new", "outcomes %s", outcomes())
	f.eventually("the row that is done is deleted", func() bool {
		n, _, err := f.Repository.Cleanup(f.Context(), cleanupOf(time.Millisecond, 100))
		f.check(err)
		return n == 1
	})
	f.must(outcomes() == "dead none new", "outcomes %s", outcomes())
}

func planForgotten(f *fixture) {
	p := f.plan("old", ops.ActionRedrive, newRow("topic", "").ID)
	p.State = ops.PlanCancelled
	_, ok, err := f.Store.ChangePlan(f.Context(), ops.PlanChange{Plan: p})
	f.must(ok && err == nil, "changed %t %v", ok, err)
	f.plan("open", ops.ActionRedrive, newRow("topic", "").ID)
	f.must(f.readPlan("old").State == ops.PlanCancelled, "a plan is gone before its time")
	n := 0
	f.eventually("the plan that ended is deleted", func() bool {
		n++
		f.check(f.Store.InsertPlan(f.Context(), ops.StoredPlan{
			ID: fmt.Sprint("new", n), State: ops.PlanPlanned, Actor: "a", Reason: "r",
		}, "plan", time.Millisecond))
		_, found, err := f.Store.ReadPlan(f.Context(), "old")
		f.check(err)
		return !found
	})
	f.readPlan("open")
}
