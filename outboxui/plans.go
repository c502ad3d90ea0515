package outboxui

import (
	"fmt"
	"net/url"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// plansView is the list of plans.
type plansView struct {
	Plans    []ops.StoredPlan
	More     bool
	Commands []string
}

func plans(v *visit, _ string) (*frame, error) {
	all, err := v.api().StoredPlans(v.ctx(), ops.DefaultLimit)
	if err != nil {
		return nil, err
	}
	m := &plansView{Plans: all, More: len(all) == ops.DefaultLimit, Commands: []string{commandOf("plans")}}
	f := v.frame("plans", "Plans")
	f.Main, f.Now = m, v.now()
	running, waiting := 0, 0
	for i := range all {
		f.Now = all[i].ReadAt
		switch {
		case all[i].Running():
			running++
		case !all[i].State.Ended():
			waiting++
		}
	}
	f.Live = running > 0
	switch {
	case running > 0:
		f.Verdict.Kind, f.Verdict.States = "run", []state{{"run", plural(running, "plan") + " running"}}
		f.Verdict.Heading = plural(running, "plan") + isAre(running) + "worked off now."
	case waiting > 0:
		f.Verdict.Kind, f.Verdict.States = "warn", []state{{"paused", plural(waiting, "plan") + " open"}}
		f.Verdict.Heading = plural(waiting, "plan") + " waits for a person."
		if waiting > 1 {
			f.Verdict.Heading = plural(waiting, "plan") + " wait for a person."
		}
		f.Verdict.Next = "Open it: go on with it, or cancel the rest."
	case len(all) == 0:
		f.Verdict.Heading = "There is no plan."
		f.Verdict.Next = "A plan freezes many events, and redrives, replays or discards them step by step. It " +
			"begins in a group of failures, or in the list of events."
	default:
		f.Verdict.Heading = "No plan runs."
	}
	f.Title = f.Verdict.Heading
	return f, nil
}

func isAre(n int) string { return " " + verbOf(n, "is", "are") + " " }

// plan shows one plan.
func plan(v *visit, id string) (*frame, error) {
	p, err := v.api().StoredPlan(v.ctx(), id)
	if err != nil {
		return nil, err
	}
	m, err := v.planView(p)
	if err != nil {
		return nil, err
	}
	f := v.frame("plans", "")
	f.Template, f.Now, f.Live = "plan", p.ReadAt, p.Running()
	of := ""
	if len(p.Topics) == 1 {
		for topic := range p.Topics {
			of = " of " + topic
		}
	}
	f.Verdict = verdict{
		Trail:  []crumb{{Label: "Plans", Href: v.base + "plans"}, {Label: p.ID, Code: true}},
		States: []state{m.Shape},
		Heading: fmt.Sprintf("%s %s%s: %s", m.verb(), plural(p.Events, "event"), of,
			m.outcome(p.Position)),
	}
	if p.Note != "" {
		f.Verdict.Next = "Why: " + p.Note + "."
	}
	switch {
	case p.Running():
		f.Verdict.Kind = "run"
	case p.State == ops.PlanStopped:
		f.Verdict.Kind = "bad"
	case !p.State.Ended():
		f.Verdict.Kind = "warn"
	}
	if p.Filter.Fingerprint != "" {
		f.Verdict.Acts = []act{{Label: "Open its group", Href: v.groupHref(p.Filter.Fingerprint)}}
	}
	f.Title = f.Verdict.Heading
	f.Main = &onePlan{planView: m, Commands: []string{
		commandOf("plans", "show", p.ID), commandOf(string(p.Action), "apply", p.ID, "--actor", v.actor),
	}}
	if !p.State.Ended() && !p.Running() && len(m.Steps) == 0 {
		f.Verdict.Acts = append(f.Verdict.Acts, v.button("Cancel…", "danger", "plan-cancel",
			url.Values{"plan": {p.ID}}, ""))
	}
	return f, nil
}

// onePlan is the page of a plan.
type onePlan struct {
	*planView
	Commands []string
}
