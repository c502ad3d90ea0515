package ops

import (
	"context"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// Outage returns a destination if a relay has stopped it: this process's relay, or another live
// relay that reports it in its heartbeat, at most 10 s later. Nil: no relay has stopped it, or
// there is no table of relays. A relay that is shut out alone, by its credentials for example, may
// stop a destination that works for others: core.Outbox.Relays has the report of each relay.
func (a *API) Outage(ctx context.Context, topic string) (*core.StoppedDestination, error) {
	if d := stopped(a.outbox.Stopped(), topic); d != nil {
		return d, nil
	}
	relays, err := a.outbox.Relays(ctx)
	if errors.Is(err, core.ErrNoTables) {
		return nil, nil
	}
	for _, r := range relays {
		if d := stopped(r.Stopped, topic); d != nil && r.Alive() {
			return d, nil
		}
	}
	return nil, err
}

func stopped(all []core.StoppedDestination, topic string) *core.StoppedDestination {
	return first(all, func(d *core.StoppedDestination) bool { return d.Topic == topic })
}

// first returns the first of all that is wanted, nil if none is.
func first[T any](all []T, wanted func(*T) bool) *T {
	for i := range all {
		if wanted(&all[i]) {
			return &all[i]
		}
	}
	return nil
}

// byLog explains an event that a program publishes from the log of the database. Pauses and
// failures are in the tables, and walrelay heeds them as every relay does. It names no replay:
// while the program is not past the event, a replay sends it twice.
func (a *API) byLog(ctx context.Context, x *Explanation) error {
	e := &x.Event
	x.Text = fmt.Sprintf("It was inserted at %s for a program that reads the log of the database, as walrelay and "+
		"Debezium do. Its row does not say whether that program has published it.", at(e.CreatedAt))
	x.Fix = "See whether that program runs and how far it is: `outbox doctor`. Until it is past the event, a replay " +
		"sends the event twice."
	text, fix, err := a.holdsLog(ctx, e)
	if err != nil || text == "" {
		return err
	}
	x.Text += " " + text + " If walrelay has not published it, it waits for that."
	x.Fix = fix + " " + x.Fix
	return nil
}

// holdsLog returns why walrelay does not publish an event yet, and the remedy. Empty: nothing in
// the tables holds it.
func (a *API) holdsLog(ctx context.Context, e *Event) (text, fix string, err error) {
	paused, err := a.paused(ctx, *e)
	if err != nil {
		return "", "", err
	}
	if paused != nil {
		text, fix = pauseText(paused)
		return text, fix, nil
	}
	d, err := a.Outage(ctx, e.Topic)
	if err != nil || d == nil {
		return "", "", err
	}
	return fmt.Sprintf("Destination %s is stopped since %s: %s.", d.Topic, at(d.Since),
		unended(errtext.Redact(d.Err.Error()))), repairDestination, nil
}
