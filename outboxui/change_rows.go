package outboxui

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// lostRace is an error about rows that others have changed first.
type lostRace struct {
	action  ops.Action
	rows    []ops.Event // as they are now
	changed int         // of them were changed by this request
	tried   int
	again   string // the address that begins again with the rest; empty: nothing is left
}

func (l *lostRace) Error() string { return "others have changed the rows first" }

// orLost shows who was faster, if that is why a change was not made.
func (v *visit) orLost(err error) (*frame, error) {
	var lost *lostRace
	if !errors.As(err, &lost) {
		if errors.Is(err, ops.ErrPlanRunning) || errors.Is(err, ops.ErrPlanEnded) ||
			errors.Is(err, ops.ErrPlanChanged) {
			err = refusal{http.StatusConflict, "Somebody else was faster. " + sentence(err)}
		}
		return nil, err
	}
	return v.lost(lost)
}

// rowsView is what became of rows.
type rowsView struct {
	Rows  []changedRow
	More  int // rows that are not listed
	Again act
}

type changedRow struct {
	ops.Event
	By *core.AuditRecord // the last change; nil: not by a person, or it was not asked
}

// maxNamed is how many rows a result names with the person who changed them: one statement each.
const maxNamed = 20

func (v *visit) changedRows(rows []ops.Event) (*rowsView, error) {
	m := &rowsView{}
	for _, e := range rows[:min(len(rows), maxNamed)] {
		page, err := v.api().Audit(v.ctx(), ops.AuditQuery{RowID: e.ID, Limit: 5})
		if err != nil {
			return nil, err
		}
		row := changedRow{Event: e}
		for _, r := range page.Records {
			if r.Action != ops.AuditReveal {
				row.By = &r
				break
			}
		}
		m.Rows = append(m.Rows, row)
	}
	m.More = len(rows) - len(m.Rows)
	return m, nil
}

func (v *visit) lost(l *lostRace) (*frame, error) {
	m, err := v.changedRows(l.rows)
	if err != nil {
		return nil, err
	}
	f := v.frame("rows", "Somebody else was faster")
	f.Current, f.Main, f.Status, f.Now = "events", m, http.StatusConflict, readAt(l.rows, v.now())
	f.Verdict = verdict{
		Kind: "warn", Trail: []crumb{{Label: "Events", Href: v.base + "events"}, {Label: string(l.action)}},
		States: []state{{"warn", "not changed by you"}},
		Heading: fmt.Sprintf("%s of %s %s changed by you: somebody else, or a relay, was faster.", number(l.changed),
			plural(l.tried, "event"), verbOf(l.changed, "was", "were")),
		Next: "Each event changes once. The table says where the others are now, and who did it.",
	}
	if l.changed == 0 {
		f.Verdict.Heading = "Nothing was changed: somebody else, or a relay, was faster."
		if l.tried == 1 {
			f.Verdict.Heading = "The event is " + stateOf(&l.rows[0], f.Now).Text + ": there is nothing to " +
				string(l.action) + "."
		}
	}
	if l.again != "" {
		m.Again = act{Label: "Go on with the others…", Class: "main", Href: l.again}
	}
	f.Title = f.Verdict.Heading
	return f, nil
}

// fits reports whether an action can change the event.
func fits(action ops.Action, e *ops.Event) bool {
	return e.Status == ops.StatusDead || action == ops.ActionDiscard && e.Status.Open()
}

// rows proposes to redrive or to discard the selected rows.
func (v *visit) rows(action ops.Action) (*proposal, error) {
	selected, err := v.selectedRows()
	if err != nil {
		return nil, err
	}
	ids := make([]core.RowID, len(selected))
	for i, row := range selected {
		if ids[i], err = core.ParseRowID(row); err != nil {
			return nil, refusal{http.StatusBadRequest, "“" + cut(row, 60) + "” is no row id."}
		}
	}
	all, err := v.api().Rows(v.ctx(), ids...)
	if err != nil {
		return nil, err
	}
	var good []core.RowID
	var goodRows, others []ops.Event
	for _, e := range all {
		if fits(action, &e) {
			good, goodRows = append(good, e.ID), append(goodRows, e)
		} else {
			others = append(others, e)
		}
	}
	if len(all) == 0 {
		return nil, refusal{http.StatusNotFound, "None of these events is in the table any more."}
	}
	if len(others) > 0 {
		lost := &lostRace{action: action, rows: others, tried: len(ids)}
		if len(good) > 0 {
			q := v.on()
			for _, id := range good {
				q.Add("row", id.String())
			}
			lost.again = v.base + "confirm?" + confirmQuery(string(action), q)
		}
		return nil, lost
	}
	plan, err := v.api().PlanRows(v.ctx(), action, good...)
	if err != nil {
		return nil, err
	}
	return v.rowsProposal(action, plan, goodRows), nil
}

func (v *visit) rowsProposal(action ops.Action, plan ops.Plan, rows []ops.Event) *proposal {
	n := len(plan.IDs)
	p := &proposal{
		Trail: []crumb{{Label: "Events", Href: v.base + "events"}, {Label: string(action)}},
		Rows:  rows, RowsTitle: plural(n, "event"), Digest: plan.Digest, keep: v.on("row"), Back: v.base + "events/" +
			plan.IDs[0].String(),
		Note: "An event that somebody else changes first is left alone. The result names it.",
	}
	if n > 1 {
		p.Back = v.base + "events?status=dead"
	}
	p.Facts = v.planFacts(plan)
	words := make([]string, 0, n+5)
	words = append(words, string(action))
	for _, id := range plan.IDs[:min(n, 5)] {
		words = append(words, id.String())
	}
	if n > 5 {
		words = append(words, "...")
	}
	p.Commands = []string{commandOf(append(words, "--reason", "WHY", "--actor", v.actor)...)}
	if n > 5 {
		p.Foot = "The command takes the ids of all " + number(n) + " events."
	}
	topics := topicsOf(plan)
	switch action {
	case ops.ActionDiscard:
		p.Heading = "Discard " + plural(n, "event") + " of " + topics + "?"
		p.Next = verbOf(n, "It is", "They are") + " never published, and cannot be redriven. Later events of " +
			verbOf(n, "its key", "their keys") + " go on."
		p.Button, p.Class = "Discard "+number(n)+v.environment(), "danger"
		p.Facts = append(p.Facts, fact{Name: "Undo", Text: "none: a discarded event stays discarded"})
	default:
		p.Heading = "Redrive " + plural(n, "event") + " to " + topics + "?"
		p.Next = verbOf(n, "It goes", "They go") + " to " + topics + v.environment() +
			" again, with fresh attempts. Repair what made " + verbOf(n, "it", "them") + " fail first."
		p.Button, p.Class = "Redrive "+number(n)+v.environment(), "main"
		p.Facts = append(p.Facts, fact{Name: "Undo", Text: "none: what is published stays published"})
	}
	p.do = func(reason string) (*frame, error) { return v.apply(action, plan, reason) }
	return p
}

// apply changes the rows of a plan, and shows the results.
func (v *visit) apply(action ops.Action, plan ops.Plan, reason string) (*frame, error) {
	done, err := v.api().Apply(v.ctx(), plan, v.actor, reason)
	if err != nil && done.Changed == 0 {
		return nil, err
	}
	if err == nil && done.Changed == len(plan.IDs) && len(plan.IDs) == 1 {
		v.redirect(v.base + "events/" + plan.IDs[0].String())
		return nil, nil //nolint:nilnil // it was a redirect
	}
	rows, rerr := v.api().Rows(v.ctx(), plan.IDs...)
	if rerr != nil {
		return nil, rerr
	}
	if err == nil && done.Changed < len(plan.IDs) {
		return nil, &lostRace{action: action, rows: rows, changed: done.Changed, tried: len(plan.IDs)}
	}
	m, rerr := v.changedRows(rows)
	if rerr != nil {
		return nil, rerr
	}
	f := v.frame("rows", plural(done.Changed, "event")+" "+verbOf(done.Changed, "was", "were")+" changed")
	f.Current, f.Main, f.Now = "events", m, readAt(rows, v.now())
	f.Verdict = verdict{
		Trail:  []crumb{{Label: "Events", Href: v.base + "events"}, {Label: string(action)}},
		States: []state{{"ok", "done"}}, Heading: fmt.Sprintf("%s of %s %s: %s.", number(done.Changed),
			plural(len(plan.IDs), "event"),
			map[ops.Action]string{
				ops.ActionDiscard: "are discarded",
				ops.ActionRedrive: "are redriven",
			}[action], cut(reason, 200)),
	}
	if err != nil { // some were changed
		f.Verdict.Kind, f.Verdict.States = "bad", []state{{"warn", "partly done"}}
		f.Verdict.Next = "Then it failed. Do it again for the others: those that were changed are left alone."
		f.Verdict.Last, f.Verdict.Text = "The error:", sentence(err)
		f.Status = http.StatusInternalServerError
	}
	return f, nil
}

// topicsOf names the destinations of a plan.
func topicsOf(p ops.Plan) string {
	var names []string
	for topic := range p.Topics {
		names = append(names, cut(topic, 60))
	}
	switch {
	case len(names) == 0:
		return "their destinations"
	case len(names) > 3:
		return plural(len(names), "destination")
	}
	return listed(sorted(names))
}

// planFacts are what a plan touches.
func (v *visit) planFacts(p ops.Plan) []fact {
	facts := []fact{{Name: "Events", Text: number(len(p.IDs)) + ", exact"}}
	if p.More {
		facts[0].Text = number(len(p.IDs)) + " now; there are more, and a plan has no more than that: make " +
			"another one after it"
	}
	keys := "none: the events have no order"
	if p.Keys > 0 {
		keys = number(p.Keys) + "; later events that wait in them follow by themselves"
	}
	facts = append(facts, fact{Name: "Keys", Text: keys}, fact{Name: "Destination", Text: v.destinationState(p)})
	if !p.Oldest.IsZero() {
		const layout = "2 January 15:04:05"
		facts = append(facts, fact{Name: "Created", Text: p.Oldest.UTC().Format(layout) + " to " +
			p.Newest.UTC().Format(layout)})
	}
	if p.Action != ops.ActionDiscard {
		if readers := v.readers(p); readers != "" {
			facts = append(facts, fact{Name: "Read by", Text: readers})
		}
	}
	return facts
}

// destinationState names the destinations of a plan, and what holds their events back.
func (v *visit) destinationState(p ops.Plan) string {
	if len(p.Topics) != 1 {
		return topicsOf(p)
	}
	for topic := range p.Topics {
		pauses, err := v.api().Pauses(v.ctx())
		for _, pause := range pauses {
			if err == nil && pause.Tenant == "" && pause.Covers(topic, "") {
				return topic + ", which " + pause.Actor + " has paused: the events wait until it is resumed"
			}
		}
		if s, err := v.api().Outage(v.ctx(), topic); err == nil && s != nil {
			return topic + ", which is down: the events wait until it takes events again"
		}
		return topic + ", which takes events"
	}
	return ""
}

// readers names the consumers that have declared that they read the topics of a plan.
func (v *visit) readers(p ops.Plan) string {
	windows, err := v.api().Windows(v.ctx())
	if err != nil {
		return ""
	}
	var names []string
	for _, w := range windows {
		if p.Topics[w.Topic] > 0 {
			names = append(names, cut(w.Consumer, 60)+" ("+keeps(w.Keep)+")")
		}
	}
	if len(names) == 0 {
		return ""
	}
	return listed(sorted(names)) + ": each skips a copy that it knows"
}

// keeps describes how long a consumer remembers.
func keeps(d time.Duration) string {
	if d == ops.Forever {
		return "remembers for ever"
	}
	return "remembers for " + strings.TrimSuffix(span(d), " 0 h")
}
