package suite

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

func eraseCases() []repositoryCase {
	return []repositoryCase{
		{"one subject is erased, in every state, and its rows keep their places", eraseSubject},
		{"waiting events are erased only if that is asked for", eraseWaiting},
		{"what an edit stored is erased, also if its event was deleted", eraseEdits},
		{"an event that got data again is erased again", eraseEdited},
		{"an erasure that was interrupted goes on", eraseAgain},
		{"an erasure beside claims, redrives and edits", eraseBeside},
		{"an erasure finds the copy that an edit makes of a row that it has looked at", eraseCopied},
	}
}

// api is the operators' API of the table.
func (f *fixture) api() *ops.API { return f.apiOn(f.Store) }

func (f *fixture) apiOn(store ops.Store) *ops.API {
	f.Helper()
	ob, err := core.New(core.Config{Repository: f.Repository})
	f.check(err)
	api, err := ops.New(ob, store)
	f.check(err)
	return api
}

// personal is a row with data of a person.
func personal(key, id, tenant string) core.NewRow {
	e := newRow("topic", key).Event
	e.AggregateType, e.AggregateID, e.TenantID = "customer", id, tenant
	e.Payload, e.Headers = []byte(`{"name":"Ada"}`), map[string]string{
		"name": "Ada", core.HeaderCausationID: "cause-1", core.HeaderCorrelationID: "chain-1",
	}
	return rowOf(e)
}

// wantErased checks the content of a row.
func (f *fixture) wantErased(id core.RowID, erased bool) {
	f.Helper()
	c, found, err := f.Store.ReadContent(f.Context(), id)
	f.must(found && err == nil, "row %s: %t %v", id, found, err)
	if !erased {
		f.must(len(c.Payload) > 0 && c.Headers[core.HeaderErased] == "", "row %s was erased: %+v", id, c)
		return
	}
	_, err = time.Parse(time.RFC3339, c.Headers[core.HeaderErased])
	f.must(err == nil && len(c.Payload) == 0 && c.ContentType == "" && c.Headers["name"] == "" &&
		c.Headers[core.HeaderCausationID] == "cause-1" && c.Headers[core.HeaderCorrelationID] == "chain-1",
		"row %s: %+v, %v", id, c, err)
	f.must(len(f.attempts(id)) == 0, "row %s still has %+v", id, f.attempts(id))
	e := f.stored(id)
	f.must(e.CausationID == "cause-1" && (e.Error == "" || e.Error == ops.Erased), "row %s: %+v", id, e)
	f.must(len(f.attempts(id)) == 0, "row %s keeps its refusals", id)
}

func eraseRequest() ops.EraseRequest {
	return ops.EraseRequest{AggregateType: "customer", AggregateID: "42", Actor: "ada", Reason: "asked to"}
}

// eraseEdited erases an event to which an edit gave data again.
func eraseEdited(f *fixture) {
	api := f.api()
	row := personal("k", "42", "")
	f.addDead(row)
	_, err := api.Erase(f.Context(), eraseRequest())
	f.check(err)
	f.wantErased(row.ID, true)
	edited, err := api.Edit(f.Context(), ops.EditRequest{
		ID: row.ID, Payload: []byte("Ada again"), Actor: "bob", Reason: "it is needed",
	})
	f.check(err)
	c, _, err := f.Store.ReadContent(f.Context(), edited.NewID)
	f.must(err == nil && c.Headers[core.HeaderErased] == "", "the new row says that it was erased: %+v %v", c, err)
	req := eraseRequest()
	req.Open = true
	got, err := api.Erase(f.Context(), req)
	f.must(err == nil && got.Erased == 1 && got.Already == 1, "erased %+v, %v", got, err)
	f.wantErased(edited.NewID, true)
}

func eraseSubject(f *fixture) {
	api := f.api()
	done, dead, discarded := personal("k", "42", ""), personal("k", "42", ""), personal("", "42", "t")
	other, another := personal("k", "43", ""), newRow("topic", "")
	f.commit(done)
	f.done(false, done.ID)
	f.addDead(discarded)
	f.discard(adminOf(discarded.ID))
	f.addDead(dead)
	f.commit(other, another)
	audits := f.Audits(f)
	before := map[core.RowID]ops.Event{}
	for _, id := range []core.RowID{done.ID, dead.ID, discarded.ID, other.ID} {
		before[id] = f.stored(id)
	}
	want := ops.Erasure{Dead: 1, Ended: 2, Tenants: []string{"", "t"}, NoEffects: true}
	got, err := api.PlanErase(f.Context(), eraseRequest())
	f.check(err)
	got.Parts = 0
	f.must(reflect.DeepEqual(got, want), "planned %+v, want %+v", got, want)
	f.audited(audits)
	for _, row := range []core.NewRow{done, dead, discarded} {
		f.wantErased(row.ID, false)
	}

	tenant := eraseRequest()
	tenant.TenantID = "t"
	got, err = api.Erase(f.Context(), tenant)
	f.must(err == nil && got.Ended == 1 && got.Erased == 1 && got.Dead == 0, "erased %+v, %v", got, err)
	f.wantErased(discarded.ID, true)
	f.wantErased(done.ID, false)
	f.audited(audits + 2)

	steps := 0
	req := eraseRequest()
	req.Progress = func(ops.Erasure) { steps++ }
	got, err = api.Erase(f.Context(), req)
	f.check(err)
	f.must(steps == got.Parts && steps > 0, "%d calls of Progress, %d parts", steps, got.Parts)
	want.Parts, want.Erased, want.Already = got.Parts, 2, 1
	f.must(reflect.DeepEqual(got, want), "erased %+v, want %+v", got, want)
	f.audited(audits + 2 + 3)
	for id, was := range before {
		f.wantErased(id, id != other.ID)
		now := f.stored(id)
		if was.Error != "" && id != other.ID {
			was.Error = ops.Erased
		}
		f.must(now == was, "row %s changed\nfrom %+v\nto   %+v", id, was, now)
	}
	f.wantErased(another.ID, false)
	list := f.audit(core.AuditQuery{Limit: 4})
	whole, ofRow := 0, 0
	for _, a := range list {
		f.must(a.Action == ops.AuditErase && a.Actor == "ada" && !strings.Contains(a.Reason, "Ada"), "audit %+v", a)
		if a.RowID.IsZero() {
			whole++
			f.must(strings.Contains(a.Reason, "customer/42"), "audit %+v", a)
		} else {
			ofRow++
		}
	}
	f.must(whole == 1 && ofRow == 3, "%d and %d audit rows: %+v", whole, ofRow, list)

	// the dead event still blocks its key, and goes out without its content
	f.must(len(f.heads(request(nodeA))) == 0, "claimed behind the dead event")
	f.redrive(adminOf(dead.ID))
	rows := f.heads(request(nodeA))
	f.must(len(rows) == 2 && rows[0].ID == dead.ID && len(rows[0].Event.Payload) == 0 &&
		rows[0].Event.Headers[core.HeaderErased] != "" && rows[1].ID == other.ID, "claimed %+v", rows)

	for name, change := range map[string]func(*ops.EraseRequest){
		"type":   func(r *ops.EraseRequest) { r.AggregateType = "" },
		"id":     func(r *ops.EraseRequest) { r.AggregateID = "" },
		"actor":  func(r *ops.EraseRequest) { r.Actor = "" },
		"reason": func(r *ops.EraseRequest) { r.Reason = "" },
	} {
		bad := eraseRequest()
		change(&bad)
		_, err := api.Erase(f.Context(), bad)
		f.must(errors.Is(err, core.ErrInvalidRequest), "without %s: %v", name, err)
	}
	_, err = api.PlanErase(f.Context(), ops.EraseRequest{})
	f.must(errors.Is(err, core.ErrInvalidRequest), "without a subject: %v", err)
	_, err = api.PlanErase(f.Context(), ops.EraseRequest{KeyIDs: []string{"7"}})
	f.must(errors.Is(err, core.ErrNoTables), "without keys: %v", err)
}

func eraseWaiting(f *fixture) {
	free, held, ordered := personal("", "42", ""), personal("", "42", ""), personal("k", "42", "")
	f.commit(free, ordered)
	f.commit(hot(held)...)
	req := eraseRequest()
	got, err := f.api().Erase(f.Context(), req)
	f.must(err == nil && got.Waiting == 3 && got.Left == 3 && got.Erased == 0, "erased %+v, %v", got, err)
	req.Open = true
	plan, err := f.api().PlanErase(f.Context(), req)
	f.must(err == nil && plan.Waiting == 3 && plan.Left == 1, "planned %+v, %v", plan, err)
	got, err = f.api().Erase(f.Context(), req)
	f.must(err == nil && got.Waiting == 3 && got.Left == 1 && got.Erased == 2, "erased %+v, %v", got, err)
	f.wantErased(held.ID, false)
	rows := f.claimAny(request(nodeB))
	f.must(len(rows) == 2, "claimed %s", idsOf(rows))
	for _, c := range rows {
		f.must(len(c.Event.Payload) == 0 && c.Event.Headers[core.HeaderErased] != "", "claimed %+v", c.Event)
	}
}

// eraseEdits edits an event twice, and deletes its rows except for the last.
func eraseEdits(f *fixture) {
	dead, other := f.addDead(personal("k", "42", "t")), f.addDead(personal("", "43", "t"))
	c := f.editOf(dead.ID)
	c.Payload = []byte(`{"name":"Eve"}`)
	f.edit(c)
	o := f.editOf(other.ID)
	f.edit(o)
	f.done(true, c.NewID)
	detail := func(id core.RowID) string {
		f.Helper()
		audit, err := f.Store.ReadAudit(f.Context(), id)
		f.must(err == nil && len(audit) > 0, "audit of %s: %+v %v", id, audit, err)
		return audit[0].Detail
	}
	f.must(strings.Contains(detail(dead.ID), "Eve"), "detail %q", detail(dead.ID))
	req := eraseRequest()
	req.TenantID = "u"
	got, err := f.api().Erase(f.Context(), req)
	f.must(err == nil && got.Audit == 0, "erased %+v, %v", got, err)
	for _, tenant := range []string{"", "t"} {
		req.TenantID = tenant
		plan, err := f.api().PlanErase(f.Context(), req)
		f.must(err == nil && plan.Audit == 1, "planned %+v, %v", plan, err)
	}
	got, err = f.api().Erase(f.Context(), req)
	f.must(err == nil && got.Audit == 1 && got.Erased == 1, "erased %+v, %v", got, err)
	f.must(
		detail(dead.ID) == ops.Erased && strings.Contains(detail(other.ID), "Ada"),
		"details %q, %q",
		detail(dead.ID),
		detail(other.ID),
	)
}

// eraseAgain ends the context after the first part, as a process that is killed.
func eraseAgain(f *fixture) {
	var ids []core.RowID
	for some := range 6 {
		rows := make([]core.NewRow, 100)
		for i := range rows {
			rows[i] = personal([]string{"", "k"}[some%2], "42", "")
		}
		f.commit(rows...)
		ids = append(ids, newIDs(rows)...)
	}
	req := eraseRequest()
	req.Open = true
	ctx, stop := context.WithCancel(f.Context())
	defer stop()
	req.Progress = func(e ops.Erasure) {
		if e.Erased > 0 {
			stop()
		}
	}
	got, err := f.api().Erase(ctx, req)
	f.must(errors.Is(err, context.Canceled) && got.Erased == 500, "erased %+v, %v", got, err)
	req.Progress = nil
	got, err = f.api().Erase(f.Context(), req)
	f.must(err == nil && got.Erased == 100 && got.Already == 500, "erased %+v, %v", got, err)
	for _, id := range ids {
		f.wantErased(id, true)
	}
}

// eraseBeside erases while others claim, redrive and edit the same rows. No order and no row is
// lost, and nobody waits for ever.
func eraseBeside(f *fixture) {
	const many = 40
	var ids []core.RowID
	for range many {
		ids = append(ids, f.addDead(personal("k", "42", "")).ID)
	}
	var edited atomic.Int64
	api := f.api()
	f.parallel(4, func(ctx context.Context, worker int) error {
		switch worker {
		case 0, 1:
			req := eraseRequest()
			req.Open = true
			for range 3 {
				if _, err := api.Erase(ctx, req); err != nil {
					return err
				}
			}
		case 2:
			for _, id := range ids[:many/2] {
				c := ops.EditRequest{ID: id, Payload: []byte(`{"n":2}`), Actor: "bob", Reason: "x"}
				switch _, err := api.Edit(ctx, c); {
				case err == nil:
					edited.Add(1)
				case !errors.Is(err, ops.ErrChanged):
					return err
				}
			}
		default:
			for _, id := range ids[many/2:] {
				if _, err := f.Repository.Redrive(ctx, adminOf(id)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	f.must(edited.Load() == many/2, "%d events were edited", edited.Load())
	rows := f.heads(request(nodeA))
	events := map[string]bool{}
	for i, c := range rows {
		events[c.Event.ID] = true
		f.must(c.KeySeq == rows[0].KeySeq+int64(i), "claimed %d at place %d", c.KeySeq, i)
	}
	f.must(len(rows) == many && len(events) == many, "%d rows of %d events wait", len(rows), len(events))
	f.must(rows[0].Event.Headers[core.HeaderCausationID] == "cause-1", "headers %v", rows[0].Event.Headers)
}

// beforeErase is a Store in which something happens before rows are erased that were looked at.
type beforeErase struct {
	ops.Store
	do func()
}

func (s beforeErase) EraseEvents(ctx context.Context, c ops.EraseChange) (ops.EraseOutcome, error) {
	s.do()
	return s.Store.EraseEvents(ctx, c)
}

// eraseCopied edits events again and again while they are erased, so that some copies have an id that
// the scan has passed.
func eraseCopied(f *fixture) {
	for customer, open := range map[string]bool{"42": true, "43": false} {
		var dead []core.RowID
		for range 8 {
			dead = append(dead, f.addDead(personal("", customer, "")).ID)
		}
		var copies []core.RowID
		edit := func() {
			for _, id := range dead {
				c := f.editOf(id)
				c.Headers = map[string]string{"name": "Eve"}
				f.edit(c)
				copies = append(copies, c.NewID)
			}
			dead = nil
		}
		req := eraseRequest()
		req.AggregateID, req.Open = customer, open
		got, err := f.apiOn(beforeErase{f.Store, edit}).Erase(f.Context(), req)
		f.check(err)
		f.must(len(copies) == 8, "%d copies", len(copies))
		for _, id := range copies {
			f.wantErased(id, open)
		}
		f.must(got.Left == map[bool]int{true: 0, false: 8}[open] && got.Audit == 8, "erased %+v", got)
	}
}
