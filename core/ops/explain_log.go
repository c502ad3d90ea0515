package ops

import (
	"context"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

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

// holdsLog says what walrelay waits for before it publishes an event, and what ends that. Empty:
// nothing, as far as the tables tell.
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
