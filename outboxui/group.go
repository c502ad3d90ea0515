package outboxui

import (
	"fmt"
	"net/url"
	"slices"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// groupView is one group of failures.
type groupView struct {
	ops.Group
	Truncated bool
	Plan      *planView // the newest that has not ended, or the newest one; nil: none
	Start     act       // begins a redrive
	Earlier   []ops.StoredPlan
	Newest    []ops.Event
	Deaths    *chart // nil: there is no history
	Discard   act
	NoteWhy   string // why nobody can write a note; empty: they can
	Commands  []string
}

func group(v *visit, id string) (*frame, error) {
	all, err := v.api().Groups(v.ctx(), ops.Filter{Fingerprint: id})
	if err != nil {
		return nil, err
	}
	m := &groupView{Truncated: all.Truncated, NoteWhy: v.why(Act)}
	if len(all.Groups) > 0 {
		m.Group = all.Groups[0]
	}
	if err := m.plans(v, id); err != nil {
		return nil, err
	}
	if m.Fingerprint == "" {
		if m.Plan == nil {
			return nil, ops.ErrNoGroup
		}
		m.Fingerprint = id
	}
	if m.Dead > 0 {
		page, err := v.api().List(v.ctx(), ops.ListQuery{
			Filter: ops.Filter{Fingerprint: id, Statuses: []ops.Status{ops.StatusDead}}, Newest: true, Limit: 5,
		})
		if err != nil {
			return nil, err
		}
		m.Newest = page.Events
	}
	if m.Topic != "" {
		if m.Deaths, err = v.deaths(m.Topic); err != nil {
			return nil, err
		}
	}
	f := v.frame("groups", "")
	f.Template, f.Main, f.Now = "group", m, m.Sample.ReadAt
	if m.Plan != nil {
		f.Now = m.Plan.ReadAt
		f.Live = m.Plan.Running()
	}
	m.acts(v)
	f.Verdict = m.verdict(v)
	f.Title = f.Verdict.Heading
	return f, nil
}

// plans finds the plans of the group among the newest ones.
func (m *groupView) plans(v *visit, id string) error {
	stored, err := v.api().StoredPlans(v.ctx(), ops.DefaultLimit)
	if err != nil {
		return err
	}
	own := slices.DeleteFunc(stored, func(p ops.StoredPlan) bool { return p.Filter.Fingerprint != id })
	if len(own) == 0 {
		return nil
	}
	at := max(0, slices.IndexFunc(own, func(p ops.StoredPlan) bool { return !p.State.Ended() }))
	whole, err := v.api().StoredPlan(v.ctx(), own[at].ID)
	if err != nil {
		return err
	}
	if m.Plan, err = v.planView(whole); err != nil {
		return err
	}
	m.Earlier = slices.Delete(own, at, at+1)
	return nil
}

// open reports whether the group has a plan that has not ended.
func (m *groupView) open() bool { return m.Plan != nil && !m.Plan.State.Ended() }

func (m *groupView) acts(v *visit) {
	of := url.Values{"group": {m.Fingerprint}}
	why := ""
	switch {
	case m.Dead == 0:
		why = "No event of the group is dead now."
	case m.open():
		why = fmt.Sprintf("Not while plan %s is %s: cancel or finish it first.", m.Plan.ID, m.Plan.Shape.Text)
	}
	m.Start = v.button("Redrive 1…", "main", "plan-redrive", of, why)
	m.Discard = v.button("Discard "+plural(m.Dead, "event")+"…", "danger", "plan-discard", of, why)
	m.Commands = []string{
		commandOf("groups"), commandOf("list", "--status", "dead", "--group", m.Fingerprint),
		commandOf("redrive", "plan", "--group", m.Fingerprint, "--reason", "WHY"),
	}
}

func (m *groupView) verdict(v *visit) verdict {
	d := verdict{Trail: []crumb{{Label: "Groups", Href: v.base + "groups"}, {Label: m.Fingerprint, Code: true}}}
	pattern := m.Pattern
	if pattern == "" {
		pattern = m.ErrorCode
	}
	of := "of " + m.Topic
	if m.Topic == "" {
		of = "of this group"
	}
	switch {
	case m.Plan != nil && m.Plan.Running():
		d.Kind, d.States = "run", []state{{"run", m.Plan.verb() + " is running"}}
		d.Heading = fmt.Sprintf("%s %s are worked off; %s are out by now.", plural(m.Plan.Events, "event"), of,
			number(m.Plan.Succeeded))
		if m.Plan.Action == ops.ActionDiscard {
			d.Heading = fmt.Sprintf("%s of %s %s are discarded by now.", number(m.Plan.Changed),
				plural(m.Plan.Events, "event"), of)
		}
		d.Next = "It needs nobody now: if more than 10 % of a step fail again, it stops."
	case m.Plan != nil && m.Plan.State == ops.PlanStopped:
		d.Kind, d.States = "bad", []state{{"warn", m.Plan.verb() + " has stopped"}}
		d.Heading = fmt.Sprintf("The redrive stopped by itself: %s.", m.Plan.Note)
		d.Next = "Repair the cause, then go on: it begins with one event again."
	case m.open():
		d.Kind, d.States = "warn", []state{m.Plan.Shape}
		d.Heading = plural(m.Plan.Events, "event") + " " + of + " " + verbOf(m.Plan.Events, "is", "are") +
			" frozen; the next step waits for you."
		d.Next = "See what became of the last step, then go on or cancel the rest."
	case m.Dead > 0:
		d.Kind, d.States = "bad", []state{{"dead", plural(m.Dead, "dead event")}}
		d.Heading = fmt.Sprintf("%s %s died, all with one failure.", plural(m.Dead, "event"), of)
		d.Next = m.Fix + " Then redrive one of them and see whether it is published."
	case m.Retrying > 0:
		d.Kind, d.States = "", []state{{"warn", plural(m.Retrying, "event") + " retried"}}
		d.Heading = fmt.Sprintf("%s %s failed and are tried again by themselves.", plural(m.Retrying, "event"), of)
	default:
		d.Heading = "No event of this group is left."
		d.Next = "What was redriven is published, or has failed in another way."
	}
	if pattern != "" {
		d.Last, d.Text = "They failed with", pattern
	}
	return d
}
