package outboxui

import (
	"time"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

// stateOf is an event's state: its shape, its colour and a word.
func stateOf(e *ops.Event, now time.Time) state {
	switch {
	case e.Status == ops.StatusDone && e.ByLog():
		return state{"wait", "left to the log"}
	case e.Status == ops.StatusDone:
		return state{"ok", "done"}
	case e.Status == ops.StatusDiscarded:
		return state{"gone", "discarded"}
	case e.Status == ops.StatusDead:
		return state{"dead", "dead"}
	case e.Leased():
		return state{"run", "on the way"}
	case e.Status == ops.StatusRetry:
		return state{"warn", "refused, again " + until(e.AvailableAt, now)}
	case e.AvailableAt.After(now):
		return state{"wait", "waits " + until(e.AvailableAt, now)}
	}
	return state{"wait", "waits"}
}

// until names a time of today by its clock, and another one by its day.
func until(at, now time.Time) string {
	at, now = at.UTC(), now.UTC()
	switch {
	case !at.After(now):
		return "now"
	case at.Sub(now) < time.Hour:
		return "in " + span(at.Sub(now))
	case at.YearDay() == now.YearDay() && at.Year() == now.Year():
		return "at " + at.Format("15:04")
	}
	return "on " + at.Format("2 Jan 15:04")
}

// placeOf names the key of an event, or returns "no key".
func placeOf(e *ops.Event) string {
	if e.Key == "" {
		return "no key"
	}
	return cut(e.Key, 120)
}
