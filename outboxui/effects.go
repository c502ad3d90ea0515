package outboxui

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"

	"github.com/ormoutbox/ormoutbox/core/once/command"
)

// effectRow is an effect in a list.
type effectRow struct {
	command.Record
	Shape state
}

// effectsView is the page of the effects.
type effectsView struct {
	filled
	There    bool
	Channels []command.Backlog
	Statuses []choiceOf
	Effects  []effectRow
	NextPage string
	MayAct   string
	Commands []string
}

// effectStatuses are the choices of the filter, the first one by default.
var effectStatuses = []command.Status{
	command.StatusDead, command.StatusPending, command.StatusFailed, command.StatusProcessing, command.StatusCompleted,
	command.StatusDiscarded,
}

func effects(v *visit, _ string) (*frame, error) {
	all, err := v.api().Effects(v.ctx())
	if err != nil {
		return nil, err
	}
	m := &effectsView{There: all.There, Channels: all.Channels, filled: filled{v.form}, MayAct: v.why(Act)}
	f := v.frame("effects", "Effects")
	f.Main, f.Now = m, v.now()
	if !m.There {
		f.Verdict.Heading = "This database has no table of effects."
		f.Verdict.Next = "Effects are calls to the outside world that a transaction decides on, such as webhooks " +
			"and mail. `outbox migrate up --tables effects` makes the table."
		return f, nil
	}
	if err := m.list(v); err != nil {
		return nil, err
	}
	f.Verdict = m.verdict()
	f.Title = f.Verdict.Heading
	return f, nil
}

func (m *effectsView) list(v *visit) error {
	q := command.Query{
		Status: command.StatusDead, Channel: strings.TrimSpace(v.form.Get("channel")),
		Tenant: strings.TrimSpace(v.form.Get("tenant")),
		After:  v.form.Get("after"), Limit: listLimit,
	}
	name, known := v.form.Get("status"), false
	for _, s := range effectStatuses {
		if s.String() == cmp.Or(name, command.StatusDead.String()) {
			q.Status, known = s, true
		}
		m.Statuses = append(m.Statuses, choiceOf{
			s.String(), s.String(),
			s.String() == cmp.Or(name, command.StatusDead.String()),
		})
	}
	if !known {
		return refusal{http.StatusBadRequest, "“" + cut(name, 40) + "” is no state of an effect."}
	}
	page, err := v.api().ListEffects(v.ctx(), q)
	if err != nil {
		return err
	}
	for _, e := range page.Effects {
		m.Effects = append(m.Effects, effectRow{e, effectState(e.Status)})
	}
	words, next := []string{"effects", "list", "--status", q.Status.String()}, url.Values{"status": {q.Status.String()}}
	if q.Channel != "" {
		words = append(words, "--channel", q.Channel)
		next.Set("channel", q.Channel)
	}
	if q.Tenant != "" {
		words = append(words, "--tenant", q.Tenant)
		next.Set("tenant", q.Tenant)
	}
	if page.Next != "" {
		next.Set("after", page.Next)
		m.NextPage = "?" + next.Encode()
	}
	m.Commands = []string{commandOf("effects"), commandOf(words...)}
	return nil
}

func effectState(s command.Status) state {
	switch s {
	case command.StatusDead:
		return state{"dead", "dead"}
	case command.StatusFailed:
		return state{"warn", "failed, tried again"}
	case command.StatusProcessing:
		return state{"run", "being executed"}
	case command.StatusCompleted:
		return state{"ok", "completed"}
	case command.StatusDiscarded:
		return state{"gone", "discarded"}
	default:
		return state{"wait", "waits"}
	}
}

func (m *effectsView) verdict() (d verdict) {
	dead, pending, more := int64(0), int64(0), ""
	for _, c := range m.Channels {
		dead, pending = dead+c.Dead, pending+c.Pending
		if c.Limit > 0 && (c.Dead >= c.Limit || c.Pending >= c.Limit) {
			more = "+"
		}
	}
	switch {
	case dead > 0:
		d.Kind, d.States = "bad", []state{{"dead", number(dead) + more + " dead"}}
		d.Heading = number(dead) + more + " " + nouns(int(dead), "effect") + " " + verbOf(int(dead), "was", "were") +
			" given up."
		d.Next = "Repair the cause, then redrive one of them. What it does outside may have happened: its handler " +
			"has an idempotency key."
	case pending > 0:
		d.Heading = number(pending) + more + " " + nouns(int(pending), "effect") + " " +
			verbOf(int(pending), "waits", "wait") + ", and none is dead."
	default:
		d.Heading = "No effect waits, and none is dead."
	}
	return d
}
