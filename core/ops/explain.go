package ops

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

// Reason is why an event waits or has ended.
type Reason string

// Reasons. Explain asks for them in this order and returns the first that holds.
const (
	ReasonUnknown   Reason = "unknown"   // no row has that id
	ReasonDone      Reason = "done"      // accepted by its destination
	ReasonDiscarded Reason = "discarded" // ended by a person
	ReasonDead      Reason = "dead"      // given up
	ReasonLeased    Reason = "leased"    // a process holds it and publishes it
	ReasonBlocked   Reason = "blocked"   // behind a dead event of its key
	ReasonPaused    Reason = "paused"    // a person has paused its destination, its tenant or everything
	ReasonStopped   Reason = "stopped"   // its destination does not take events, which spends no attempt
	ReasonBehind    Reason = "behind"    // behind an open event of its key
	ReasonNotDue    Reason = "not_due"   // delayed, or waiting for the next attempt
	ReasonUnrelayed Reason = "unrelayed" // it is due, and no living relay takes its destination
	ReasonLimited   Reason = "limited"   // it is due, and its destination has a rate
	ReasonReady     Reason = "ready"     // nothing holds it: no relay has claimed it yet
)

// Explanation is the reason for an event's state, and the remedy.
type Explanation struct {
	Reason Reason `json:"reason"`
	Event  Event  `json:"event,omitzero"` // zero for ReasonUnknown
	// Text is a sentence for people. It is Printable, as Fix is.
	Text string `json:"text"`
	// Fix is a sentence with the remedy: the call, its rows, and the command of cmd/outbox in
	// backquotes. Empty: there is nothing to do.
	Fix string `json:"fix,omitempty"`
	// Until is when the reason ends without action: the due time, the end of the lease or of the
	// pause. Zero: not known, or never.
	Until time.Time `json:"until,omitzero"`
	// Other is the event of the same key that this one waits for: the first of the key that is not
	// out yet. Nil: it waits for none.
	Other *Event `json:"other,omitempty"`
	// Blocks counts the events of the key that wait for this one, which is dead. Nil: it blocks no
	// key.
	Blocks *Count `json:"blocks,omitempty"`
	// Chain has the event's causes and consequences. Nil: none is known.
	Chain *Chain `json:"chain,omitempty"`
	// Consumers has its outcomes at the consumers in reach: see Outcomes.
	Consumers []Outcome `json:"consumers,omitempty"`
	// ConsumersError is why Consumers is not known, or empty.
	ConsumersError string `json:"consumers_error,omitempty"`
}

// Explain explains the state of an event. id is a row's or an event's: an event with several
// destinations has an explanation for each. If no row has that id, the one explanation has
// ReasonUnknown. If id is empty or cannot be an id, the error wraps core.ErrInvalidRequest.
//
// A destination counts as stopped if a relay reports it, see Outage.
//
// The row does not show whether a reader of the log has published its event (Event.ByLog). Such an
// event has ReasonDone, and the text names a pause or a stopped destination that would hold it
// back. The fix is no replay: while the reader is not past the event, a replay sends it twice.
//
// The relays come from core.Outbox.Relays. Calls of Drain are not among them. If the Repository
// does not record relays, or their table is missing, no event has ReasonUnrelayed.
func (a *API) Explain(ctx context.Context, id string) ([]Explanation, error) {
	events, err := a.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(events) == 0 {
		x := Explanation{
			Reason: ReasonUnknown,
			Text: fmt.Sprintf("No event has the id %s: its transaction has not committed or was rolled back, or it "+
				"ended longer than the retention ago and was deleted.", Printable(id)),
			Fix: "Look for the id in the log of the service that published it, and for an open transaction in the " +
				"database: `outbox doctor`.",
		}
		a.withConsumers(ctx, &x, Event{EventID: canonicalID(id)}) // they may remember it for longer
		return []Explanation{x}, nil
	}
	all := make([]Explanation, 0, len(events))
	for _, e := range events {
		x, err := a.explain(ctx, e)
		if err != nil {
			return nil, err
		}
		if e.LostClaims >= core.Suspicious && (e.Status == StatusNew || e.Status == StatusRetry) {
			x.Text += fmt.Sprintf(" %d processes or more have ended while they held it, so it is published beside no "+
				"other such event.", e.LostClaims)
		}
		if !e.ReplayOf.IsZero() {
			x.Text += fmt.Sprintf(" It publishes row %s again, as a replay.", e.ReplayOf)
		}
		x.Text, x.Fix = Printable(x.Text), Printable(x.Fix)
		if len(all) > 0 && all[0].Event.EventID == e.EventID { // another row of the same event
			x.Chain = all[0].Chain
		} else if x.Chain, err = a.chainOf(ctx, &e); err != nil {
			return nil, err
		}
		a.withConsumers(ctx, &x, e)
		all = append(all, x)
	}
	return all, nil
}

func (a *API) explain(ctx context.Context, e Event) (Explanation, error) {
	x := Explanation{Event: e}
	switch {
	case e.Status == StatusDone:
		return x, a.done(ctx, &x)
	case e.Status == StatusDiscarded:
		return x, a.discarded(ctx, &x)
	case e.Status == StatusDead:
		return x, a.dead(ctx, &x)
	case e.Leased():
		x.leased()
		return x, nil
	}
	head, err := a.head(ctx, e)
	if err != nil {
		return x, err
	}
	x.Other = head
	paused, err := a.paused(ctx, e)
	if err != nil {
		return x, err
	}
	stopped, err := a.Outage(ctx, e.Topic)
	if err != nil {
		return x, err
	}
	switch {
	case head != nil && head.Status == StatusDead:
		x.blocked()
	case paused != nil:
		x.paused(paused)
	case stopped != nil:
		x.stopped(stopped)
	case head == nil && e.AvailableAt.After(e.ReadAt):
		x.notDue()
	case head != nil && (head.Leased() || head.AvailableAt.After(head.ReadAt)):
		x.behind()
	default: // nothing holds the event that has to go first, and it is due
		return x, a.unclaimed(ctx, &x)
	}
	return x, nil
}

// unclaimed explains an event that a relay should have claimed, or one behind it.
func (a *API) unclaimed(ctx context.Context, x *Explanation) error {
	relays, err := a.outbox.Relays(ctx)
	if err != nil {
		return err
	}
	taken := func(r core.RelayStatus) bool { return r.Alive() && r.Relays(x.Event.Topic) }
	switch {
	case !slices.ContainsFunc(relays, taken):
		x.unrelayed()
	case x.Other != nil:
		x.behind()
	default:
		rate, err := a.rate(ctx, x.Event.Topic)
		if err != nil {
			return err
		}
		if rate != nil {
			x.limited(rate)
			return nil
		}
		x.ready()
	}
	return nil
}

// rate returns the rate of a topic, nil if it has none.
func (a *API) rate(ctx context.Context, topic string) (*core.Rate, error) {
	all, err := a.outbox.Rates(ctx)
	if err != nil {
		return nil, err
	}
	return first(all, func(r *core.Rate) bool { return r.Topic == topic }), nil
}

// head returns the first event of the key of e that is not out yet, if that is not e itself. Under
// core.SkipDead dead events do not count.
func (a *API) head(ctx context.Context, e Event) (*Event, error) {
	if e.KeyID.IsZero() {
		return nil, nil
	}
	s := Scan{KeyID: e.KeyID, BeforeSeq: e.KeySeq, Limit: 1, Look: MaxLook}
	if a.outbox.DeadPolicy() == core.SkipDead {
		s.Statuses = []Status{StatusNew, StatusRetry}
	}
	found, err := a.store.ScanEvents(ctx, s)
	if err != nil || len(found.Events) == 0 {
		return nil, err
	}
	return &found.Events[0], nil
}

// paused returns the pause that holds back an event, the pause of everything first, nil if there is
// none.
func (a *API) paused(ctx context.Context, e Event) (*core.Pause, error) {
	all, err := a.outbox.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	return first(all, func(p *core.Pause) bool { return p.Covers(e.Topic, e.TenantID) }), nil
}

func (a *API) done(ctx context.Context, x *Explanation) error {
	x.Reason = ReasonDone
	if x.Event.ByLog() {
		return a.byLog(ctx, x)
	}
	declared, err := a.shortest(ctx)
	if err != nil {
		return err
	}
	x.Text = fmt.Sprintf("Destination %s accepted it at %s.", x.Event.Topic, at(x.Event.DoneAt))
	if x.Event.Receipt != "" {
		x.Text += " Its place there is " + x.Event.Receipt + "."
	}
	if w, known := declared[x.Event.Topic]; known && w.Keep != Forever && x.Event.ReplayOf.IsZero() {
		x.Text += replayableUntil(&x.Event, w)
	}
	return nil
}

// replayableUntil is a sentence about how long a done event can be replayed.
func replayableUntil(e *Event, w Window) string {
	end := forgets(e.DoneAt, w.Keep)
	if end.Before(e.ReadAt) {
		return fmt.Sprintf(" It can be replayed no more: consumer %s has forgotten it since %s.", w.Consumer, at(end))
	}
	return fmt.Sprintf(" It can be replayed until %s: then consumer %s forgets it.", at(end), w.Consumer)
}

func (a *API) discarded(ctx context.Context, x *Explanation) error {
	x.Reason = ReasonDiscarded
	x.Text = "It was discarded at " + at(x.Event.DoneAt) + " and will not be published."
	audit, err := a.store.ReadAudit(ctx, x.Event.ID)
	audit = slices.DeleteFunc(audit, func(e AuditEntry) bool { return e.Action == AuditReveal })
	if err != nil || len(audit) == 0 {
		return err
	}
	last := audit[len(audit)-1]
	if !last.NewID.IsZero() {
		x.Text = fmt.Sprintf("%s redrove it at %s (%s). Its key had gone on without it, so it continues as row %s at "+
			"the end of the key.", last.Actor, at(last.At), last.Reason, last.NewID)
		x.Fix = fmt.Sprintf("Explain %s: `outbox explain %s`.", last.NewID, last.NewID)
		return nil
	}
	x.Text = fmt.Sprintf("%s discarded it at %s (%s). It will not be published.", last.Actor, at(last.At), last.Reason)
	return nil
}

func (a *API) dead(ctx context.Context, x *Explanation) (err error) {
	e := &x.Event
	x.Reason = ReasonDead
	x.Text = fmt.Sprintf("It was given up after %s: %s.", times(e.Attempts, "refusal"), failure(e))
	x.Fix = redriveOrDiscard(e)
	if e.KeyID.IsZero() || a.outbox.DeadPolicy() == core.SkipDead {
		return nil
	}
	n, err := a.behind(ctx, e.KeyID)
	x.Blocks = &n
	waits := "events wait"
	if n.N == 1 && !n.More {
		waits = "event waits"
	}
	x.Text += fmt.Sprintf(" It blocks its key %s: %s %s behind it, and so will every later one.", e.Key, n, waits)
	return err
}

func (x *Explanation) leased() {
	e := &x.Event
	x.Reason, x.Until = ReasonLeased, e.LeaseUntil
	x.Text = fmt.Sprintf("Process %s holds it until %s and publishes it. If that process has died, the next relay "+
		"takes it then.", e.ClaimedBy, at(e.LeaseUntil))
	x.Text += lastFailure(e)
}

// lastFailure is a sentence about the last publish of an event. Empty: it has not failed.
func lastFailure(e *Event) string {
	switch {
	case e.ErrorCode == "":
		return ""
	case e.Attempts == 0:
		return " Its last publish failed, which spent no attempt: " + failure(e) + "."
	}
	return " Its last publish failed: " + failure(e) + "."
}

func (x *Explanation) blocked() {
	o := x.Other
	x.Reason = ReasonBlocked
	x.Text = fmt.Sprintf("It waits for an earlier event of its key %s, row %s, which is dead: %s.", x.Event.Key, o.ID,
		failure(o))
	x.Fix = redriveOrDiscard(o)
}

func (x *Explanation) paused(p *core.Pause) {
	x.Reason, x.Until = ReasonPaused, p.Until
	text, fix := pauseText(p)
	x.Text, x.Fix = text+" The events wait and spend no attempts.", fix
}

// pauseText describes a pause, and how to end it.
func pauseText(p *core.Pause) (text, fix string) {
	what, target := "Destination "+p.Topic+" is", shellWord(p.Topic)
	switch {
	case p.All:
		what, target = "All destinations are", "--all"
	case p.Tenant != "":
		what, target = "Tenant "+p.Tenant+" is", "--tenant "+shellWord(p.Tenant)
	}
	until := ""
	if !p.Until.IsZero() {
		until = " until " + at(p.Until)
	}
	return fmt.Sprintf("%s paused by %s since %s%s: %s.", what, p.Actor, at(p.Since), until, unended(p.Reason)),
		fmt.Sprintf("Resume it: `outbox resume %s --reason WHY`.", target)
}

// shellWord quotes a word for a shell, if it needs that.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.:@/-", r)
	}
	if strings.TrimFunc(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func (x *Explanation) stopped(d *core.StoppedDestination) {
	x.Reason = ReasonStopped
	x.Text = fmt.Sprintf("Destination %s is stopped since %s: %s. Its events wait and spend no attempts.",
		d.Topic, at(d.Since), unended(errtext.Redact(d.Err.Error())))
	x.Fix = repairDestination
	if x.Event.ErrorCode != "" {
		x.Text += lastFailure(&x.Event)
		x.Fix += " " + orDiscard(x.Event.ID)
	}
}

const repairDestination = "Repair the destination or its credentials. The relay tries it again."

func (x *Explanation) behind() {
	o := x.Other
	x.Reason = ReasonBehind
	x.Text = fmt.Sprintf("It waits for an earlier event of its key %s, row %s, which ", x.Event.Key, o.ID)
	switch {
	case o.Leased():
		x.Text += fmt.Sprintf("process %s holds until %s.", o.ClaimedBy, at(o.LeaseUntil))
		x.Text += lastFailure(o)
	case o.AvailableAt.After(o.ReadAt):
		x.Text += fmt.Sprintf("is due at %s.", at(o.AvailableAt))
		x.Text += lastFailure(o)
	default:
		x.Text += "no relay has claimed yet." + lastFailure(o)
	}
	x.Fix = fmt.Sprintf("Wait for %[1]s, and see what holds it: `outbox explain %[1]s`.", o.ID)
}

func (x *Explanation) notDue() {
	e := &x.Event
	x.Reason, x.Until = ReasonNotDue, e.AvailableAt
	x.Text = fmt.Sprintf("It is due at %s.", at(e.AvailableAt))
	if e.ErrorCode != "" {
		x.Text = "It is tried again at " + at(e.AvailableAt)
		if e.Attempts > 0 {
			x.Text += ", after " + times(e.Attempts, "refusal")
		}
		x.Text += "." + lastFailure(e)
		x.Fix = remedy(e.ErrorCode) + ", and wait. " + orDiscard(e.ID)
	}
}

// orDiscard is for a waiting event that may not be wanted any more.
func orDiscard(id core.RowID) string {
	return fmt.Sprintf("Or Discard %[1]s, and it is never published: `outbox discard %[1]s --reason WHY`.", id)
}

func (x *Explanation) ready() {
	x.Reason = ReasonReady
	e := &x.Event
	x.Text = fmt.Sprintf("It is due since %s and nothing holds it: no relay has claimed it yet.", at(e.AvailableAt))
	x.Fix = fmt.Sprintf("See which relay takes destination %s, and whether its log names an error: `outbox status`.",
		e.Topic)
	if e.ErrorCode != "" {
		x.Text = fmt.Sprintf("It is due since %s and the next relay takes it.%s", at(e.AvailableAt), lastFailure(e))
		x.Fix = "Remove the cause: the relay tries it again. " + orDiscard(e.ID)
	}
}

func (x *Explanation) limited(r *core.Rate) {
	var limits []string
	if r.PerSecond > 0 {
		limits = append(limits, fmt.Sprintf("%v events a second", r.PerSecond))
	}
	if r.InFlight > 0 {
		limits = append(limits, fmt.Sprintf("%d at the same time", r.InFlight))
	}
	x.Reason = ReasonLimited
	x.Text = fmt.Sprintf("It is due since %s and waits for its turn: destination %s gets at most %s, set by %s at "+
		"%s: %s.", at(x.Event.AvailableAt), r.Topic, strings.Join(limits, " and "), r.Actor, at(r.Since),
		unended(r.Reason))
	x.Fix = fmt.Sprintf("Wait, or end the limit: `outbox rate %s --off --reason WHY`.", shellWord(r.Topic))
}

func (x *Explanation) unrelayed() {
	x.Reason = ReasonUnrelayed
	x.Text = fmt.Sprintf("No relay that is alive takes destination %s: the event is due since %s and waits.",
		x.Event.Topic, at(x.Event.AvailableAt))
	if x.Other != nil {
		x.Text = fmt.Sprintf("No relay that is alive takes destination %s: row %s, an earlier event of its key %s, "+
			"waits too.", x.Event.Topic, x.Other.ID, x.Event.Key)
	}
	x.Fix = fmt.Sprintf("Start a relay whose publisher takes %s, and look whether one has ended: `outbox status`.",
		x.Event.Topic)
}

func at(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func times(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// failure returns the code and the text of the last failure, without the stop at its end.
func failure(e *Event) string {
	text := unended(e.Error)
	switch {
	case text == "":
		return e.ErrorCode
	case e.ErrorCode == "":
		return text
	}
	return e.ErrorCode + ", " + text
}

// unended returns a text that people or programs wrote without its own full stop, for the end of a
// sentence.
func unended(text string) string { return strings.TrimRight(text, ". \t\r\n") }

// Printable returns foreign text, such as an error, a key or a header, as one line that a terminal
// or a page may show. Space of any kind becomes a blank. Invisible characters, and characters that
// a terminal obeys, become visible, as \x1b or \u202e: Unicode's classes Cc, Cf, Zl and Zp, except
// the joiners U+200C and U+200D and the visible signs of Cf. So do bytes that are not UTF-8. It
// does not escape HTML.
func Printable(s string) string { return textcheck.Line(s) }
