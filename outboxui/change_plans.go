package outboxui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// stepWait is how long the answer to a step waits for its outcome. A longer step goes on, and the
// next page shows how far it is.
const stepWait = 2 * time.Second

// run works off a plan, or its next steps, in this process.
func (v *visit) run(id string, o ops.RunOptions) error {
	h, api, ended := v.ui, v.api(), make(chan error, 1)
	h.runs.Go(func() {
		p, err := api.RunPlan(h.ctx, id, o)
		if err != nil && !errors.Is(err, ops.ErrPlanStopped) && !errors.Is(err, context.Canceled) {
			h.cfg.Logger.Error("outboxui: a plan could not go on", "plan", id, "state", p.State, "error", err)
		}
		ended <- err
	})
	select {
	case err := <-ended:
		if err != nil && !errors.Is(err, ops.ErrPlanStopped) { // the page of the plan has the reason
			return err
		}
	case <-v.ctx().Done():
	case <-time.After(stepWait):
	}
	return nil
}

// limitFields are the limits of a run.
func (v *visit) limitFields(p *proposal, rate string) {
	p.Limits = "Limits of this run"
	p.Fields = append(p.Fields,
		v.input("rate", "Events a second, 0 for no limit", rate),
		v.input("stop-share", "Stop above this share of failures", "0.1"),
		v.input("wait", "Wait for an outcome at most", "1m"))
	p.Fields[0].Mode, p.Fields[1].Mode = "decimal", "decimal"
}

func (v *visit) runOptions(steps int) (o ops.RunOptions, err error) {
	o = ops.RunOptions{Actor: v.actor, Steps: steps}
	number := func(name string, to *float64) {
		if text := strings.TrimSpace(v.form.Get(name)); text != "" && err == nil {
			if *to, err = strconv.ParseFloat(text, 64); err != nil {
				err = refusal{http.StatusBadRequest, "“" + cut(text, 40) + "” is no number."}
			}
		}
	}
	number("rate", &o.Rate)
	number("stop-share", &o.StopShare)
	if text := strings.TrimSpace(v.form.Get("wait")); text != "" && err == nil {
		if o.Wait, err = spanOf(text); err != nil {
			err = refusal{http.StatusBadRequest, "“" + cut(text, 40) + "” is no duration: write one such as 30s or 5m."}
		}
	}
	return o, err
}

// freeze proposes a plan of the events that a filter selects.
func (v *visit) freeze(action ops.Action) (*proposal, error) {
	q := filterQuery(v.form)
	q.Del("status")
	if len(q) == 0 && action == ops.ActionDiscard {
		return nil, refusal{http.StatusBadRequest, "A filter is required, such as a group: this would discard " +
			"every dead event."}
	}
	filter, err := filterOf(q, v.now())
	if err != nil {
		return nil, err
	}
	filter.Statuses = nil // dead
	if err := v.noOpenPlan(filter.Fingerprint); err != nil {
		return nil, err
	}
	plan := v.api().PlanRedrive
	if action == ops.ActionDiscard {
		plan = v.api().PlanDiscard
	}
	frozen, err := plan(v.ctx(), filter, 0)
	if err != nil {
		return nil, err
	}
	if len(frozen.IDs) == 0 {
		return nil, refusal{http.StatusConflict, "No event of these is dead any more: somebody else, or a relay, " +
			"was faster."}
	}
	rows, err := v.api().Rows(v.ctx(), frozen.IDs[:min(5, len(frozen.IDs))]...)
	if err != nil {
		return nil, err
	}
	return v.freezeProposal(action, frozen, rows, q), nil
}

// noOpenPlan refuses a second plan for a group.
func (v *visit) noOpenPlan(fingerprint string) error {
	if fingerprint == "" {
		return nil
	}
	all, err := v.api().StoredPlans(v.ctx(), ops.DefaultLimit)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.Filter.Fingerprint == fingerprint && !p.State.Ended() {
			return refusal{http.StatusConflict, fmt.Sprintf("%s has frozen this group at %s: plan %s is %s. Go on "+
				"with that one, or cancel it.",
				cut(p.Actor, 60), p.CreatedAt.UTC().Format("15:04:05"), p.ID, planState(&p).Text)}
		}
	}
	return nil
}

func (v *visit) freezeProposal(action ops.Action, frozen ops.Plan, rows []ops.Event, q url.Values) *proposal {
	n, topics := len(frozen.IDs), topicsOf(frozen)
	p := &proposal{
		Trail: []crumb{{Label: "Plans", Href: v.base + "plans"}, {Label: string(action)}},
		Back:  v.base + "events?" + q.Encode(), Digest: frozen.Digest, keep: q,
		Rows: rows, RowsTitle: fmt.Sprintf("The first %d of %s", len(rows), number(n)),
		RowsHref: v.base + "events?status=dead&" + q.Encode(),
		Note:     "An event that somebody else changes first is left alone. The result counts it.",
	}
	if fp := frozen.Filter.Fingerprint; fp != "" && len(q) == 1 {
		p.Back = v.groupHref(fp)
		p.Trail = []crumb{
			{Label: "Groups", Href: v.base + "groups"},
			{Label: fp, Href: p.Back, Code: true},
			{Label: string(action)},
		}
	}
	p.Facts = v.planFacts(frozen)
	flags := filterFlags(q)
	planned := append(append([]string{string(action), "plan"}, flags...), "--reason", "WHY")
	p.Commands = []string{commandOf(planned...), commandOf(string(action), "apply", "PLAN", "--actor", v.actor)}
	steps := 1
	if action == ops.ActionDiscard {
		steps = 0
		p.Heading = fmt.Sprintf("Discard %s of %s?", plural(n, "dead event"), topics)
		p.Next = "They are never published, and cannot be redriven. Later events of their keys go on."
		p.Button, p.Class = "Discard "+number(n)+v.environment(), "danger"
		p.Facts = append(p.Facts, fact{
			Name: "Undo",
			Text: "none for what is discarded; the rest can be paused or cancelled",
		})
	} else {
		p.Heading = fmt.Sprintf("Freeze %s of %s, and redrive the first one?", plural(n, "dead event"), topics)
		p.Next = fmt.Sprintf("One event goes to %s%s now. The others stay dead for now: see first what becomes of it.",
			topics, v.environment())
		if n == 1 {
			p.Heading = "Redrive the one dead event of " + topics + "?"
			p.Next = "It goes to " + topics + v.environment() + " again, with fresh attempts."
		}
		p.Button, p.Class = fmt.Sprintf("Freeze %s, redrive 1%s", number(n), v.environment()), "main"
		p.Facts = append(p.Facts, fact{
			Name: "Undo",
			Text: "none for what is published; the rest can be paused or cancelled",
		})
		p.Foot = "The page asks before each step. The command does not: once the first event is published, it " +
			"redrives 10, and then the rest."
		v.limitFields(p, "")
	}
	p.do = func(reason string) (*frame, error) {
		o, err := v.runOptions(steps)
		if err != nil {
			return nil, err
		}
		stored, err := v.api().StorePlan(v.ctx(), frozen, v.actor, reason)
		if err != nil {
			return nil, err
		}
		if err := v.run(stored.ID, o); err != nil {
			return nil, err
		}
		v.redirect(v.planHref(&stored))
		return nil, nil //nolint:nilnil // it was a redirect
	}
	return p
}

// planHref is the page that shows the steps of a plan: its group's, or its own.
func (v *visit) planHref(p *ops.StoredPlan) string {
	f := p.Filter
	f.Statuses = nil
	if f.Fingerprint != "" {
		return v.groupHref(f.Fingerprint)
	}
	return v.base + "plans/" + p.ID
}

// proposeStep proposes the next step of a plan.
func proposeStep(v *visit) (*proposal, error) {
	stored, err := v.api().StoredPlan(v.ctx(), v.form.Get("plan"))
	if err != nil {
		return nil, err
	}
	if stored.State.Ended() {
		return nil, refusal{http.StatusConflict, "The plan is " + string(stored.State) + ": there is no step to run."}
	}
	if stored.Running() {
		return nil, refusal{http.StatusConflict, "The plan is running: somebody else was faster."}
	}
	m, err := v.planView(stored)
	if err != nil {
		return nil, err
	}
	name := "the rest"
	if i := slices.IndexFunc(m.Steps, func(s step) bool { return s.Here }); i >= 0 {
		name = strings.ToLower(strings.TrimSuffix(m.Steps[i].Act.Label, "…"))
	}
	steps := 1
	if m.Action == ops.ActionDiscard || m.State != ops.PlanStopped && m.Stage >= len(stepSizes) {
		steps = 0
	}
	p := &proposal{
		Trail: []crumb{
			{Label: "Plans", Href: v.base + "plans"},
			{Label: m.ID, Href: v.base + "plans/" + m.ID, Code: true},
			{Label: "next step"},
		},
		Heading: upperFirst(name) + " of " + plural(m.Events, "event") + " of " + topicsOf(m.Plan) + "?",
		Next:    "Before: " + m.outcome(m.Position), Reason: stored.Reason + " (of the plan)",
		Facts: []fact{
			{Name: "Plan", Text: m.ID + ", frozen by " + m.Actor + " at " + m.CreatedAt.UTC().Format("15:04:05")},
			{Name: "Left", Text: plural(m.Events-m.Position, "event")},
			{Name: "Destination", Text: v.destinationState(m.Plan)},
			{Name: "Undo", Text: "none for what is published; the rest can be paused or cancelled"},
		},
		Note:   "It stops by itself if too many events of a step fail again.",
		Button: upperFirst(name) + v.environment(), Class: "main", Back: v.planHref(&stored),
		Commands: []string{commandOf(string(m.Action), "apply", m.ID, "--actor", v.actor)},
		Foot:     "The command goes on to the end by itself.",
		Digest:   strconv.FormatInt(stored.Version, 10), keep: v.on("plan"),
	}
	if m.Action == ops.ActionDiscard {
		p.Class = "danger"
	}
	v.limitFields(p, "")
	p.do = func(string) (*frame, error) {
		o, err := v.runOptions(steps)
		if err != nil {
			return nil, err
		}
		if err := v.run(stored.ID, o); err != nil {
			return nil, err
		}
		v.redirect(v.planHref(&stored))
		return nil, nil //nolint:nilnil // it was a redirect
	}
	return p, nil
}

// endPlan proposes to pause or to cancel a plan.
func (v *visit) endPlan(what string) (*proposal, error) {
	stored, err := v.api().StoredPlan(v.ctx(), v.form.Get("plan"))
	if err != nil {
		return nil, err
	}
	if stored.State.Ended() {
		return nil, refusal{http.StatusConflict, "The plan is " + string(stored.State) + " already."}
	}
	if what == "pause" && !stored.Running() {
		return nil, refusal{http.StatusConflict, "The plan does not run: it is " + planState(&stored).Text + "."}
	}
	left := stored.Events - stored.Position
	p := &proposal{
		Trail: []crumb{
			{Label: "Plans", Href: v.base + "plans"},
			{Label: stored.ID, Href: v.base + "plans/" + stored.ID, Code: true},
			{Label: what},
		},
		Facts: []fact{
			{Name: "Plan", Text: stored.ID + ", a " + string(stored.Action) + " of " +
				plural(stored.Events, "event") + " by " + stored.Actor},
			{Name: "Worked off", Text: number(stored.Position) + "; they stay as they are"},
			{Name: "Left", Text: plural(left, "event")},
		},
		Back: v.planHref(&stored), keep: v.on("plan"),
		Commands: []string{commandOf("plans", what, stored.ID, "--reason", "WHY", "--actor", v.actor)},
	}
	end := v.api().PausePlan
	if what == "cancel" {
		end = v.api().CancelPlan
		p.Heading, p.Next = "Cancel the rest of the plan?", plural(left, "event")+" "+verbOf(left, "is",
			"are")+" left as they are now. The plan can never go on."
		p.Button, p.Class = "Cancel the rest"+v.environment(), "danger"
		p.Facts = append(p.Facts, fact{Name: "Undo", Text: "make another plan for the events that are left"})
	} else {
		p.Heading, p.Next = "Pause the plan?", "It changes no more events within a few seconds. Anybody can go on "+
			"with it."
		p.Button, p.Class = "Pause the plan"+v.environment(), "main"
	}
	p.do = func(reason string) (*frame, error) {
		if _, err := end(v.ctx(), stored.ID, v.actor, reason); err != nil {
			return nil, err
		}
		v.redirect(v.planHref(&stored))
		return nil, nil //nolint:nilnil // it was a redirect
	}
	return p, nil
}

// proposeReplay proposes to publish done events again.
func proposeReplay(v *visit) (*proposal, error) {
	selected, err := v.selectedRows()
	if err != nil {
		return nil, err
	}
	o := ops.ReplayOptions{}
	for _, row := range selected {
		id, err := core.ParseRowID(row)
		if err != nil {
			return nil, refusal{http.StatusBadRequest, "“" + cut(row, 60) + "” is no row id."}
		}
		o.IDs = append(o.IDs, id)
	}
	if text := strings.TrimSpace(v.form.Get("window")); text != "" {
		if o.DedupWindow, err = spanOf(text); err != nil {
			return nil, refusal{http.StatusBadRequest, "“" + cut(text, 40) +
				"” is no duration: write one such as 12h or 7d."}
		}
	}
	n := len(o.IDs)
	p := &proposal{
		Trail:   []crumb{{Label: "Events", Href: v.base + "events"}, {Label: "replay"}},
		Heading: "Publish " + plural(n, "event") + " again?",
		Back:    v.base + "events/" + o.IDs[0].String(), keep: v.on("row"), Class: "main",
		Button: "Replay " + number(n) + v.environment(),
		Next:   "Each goes out by a new row with the same event id. Consumers that remember the event skip it.",
		Commands: []string{
			commandOf("replay", "plan", o.IDs[0].String(), "--reason", "WHY"), commandOf("replay", "apply", "PLAN",
				"--actor", v.actor),
		},
		Fields: []input{v.input("window", "How long the consumers remember an event, if none has declared it", "")},
	}
	rows, err := v.api().Rows(v.ctx(), o.IDs...)
	if err != nil {
		return nil, err
	}
	p.Rows, p.RowsTitle = rows, plural(n, "event")
	plan, err := v.api().PlanReplay(v.ctx(), ops.Filter{}, o)
	switch {
	case errors.Is(err, core.ErrInvalidRequest) && o.DedupWindow == 0 && len(rows) == n &&
		!slices.ContainsFunc(rows, func(e ops.Event) bool {
			return e.Status != ops.StatusDone ||
				!e.ReplayOf.IsZero()
		}):
		// No consumer has declared its window: the person has to enter it.
		p.Fields[0].Required, p.Digest = true, "a window is missing"
		p.Facts = []fact{{Name: "Not yet", Text: "no consumer has declared how long it remembers events of this " +
			"topic: write it"}}
		p.Button = "Look at the replay"
		return p, nil
	case err != nil:
		return nil, err
	}
	p.Digest, p.Facts = plan.Digest, v.planFacts(plan)
	if !plan.Until.IsZero() {
		p.Facts = append(p.Facts, fact{Name: "Until", Text: plan.Until.UTC().Format("2 January 15:04:05") +
			": then consumers forget the first event"})
	}
	p.do = func(reason string) (*frame, error) {
		stored, err := v.api().StorePlan(v.ctx(), plan, v.actor, reason)
		if err != nil {
			return nil, err
		}
		if err := v.run(stored.ID, ops.RunOptions{Actor: v.actor, Steps: 1}); err != nil {
			return nil, err
		}
		v.redirect(v.base + "plans/" + stored.ID)
		return nil, nil //nolint:nilnil // it was a redirect
	}
	return p, nil
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}
