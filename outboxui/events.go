package outboxui

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// listLimit is how many events a page of a list has.
const listLimit = 50

// eventsView is the list of events.
type eventsView struct {
	filled
	Statuses  []choice
	More      bool // fields of the second part of the form are set
	Newest    bool
	Events    []ops.Event
	Count     ops.Count
	Truncated bool
	First     bool // this is the first page
	NextPage  string
	Clear     string
	Hidden    []field
	MayAct    string // why not; empty: the person may
	Plan      act
	Commands  []string
}

type choice struct {
	Name    string
	Checked bool
}

type field struct{ Name, Value string }

func events(v *visit, _ string) (*frame, error) {
	f := v.frame("events", "Events")
	filter, err := filterOf(v.form, v.now())
	if err != nil {
		return nil, err
	}
	m := &eventsView{
		filled: filled{v.form}, Newest: v.form.Get("order") != "oldest", First: v.form.Get("after") == "",
		Clear: v.base + "events", MayAct: v.why(Act),
	}
	for _, s := range statuses {
		m.Statuses = append(m.Statuses, choice{s.String(), slices.Contains(filter.Statuses, s)})
	}
	for _, name := range []string{"until", "tenant", "error-code", "group", "aggregate-type", "aggregate-id", "cause"} {
		m.More = m.More || m.Form.Get(name) != ""
	}
	page, err := v.api().List(v.ctx(), ops.ListQuery{
		Filter: filter, Newest: m.Newest, After: v.form.Get("after"), Limit: listLimit,
	})
	if err != nil {
		return nil, err
	}
	m.Events, m.Truncated = page.Events, page.Truncated
	if m.Count, err = v.api().Count(v.ctx(), filter); err != nil {
		return nil, err
	}
	q := filterQuery(v.form)
	if !m.Newest {
		q.Set("order", "oldest")
	}
	if page.Next != "" {
		next := url.Values{"after": {page.Next}}
		m.NextPage = "?" + q.Encode() + "&" + next.Encode()
	}
	f.Now = readAt(page.Events, v.now())
	m.describe(v, f, filter, q)
	f.Main = m
	return f, nil
}

// describe writes the first sentence, and what can be done with all of the events.
func (m *eventsView) describe(v *visit, f *frame, filter ops.Filter, q url.Values) {
	what := "events"
	if len(filter.Statuses) > 0 {
		var names []string
		for _, s := range filter.Statuses {
			names = append(names, s.String())
		}
		what = listed(names) + " events"
	}
	if m.Count.N == 1 && !m.Count.More {
		what = strings.TrimSuffix(what, "s")
	}
	if filter.Topic != "" {
		what += " of " + ops.Printable(filter.Topic)
	}
	f.Verdict.Heading = number(m.Count) + " " + what
	if filter.Fingerprint != "" {
		f.Verdict.Heading += ", all with one failure"
	}
	f.Verdict.Heading += "."
	f.Title = f.Verdict.Heading
	onlyDead := len(filter.Statuses) == 1 && filter.Statuses[0] == ops.StatusDead
	switch {
	case m.Count.N == 0 && len(q) == 0:
		f.Verdict.Heading = "The outbox is empty."
		f.Verdict.Next = "Events that a service publishes appear here, and stay until they are cleaned up after " +
			"the retention."
	case m.Count.N == 0:
		f.Verdict.Heading = "No event is like that."
		f.Verdict.Next = "Names are compared letter by letter. Events are deleted after the retention."
	case filter.Fingerprint != "" && onlyDead:
		f.Verdict.Next = "Redrive them step by step in"
		f.Verdict.More = act{Label: "their group", Href: v.base + "groups/" + url.PathEscape(filter.Fingerprint)}
	case onlyDead:
		f.Verdict.Next = "Redrive them by their failures, step by step, or choose single ones here."
		f.Verdict.More = act{Label: "Groups", Href: v.base + "groups"}
	}
	if m.Truncated {
		f.Verdict.Next += " The page is short, because 10,000 rows were compared: go on, or filter by state, key " +
			"or time."
	}
	if onlyDead && m.Count.N > 0 {
		q.Del("order")
		m.Plan = v.button("Plan a redrive of all "+number(m.Count)+"…", "", "plan-redrive", q, "")
	}
	words := []string{"list"}
	for _, s := range filter.Statuses {
		words = append(words, "--status", s.String())
	}
	words = append(words, filterFlags(m.Form)...)
	if m.Newest {
		words = append(words, "--newest")
	}
	m.Commands = []string{commandOf(words...)}
}

// readAt is the time of the database's clock at which the events were read.
func readAt(events []ops.Event, otherwise time.Time) time.Time {
	if len(events) > 0 {
		return events[0].ReadAt
	}
	return otherwise
}

// now is the time of this machine, for values that are not compared with times of the database.
func (v *visit) now() time.Time { return time.Now() }

// selectedRows are the rows that a form names, each once.
func (v *visit) selectedRows() ([]string, error) {
	var rows []string
	for _, row := range v.form["row"] {
		if !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
	}
	switch {
	case len(rows) == 0:
		return nil, refusal{http.StatusBadRequest, "No event is selected."}
	case len(rows) > ops.DefaultLimit:
		return nil, refusal{http.StatusBadRequest, "More than 100 events are selected: plan a redrive of all instead."}
	}
	return rows, nil
}
