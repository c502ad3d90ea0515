package ops

import (
	"context"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// Outcome is the outcome of an event at a handler of a consumer.
type Outcome struct {
	inbox.Outcome
	// Said is a sentence for people about it. Fix is the remedy, as in an Explanation. Empty: there
	// is nothing to do. Both are Printable.
	Said string `json:"text"`
	Fix  string `json:"fix,omitempty"`
}

// Outcomes returns the outcome of an event at each consumer in reach, by consumer and handler. A
// handler without a row of the event is among them if it reads the topic of an event that is done.
// The list is empty if the database has no inbox.
func (a *API) Outcomes(ctx context.Context, e Event) (all []Outcome, err error) {
	b := a.beside
	if b.Inbox == nil || e.EventID == "" || b.noInbox.holds() {
		return nil, nil
	}
	found, err := b.Inbox.Outcomes(ctx, e.TenantID, e.EventID)
	if there, err := b.noInbox.there(err); !there {
		return nil, err
	}
	for _, o := range found {
		if o.Status == "" && (e.Status != StatusDone || e.ID.IsZero() || o.Topic != e.Topic) {
			continue
		}
		out := Outcome{Outcome: o}
		out.say(e.EventID)
		out.Said, out.Fix = Printable(out.Said), Printable(out.Fix)
		all = append(all, out)
	}
	return all, nil
}

func (o *Outcome) say(eventID string) {
	who := "Consumer " + o.Consumer
	if o.Handler != o.Consumer {
		who = fmt.Sprintf("Handler %s of consumer %s", o.Handler, o.Consumer)
	}
	cause := o.Code
	if o.Text != "" {
		cause += ", " + unended(o.Text)
	}
	switch o.Status {
	case inbox.StatusProcessed:
		o.Said = fmt.Sprintf("%s processed it at %s.", who, at(o.At))
	case inbox.StatusDead:
		o.Said = fmt.Sprintf("%s gave it up after %s, at %s: %s.", who, times(o.Attempts, "attempt"), at(o.At), cause)
		target := shellWord(eventID) + " --consumer " + shellWord(o.Consumer)
		o.Fix = fmt.Sprintf("Remove the cause, then `outbox inbox redrive %[1]s --reason WHY` and have the message "+
			"delivered again; `outbox inbox release` does both for a poison queue. Or `outbox inbox discard %[1]s "+
			"--reason WHY`.", target)
	case inbox.StatusFailed:
		o.Said = fmt.Sprintf("%s has failed with it %s, last at %s: %s. It tries again when the message is delivered "+
			"again.", who, times(o.Attempts, "time"), at(o.At), cause)
	case inbox.StatusRedriven:
		o.Said = fmt.Sprintf("%s waits for its delivery: it was redriven at %s by %s.", who, at(o.At), unended(o.Text))
		o.Fix = "Have the message delivered again: from its poison queue by `outbox inbox release`, or by a replay."
	case inbox.StatusDiscarded:
		o.Said = fmt.Sprintf("%s will not process it: it was discarded at %s by %s.", who, at(o.At), unended(o.Text))
	case inbox.StatusProcessing:
		o.Said = fmt.Sprintf("%s works on it since %s.", who, at(o.At))
	default:
		o.Said = who + " has no record of it: it has not got it yet, or forgot it after its retention."
	}
}

// withConsumers adds the consumers' outcomes to an explanation. That this is not known does not
// fail the explanation.
func (a *API) withConsumers(ctx context.Context, x *Explanation, e Event) {
	var err error
	if x.Consumers, err = a.Outcomes(ctx, e); err != nil {
		x.ConsumersError = Printable(err.Error())
	}
}
