package outboxui

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// consumerRow is a handler of a consumer.
type consumerRow struct {
	inbox.Backlog
	Shape state
}

func consumerRows(all []inbox.Backlog) (rows []consumerRow) {
	for _, b := range all {
		row := consumerRow{Backlog: b, Shape: state{"ok", "processes"}}
		switch {
		case b.Dead > 0:
			row.Shape = state{"parked", "gave up " + number(b.Dead)}
		case b.Failed > 0:
			row.Shape = state{"warn", "failing"}
		case b.LastProcessed.IsZero():
			row.Shape = state{"wait", "idle"}
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b consumerRow) int { return cmp.Compare(b.Dead, a.Dead) })
	return rows
}

// causeRow is what messages of a consumer failed with.
type causeRow struct {
	Handler, Code, Pattern string
	Dead, Failing          int
	First, Last            time.Time
}

// messageRow is a message that a consumer failed with.
type messageRow struct {
	inbox.FailedEvent
	Shape state
	Value string // names it in a form
}

// consumersView is the page of the consumers.
type consumersView struct {
	There     bool
	Handlers  []consumerRow
	Consumer  string
	Status    string
	Event     string
	Causes    []causeRow
	Messages  []messageRow
	Truncated bool
	NextPage  string
	MayAct    string
	Release   *release // the latest of the consumer by this process; nil: none
	Statuses  []choiceOf
	Commands  []string
}

func consumers(v *visit, _ string) (*frame, error) {
	all, err := v.api().Consumers(v.ctx())
	if err != nil {
		return nil, err
	}
	m := &consumersView{
		There: all.There, Handlers: consumerRows(all.Handlers), MayAct: v.why(Act),
		Consumer: v.form.Get("consumer"), Status: v.form.Get("status"), Event: strings.TrimSpace(v.form.Get("event")),
	}
	f := v.frame("consumers", "Consumers")
	f.Main, f.Now = m, v.now()
	if !m.There {
		f.Verdict.Heading = "This database has no inbox."
		f.Verdict.Next = "Consumers whose inbox is in another database are on the page of that one. `outbox " +
			"migrate up --tables inbox` makes the tables."
		return f, nil
	}
	m.commands()
	if err := m.messages(v); err != nil {
		return nil, err
	}
	f.Verdict = m.verdict(v)
	f.Title = f.Verdict.Heading
	if m.Release = v.box.releases.of(m.Consumer); m.Release != nil {
		f.Live = m.Release.Running
	}
	return f, nil
}

func (m *consumersView) commands() {
	words := []string{"inbox", "list"}
	for _, flag := range []struct{ name, value string }{
		{"--consumer", m.Consumer},
		{"--status", m.Status},
		{"--event", m.Event},
	} {
		if flag.value != "" {
			words = append(words, flag.name, flag.value)
		}
	}
	m.Commands = []string{commandOf("inbox"), commandOf(words...)}
	for _, name := range []string{"", "dead", "failed", "redriven", "discarded"} {
		m.Statuses = append(m.Statuses, choiceOf{name, cmp.Or(name, "all"), name == m.Status})
	}
}

// messages reads a page of what the consumers failed with, and sums it up by its causes.
func (m *consumersView) messages(v *visit) error {
	page, err := v.api().Messages(v.ctx(), inbox.FailedQuery{
		Consumer: m.Consumer, EventID: m.Event, Status: inbox.Status(m.Status), After: v.form.Get("after"),
		Limit: listLimit,
	})
	if err != nil {
		return err
	}
	causes := map[[3]string]*causeRow{}
	for _, e := range page.Events {
		m.Messages = append(m.Messages, messageRow{e, messageState(e.Status), messageValue(e.Key)})
		if e.Status != inbox.StatusDead && e.Status != inbox.StatusFailed {
			continue
		}
		name := [3]string{e.Handler, e.Code, ops.Pattern(e.Text)}
		c := causes[name]
		if c == nil {
			c = &causeRow{Handler: e.Handler, Code: e.Code, Pattern: name[2], First: e.ReceivedAt}
			causes[name] = c
		}
		if e.Status == inbox.StatusDead {
			c.Dead++
		} else {
			c.Failing++
		}
		if e.ReceivedAt.Before(c.First) {
			c.First = e.ReceivedAt
		}
		if e.FailedAt.After(c.Last) {
			c.Last = e.FailedAt
		}
	}
	for _, c := range causes {
		m.Causes = append(m.Causes, *c)
	}
	slices.SortFunc(m.Causes, func(a, b causeRow) int {
		return cmp.Or(cmp.Compare(b.Dead+b.Failing, a.Dead+a.Failing), strings.Compare(a.Pattern, b.Pattern),
			strings.Compare(a.Handler, b.Handler))
	})
	m.Truncated = page.Truncated
	if page.Next != "" {
		q := url.Values{"after": {page.Next}}
		for name, value := range map[string]string{"consumer": m.Consumer, "status": m.Status, "event": m.Event} {
			if value != "" {
				q.Set(name, value)
			}
		}
		m.NextPage = "?" + q.Encode() + "#parked"
	}
	return nil
}

func messageState(s inbox.Status) state {
	switch s {
	case inbox.StatusDead:
		return state{"parked", "gave up"}
	case inbox.StatusFailed:
		return state{"warn", "failing"}
	case inbox.StatusRedriven:
		return state{"wait", "waits for its delivery"}
	case inbox.StatusDiscarded:
		return state{"gone", "discarded"}
	case inbox.StatusProcessed:
		return state{"ok", "processed"}
	case inbox.StatusProcessing:
		return state{"run", "works on it"}
	}
	return state{"wait", "no record"}
}

// messageValue names a message in a form.
func messageValue(k inbox.Key) string {
	return url.Values{"c": {k.Consumer}, "h": {k.Handler}, "t": {k.Tenant}, "e": {k.EventID}}.Encode()
}

func messageKey(value string) (k inbox.Key, err error) {
	q, err := url.ParseQuery(value)
	if err != nil {
		return k, err
	}
	k = inbox.Key{Consumer: q.Get("c"), Handler: q.Get("h"), Tenant: q.Get("t"), EventID: q.Get("e")}
	return k, k.Validate()
}

func (m *consumersView) verdict(v *visit) verdict {
	d := verdict{}
	parked, failing, worst := 0, 0, ""
	for _, h := range m.Handlers {
		if m.Consumer != "" && h.Consumer != m.Consumer {
			continue
		}
		if h.Dead > 0 && worst == "" {
			worst = h.Consumer
		}
		parked, failing = parked+h.Dead, failing+h.Failed
	}
	switch {
	case len(m.Handlers) == 0:
		d.Heading = "No consumer has used the inbox yet."
		d.Next = "A consumer appears here when it starts with this database."
	case parked > 0:
		d.Kind, d.States = "warn", []state{{"parked", number(parked) + " given up"}}
		d.Heading = fmt.Sprintf("Consumer %s gave up %s.", cut(worst, 60), plural(parked, "message"))
		if n := others(m.Handlers, worst); n > 0 && m.Consumer == "" {
			d.Heading = fmt.Sprintf("Consumer %s and %s gave up %s.", cut(worst, 60), plural(n, "other"),
				plural(parked, "message"))
		}
		d.Next = "Remove the cause, then redrive one message and have it delivered again: from its dead-letter " +
			"queue by `outbox inbox release`, or by a replay of its event."
		if len(m.Causes) > 0 {
			d.Last, d.Text = "Most of them failed with", m.Causes[0].Pattern
		}
		d.Acts = v.releaseActs(worst, parked)
		if v.box.poisonQueue(worst) != nil {
			d.Next = "Remove the cause, then release one message and see whether " + cut(worst, 60) + " processes it."
		}
		if m.Consumer == "" {
			d.Acts = append(d.Acts, act{Label: "See what " + cut(worst, 40) + " gave up", Href: v.base + "consumers?" +
				url.Values{"consumer": {worst}, "status": {"dead"}}.Encode() + "#parked"})
		}
	case failing > 0:
		d.States = []state{{"warn", plural(failing, "message") + " failing"}}
		d.Heading = plural(failing, "message") + " failed and " + verbOf(failing, "is", "are") +
			" tried again at the next delivery."
	default:
		d.Heading = "Every consumer processes what it gets."
	}
	return d
}

// others counts the other consumers that have given up something.
func others(rows []consumerRow, but string) int {
	names := map[string]bool{}
	for _, r := range rows {
		if r.Dead > 0 && r.Consumer != but {
			names[r.Consumer] = true
		}
	}
	return len(names)
}
