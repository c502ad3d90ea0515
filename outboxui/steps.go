package outboxui

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// stepSizes are the first two steps of a redrive and of a replay, as RunPlan has them.
var stepSizes = []int{1, 10}

// planView is a stored plan with its steps.
type planView struct {
	ops.StoredPlan
	Shape state
	Steps []step
	Acts  []act
}

// step is one step of a plan.
type step struct {
	Name     string
	State    state
	Here     bool
	Text     string
	Link     act // to the event of a step with one
	Done, Of int // for the bar; Of is 0 without one
	Act      act
	Cancel   act
}

// planView reads what the first steps have done. It costs one statement more than the plan.
func (v *visit) planView(p ops.StoredPlan) (*planView, error) {
	m := &planView{StoredPlan: p, Shape: planState(&p)}
	m.steps(v)
	if len(p.IDs) > 0 && p.Position > 0 && p.Action == ops.ActionRedrive && len(m.Steps) > 0 {
		first, err := v.api().Rows(v.ctx(), p.IDs[0])
		if err != nil {
			return nil, err
		}
		if len(first) == 1 && m.Steps[0].Name == m.verb()+" 1" {
			m.Steps[0].Link = act{
				Label: cut(first[0].Type, 80) + ", " + placeOf(&first[0]),
				Href:  v.base + "events/" + first[0].ID.String(),
			}
		}
	}
	return m, nil
}

func planState(p *ops.StoredPlan) state {
	switch p.State {
	case ops.PlanPlanned:
		return state{"wait", "planned"}
	case ops.PlanRunning:
		if !p.Running() {
			return state{"warn", "its process is gone"}
		}
		return state{"run", "running"}
	case ops.PlanPaused:
		return state{"paused", "paused"}
	case ops.PlanStopped:
		return state{"warn", "stopped"}
	case ops.PlanCancelled:
		return state{"gone", "cancelled"}
	default:
		return state{"ok", "done"}
	}
}

// verb names what the plan does to its events.
func (m *planView) verb() string { return planTitle(m.Action) }

func planTitle(action ops.Action) string {
	switch action {
	case ops.ActionDiscard:
		return "Discard"
	case ops.ActionReplay:
		return "Replay"
	default:
		return "Redrive"
	}
}

// steps divides the plan. A plan that stopped begins with a single event again.
func (m *planView) steps(v *visit) {
	stage, from := m.Stage, 0
	if m.State == ops.PlanStopped {
		stage = 0
	}
	switch {
	case m.Action == ops.ActionDiscard: // it has one step
	case stage == 0:
		from = m.Position
	case stage == 1:
		from = m.Position - 1
	}
	if from > 0 {
		m.Steps = append(m.Steps, step{
			Name: "Before", State: state{"gone", "stopped"},
			Text: m.outcome(from),
		})
	}
	at := from
	var sizes []int
	if m.Action != ops.ActionDiscard {
		sizes = stepSizes
	}
	for i := range len(sizes) + 1 {
		rest := m.Events - at
		if rest <= 0 {
			break
		}
		n, name := rest, "all "+number(rest)
		if i < len(sizes) {
			n = min(sizes[i], rest)
			name = number(n)
		} else if i > 0 {
			name = "the other " + number(rest)
		}
		m.Steps = append(m.Steps, m.step(v, m.verb()+" "+name, at, n))
		at += n
	}
}

// step is the step with n events from a position on.
func (m *planView) step(v *visit, name string, from, n int) step {
	s := step{Name: name}
	end := from + n
	switch {
	case m.Judged >= end || m.State == ops.PlanDone:
		s.State = state{"ok", "worked off"}
		if m.Judged == end || m.State == ops.PlanDone && end == m.Events {
			s.Text = m.outcome(end)
		}
	case m.Running() && m.Position > from || m.Running() && m.Judged == from:
		worked := max(0, min(m.Position, end)-from)
		s.State, s.Here = state{"run", percent(worked, n) + " worked off"}, true
		s.Done, s.Of = worked, n
		s.Text = m.outcome(m.Position)
		s.Act = v.button("Pause…", "", "plan-pause", m.query(), "")
		s.Cancel = v.button("Cancel the rest…", "danger", "plan-cancel", m.query(), "")
	case m.State.Ended():
		s.State = state{"gone", "not run"}
		if m.Position > from {
			s.Text = m.outcome(m.Position)
		}
	case m.Judged >= from: // it is the next one
		s.Here = true
		s.State = m.Shape
		if m.Position > from {
			s.Text = m.outcome(m.Position)
			s.Done, s.Of = min(m.Position, end)-from, n
		}
		label := name
		if m.Position > from {
			label = "Go on with " + number(end-m.Position)
		}
		class := "main"
		if m.Action == ops.ActionDiscard {
			class = "danger"
		}
		s.Act = v.button(label+"…", class, "plan-step", m.query(), "")
		s.Cancel = v.button("Cancel the rest…", "danger", "plan-cancel", m.query(), "")
	default:
		s.State = state{"wait", "not yet"}
		s.Act = act{Label: name + "…", Why: "After the step before it."}
	}
	return s
}

func (m *planView) query() url.Values {
	return url.Values{"plan": {m.ID}, "version": {strconv.FormatInt(m.Version, 10)}}
}

// outcome describes the results of the events up to a position.
func (m *planView) outcome(position int) string {
	if m.Action == ops.ActionDiscard {
		return fmt.Sprintf("%s discarded, %s to go.", number(m.Changed), number(m.Events-m.Position))
	}
	text := fmt.Sprintf("%s published, %s failed again", number(m.Succeeded), number(m.Failed))
	if away := m.Position - m.Judged; away > 0 {
		text += fmt.Sprintf(", %s on the way", number(away))
	}
	if left := m.Position - m.Changed; left > 0 {
		text += fmt.Sprintf(", %s left alone because somebody else changed them", number(left))
	}
	if togo := m.Events - position; togo > 0 {
		text += fmt.Sprintf(", %s to go", number(togo))
	}
	return text + "."
}

func percent(n, of int) string { return strconv.Itoa(100*n/max(1, of)) + " %" }
