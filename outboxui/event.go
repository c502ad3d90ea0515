package outboxui

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// eventView is one row of an event.
type eventView struct {
	ops.Details
	Why      ops.Explanation
	Life     []happening
	Key      []ops.Event // its neighbours in the key, and itself
	KeyMore  bool
	Siblings []ops.Event // rows of the same event for other destinations
	Trace    string
	TraceURL string
	Acts     []act
	Hint     string
	Edit     string // why it cannot be edited; empty: it can
	Reveal   string // why it cannot be revealed; empty: it can
	Shown    *shown // the revealed content; nil: not revealed
	Commands []string
}

// happening is a line of the timeline.
type happening struct {
	At     time.Time
	Kind   string // of a state
	Said   string // the state in a word, for people who do not see its shape
	Strong string
	Text   string
	Small  string
	Place  string
}

func event(v *visit, id string) (*frame, error) { return showEvent(v, id, nil) }

// forgotten shows what consumers did with an event that is not in the table any more.
func (v *visit) forgotten(id string, missing error) error {
	why, err := v.api().Explain(v.ctx(), id)
	if err != nil || len(why) == 0 {
		return missing
	}
	said := []string{why[0].Text}
	for _, o := range why[0].Consumers {
		said = append(said, o.Said, o.Fix)
	}
	return refusal{http.StatusNotFound, strings.TrimSpace(strings.Join(said, " "))}
}

func showEvent(v *visit, id string, content *shown) (*frame, error) {
	all, err := v.api().Show(v.ctx(), id)
	if errors.Is(err, ops.ErrNotFound) {
		return nil, v.forgotten(id, err)
	}
	if err != nil {
		return nil, err
	}
	m := &eventView{Details: all[0], Shown: content, Reveal: v.why(Reveal)}
	for _, d := range all[1:] {
		m.Siblings = append(m.Siblings, d.Event)
	}
	if len(all) == 1 && m.EventID != "" {
		if m.Siblings, err = v.siblings(m.Event); err != nil {
			return nil, err
		}
	}
	why, err := v.api().Explain(v.ctx(), m.ID.String())
	if err != nil {
		return nil, err
	}
	m.Why = why[0]
	m.Trace, m.TraceURL = v.trace(m.Content.Headers)
	m.Content = ops.Content{ContentType: m.Content.ContentType, Damage: m.Content.Damage} // the rest has to be revealed
	m.Key = append(append(slices.Clone(m.Ahead), m.Event), m.Behind...)
	m.KeyMore = len(m.Ahead) == ops.Neighbours || len(m.Behind) == ops.Neighbours
	m.Life = m.life()
	m.acts(v)
	if m.Edit = v.why(Act); m.Status != ops.StatusDead {
		m.Edit = "Only dead events are edited."
	}
	m.Commands = []string{commandOf("explain", m.ID.String()), commandOf("show", m.ID.String())}

	f := v.frame("events", m.Type)
	f.Template, f.Main, f.Now = "event", m, m.ReadAt
	f.Title = ops.Printable(m.Type) + ", " + placeOf(&m.Event)
	f.Verdict = m.verdict(v)
	return f, nil
}

// siblings returns the other rows of an event.
func (v *visit) siblings(e ops.Event) ([]ops.Event, error) {
	page, err := v.api().List(v.ctx(), ops.ListQuery{Filter: ops.Filter{EventID: e.EventID}, Limit: ops.Neighbours})
	return slices.DeleteFunc(page.Events, func(o ops.Event) bool { return o.ID == e.ID }), err
}

// trace returns the id of the trace of an event, and its address.
func (v *visit) trace(headers map[string]string) (id, address string) {
	parts := strings.Split(headers["traceparent"], "-")
	if len(parts) != 4 || len(parts[1]) != 32 || strings.Trim(parts[1], "0123456789abcdef") != "" {
		return "", ""
	}
	if t := v.ui.cfg.TraceURL; t != "" {
		address = strings.ReplaceAll(t, traceID, parts[1])
	}
	return parts[1], address
}

func (m *eventView) verdict(v *visit) verdict {
	now := m.ReadAt
	d := verdict{
		Trail:   []crumb{{Label: "Events", Href: v.base + "events"}, {Label: m.Type + ", " + placeOf(&m.Event)}},
		States:  []state{stateOf(&m.Event, now)},
		Heading: m.Why.Text, Next: m.Why.Fix, Acts: m.Acts,
	}
	switch m.Why.Reason {
	case ops.ReasonDead, ops.ReasonStopped, ops.ReasonBlocked:
		d.Kind = "bad"
	case ops.ReasonPaused, ops.ReasonUnrelayed:
		d.Kind = "warn"
	case ops.ReasonLeased:
		d.Kind = "run"
	default: // nothing is wrong with it
	}
	for _, o := range m.Why.Consumers { // the outbox is done with it, and a consumer is not
		if o.Status == inbox.StatusDead {
			d.States = append(d.States, state{"parked", "parked by " + cut(o.Consumer, 40)})
			if m.Why.Reason == ops.ReasonDone && d.Kind == "" {
				d.Kind = "warn"
				d.Heading = "Destination " + cut(m.Topic, 60) + " has it, but " + o.Said
				d.Next = "Remove the cause, then redrive it for " + cut(o.Consumer, 40) +
					" and have it delivered again. The outbox has nothing to do."
				return d
			}
		}
	}
	if m.Why.Other != nil {
		d.More = act{Label: "See the event that it waits for", Href: v.base + "events/" + m.Why.Other.ID.String()}
	}
	// The first sentence is the state, and the others are its consequences.
	if first, rest, ok := strings.Cut(m.Why.Text, ". "); ok {
		d.Heading, d.Next = first+".", strings.TrimSpace(rest+" "+d.Next)
	}
	if m.Why.Reason == ops.ReasonDead { // the buttons are the rest of its fix
		remedy, _, _ := strings.Cut(m.Why.Fix, ". ")
		d.Next = remedy + ". Then redrive it, or discard it."
		if b := m.Why.Blocks; b != nil && b.N > 0 {
			d.Next += fmt.Sprintf(" %s of its key %s for it.", number(*b)+" later "+nouns(b.N, "event"),
				verbOf(b.N, "waits", "wait"))
		}
	}
	return d
}

func (m *eventView) acts(v *visit) {
	row := url.Values{"row": {m.ID.String()}}
	redrive, discard := "", ""
	switch {
	case m.Status == ops.StatusDead:
	case m.Status.Open():
		redrive = "It waits and is not dead: relays try it by themselves."
	default:
		redrive = "Only an event that is dead or waits is redriven or discarded. This one is " +
			stateOf(&m.Event, m.ReadAt).Text + "."
		discard = redrive
	}
	if redrive == "" {
		m.Acts = append(m.Acts, v.button("Redrive…", "main", "redrive", row, ""))
	}
	if discard == "" {
		m.Acts = append(m.Acts, v.button("Discard…", "danger", "discard", row, ""))
	}
	if m.Status == ops.StatusDone && !m.ByLog() && m.ReplayOf.IsZero() {
		m.Acts = append(m.Acts, v.button("Replay…", "", "replay", row, ""))
	}
	for _, o := range m.Why.Consumers {
		if o.Status == inbox.StatusDead && len(m.Acts) < 6 {
			key := url.Values{"message": {messageValue(inbox.Key{
				Consumer: o.Consumer, Handler: o.Handler, Tenant: m.TenantID, EventID: m.EventID,
			})}}
			if v.box.poisonQueue(o.Consumer) != nil {
				m.Acts = append(m.Acts, v.button("Release to "+cut(o.Consumer, 40)+"…", "main", "release",
					url.Values{"consumer": {o.Consumer}, "event": {m.EventID}}, ""))
			}
			m.Acts = append(m.Acts, v.button("Redrive for "+cut(o.Consumer, 40)+"…", "", "message-redrive", key, ""),
				v.button("Discard for "+cut(o.Consumer, 40)+"…", "", "message-discard", key, ""))
		}
	}
	if m.Fingerprint() != "" && m.Status == ops.StatusDead {
		m.Acts = append(m.Acts, act{Label: "Open its group", Href: v.base + "groups/" +
			url.PathEscape(m.Fingerprint())})
	}
	m.Hint = redrive
}

// life is the timeline, as far as the row has it.
func (m *eventView) life() (all []happening) {
	add := func(h happening) { all = append(all, h) }
	created := happening{At: m.CreatedAt, Kind: "ok", Said: "done", Strong: "Created", Text: "for " + m.Topic}
	if m.Details.Key != "" {
		created.Text += ", in the key " + cut(m.Details.Key, 120)
	}
	if m.CausationID != "" {
		created.Small = "caused by " + m.CausationID
	}
	if !m.ReplayOf.IsZero() {
		created.Strong, created.Small = "Inserted by a replay", "it publishes row "+m.ReplayOf.String()+" again"
	}
	add(created)
	for _, a := range m.Failures {
		add(happening{
			At: a.At, Kind: "warn", Said: "refused", Strong: fmt.Sprintf("Attempt %d refused", a.Attempt),
			Text: takenBy(a.Path, a.Node) + ": " + a.Code, Small: a.Error,
		})
	}
	if m.LostClaims > 0 {
		add(happening{
			Kind: "warn", Said: "lost", Strong: plural(m.LostClaims, "process") + " disappeared",
			Text: "while it held the event",
		})
	}
	switch {
	case m.Status == ops.StatusDone && m.ByLog():
		add(happening{At: m.DoneAt, Kind: "wait", Said: "waits", Strong: "Left to a reader of the log"})
	case m.Status == ops.StatusDone:
		add(happening{
			At: m.DoneAt, Kind: "ok", Said: "done", Strong: "Acknowledged by " + m.Topic,
			Text: after(m.DoneAt.Sub(m.CreatedAt), m.Attempts), Small: by(m.ClaimedBy), Place: m.Receipt,
		})
	case m.Status == ops.StatusDead:
		add(happening{
			Kind: "dead", Said: "given up", Strong: "Given up", Text: "after " +
				plural(max(1, m.Attempts), "attempt"),
			Small: m.Error,
		})
	case m.Attempts > 0:
		add(happening{
			At: m.ReadAt, Kind: "wait", Said: "waits", Strong: "Tried again " +
				until(m.AvailableAt, m.ReadAt),
			Text: "after " + plural(m.Attempts, "refusal"), Small: m.Error,
		})
	}
	if m.Leased() {
		add(happening{At: m.ReadAt, Kind: "run", Said: "runs", Strong: "On the way", Text: "since relay " +
			m.ClaimedBy +
			" took it", Small: "it holds the event until " + m.LeaseUntil.UTC().Format("15:04:05")})
	}
	for _, o := range m.Why.Consumers {
		shape := messageState(o.Status)
		name := o.Consumer
		if o.Handler != o.Consumer {
			name += ", " + o.Handler
		}
		h := happening{At: o.At, Kind: shape.Kind, Said: shape.Text, Strong: name, Text: shape.Text, Small: o.Text}
		switch o.Status {
		case inbox.StatusProcessed:
			h.Text, h.Place = "processed it", ""
		case inbox.StatusDead:
			h.Text, h.Place = "gave it up after "+plural(o.Attempts, "attempt"), o.Source
		case inbox.StatusFailed:
			h.Text, h.Place = "failed with it "+plural(o.Attempts, "time"), o.Source
		case "":
			h.Text = "has no record of it"
		default: // its state says it
		}
		add(h)
	}
	for _, a := range m.Audit {
		if a.Action == ops.AuditReveal {
			continue // the audit, below on the page, has it
		}
		add(happening{
			At: a.At, Kind: "wait", Said: "by a person", Strong: a.Actor + " " + deed(a.Action) + " it",
			Small: "for: " + a.Reason,
		})
	}
	slices.SortStableFunc(all, func(a, b happening) int {
		if a.At.IsZero() || b.At.IsZero() {
			return 0
		}
		return a.At.Compare(b.At)
	})
	return all
}

// takenBy describes how a relay had got an event.
func takenBy(p core.Path, node string) string {
	switch p {
	case core.PathHot:
		return "by the fast path of relay " + cut(node, 100)
	case core.PathCold:
		return "by the poller of relay " + cut(node, 100)
	}
	return "by relay " + cut(node, 100)
}

func by(node string) string {
	if node == "" {
		return ""
	}
	return "by relay " + node
}

func after(d time.Duration, attempts int) string {
	text := span(d) + " after it was created"
	if attempts > 0 {
		text += ", after " + plural(attempts, "refusal")
	}
	return text
}

// deed is an action of the audit as a verb in the past.
func deed(action string) string {
	words := map[string]string{
		"redrive": "redrove", "discard": "discarded", "replay": "replayed", ops.AuditReveal: "saw the content of",
		core.AuditPause: "paused", core.AuditResume: "resumed", core.AuditRate: "set the rate of",
		ops.AuditNoteGroup: "wrote a note on", ops.AuditMuteGroup: "muted", ops.AuditUnmuteGroup: "unmuted",
	}
	if w := words[action]; w != "" {
		return w
	}
	return action
}

// reveal shows an event with its content, after the audit row about that is written.
func reveal(v *visit, id string) (*frame, error) {
	if err := v.may(Reveal); err != nil {
		return nil, err
	}
	if v.PostFormValue("then") == "edit" {
		if err := v.may(Act); err != nil { // before something is revealed
			return nil, err
		}
	}
	row, err := core.ParseRowID(id)
	if err != nil {
		return nil, refusal{http.StatusBadRequest, "Content is shown by the id of a row."}
	}
	reason := strings.TrimSpace(v.PostFormValue("reason"))
	if reason == "" {
		return nil, refusal{http.StatusBadRequest, "A reason is required: it goes to the audit."}
	}
	content, err := v.api().Reveal(v.ctx(), row, v.actor, reason)
	if err != nil {
		return nil, err
	}
	rows, err := v.api().Rows(v.ctx(), row)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, refusal{http.StatusNotFound, "The event was deleted meanwhile."}
	}
	if v.PostFormValue("then") == "edit" {
		return v.edit(rows[0], content)
	}
	f, err := showEvent(v, id, v.shown(rows[0], content, reason))
	if err == nil {
		f.Again, f.Every = v.base+"events/"+id, v.base+"events/"+id+"?follow=5"
	}
	return f, err
}
