package ops

import (
	"context"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
)

// MaxChain is how many events a Chain has in each direction.
const MaxChain = 100

// Chain has the causes and the consequences of an event, as far as the table has rows. An event
// that was published outside of a handler begins a chain.
type Chain struct {
	// Causes has the event's cause, then the cause of that event, and so on: a row of each.
	Causes []Event `json:"causes,omitempty"`
	// Caused has the rows of the event's consequences, then of their consequences, and so on. Rows
	// of replays are left out.
	Caused []Event `json:"caused,omitempty"`
	// More: one of the two has ended at MaxChain.
	More bool `json:"more,omitempty"`
	// Text describes for people where the table ends in both directions. It is Printable.
	Text string `json:"text"`
}

// Chain returns the causes and the consequences of the event, effect or command with that id. The
// table need not have its row. An impossible id is refused with an error wrapping
// core.ErrInvalidRequest.
func (a *API) Chain(ctx context.Context, id string) (Chain, error) {
	f := Filter{Cause: id}
	if id == "" {
		return Chain{}, invalid("the id is empty")
	}
	if err := f.check(); err != nil {
		return Chain{}, err
	}
	e, err := a.eventOf(ctx, id)
	if err != nil {
		return Chain{}, err
	}
	if e == nil {
		e = &Event{EventID: id}
	}
	return a.walk(ctx, e)
}

// chainOf is the Chain of an event that has one.
func (a *API) chainOf(ctx context.Context, e *Event) (*Chain, error) {
	c, err := a.walk(ctx, e)
	if err != nil || e.CausationID == "" && len(c.Caused) == 0 {
		return nil, err
	}
	return &c, nil
}

func (a *API) walk(ctx context.Context, e *Event) (c Chain, err error) {
	up, err := a.walkUp(ctx, e, &c)
	if err != nil {
		return c, err
	}
	down, err := a.walkDown(ctx, e, &c)
	c.Text = Printable(up + " " + down)
	return c, err
}

// walkUp returns a sentence about the end of the causes.
func (a *API) walkUp(ctx context.Context, e *Event, c *Chain) (text string, err error) {
	seen := map[string]bool{e.EventID: true}
	for at := e; ; at = &c.Causes[len(c.Causes)-1] {
		id := at.CausationID
		switch {
		case at.ID.IsZero(): // where the walk began
			return noRow(at.EventID), nil
		case id == "":
			return fmt.Sprintf("The chain begins with event %s, which was published outside of a handler.",
				at.EventID), nil
		case seen[id]:
			return fmt.Sprintf("The causes are a circle: %s is among them twice.", id), nil
		case len(c.Causes) == MaxChain:
			c.More = true
			return fmt.Sprintf("The causes are more than %d: go on with %s.", MaxChain, id), nil
		}
		seen[id] = true
		next, err := a.eventOf(ctx, id)
		if err != nil || next == nil {
			return noRow(id), err
		}
		c.Causes = append(c.Causes, *next)
	}
}

func noRow(id string) string {
	return fmt.Sprintf("Upwards this table ends at %s, of which it has no row: that is an event of another database, "+
		"a command, a message without an event id, or an event that was deleted after the retention.", id)
}

// walkDown returns a sentence about the end of the events that e has caused.
func (a *API) walkDown(ctx context.Context, e *Event, c *Chain) (text string, err error) {
	seen := map[string]bool{e.EventID: true}
	next := []string{e.EventID}
	for len(next) > 0 {
		scan := Scan{Filter: Filter{Cause: next[0]}, Limit: MaxChain - len(c.Caused) + 1, Look: MaxLook}
		found, err := a.store.ScanEvents(ctx, scan)
		if err != nil {
			return "", err
		}
		for _, caused := range found.Events {
			if len(c.Caused) == MaxChain {
				c.More = true
				return fmt.Sprintf("Downwards are more than %d rows: go on with one of their events.", MaxChain), nil
			}
			if caused.ReplayOf.IsZero() {
				c.Caused = append(c.Caused, caused)
			}
			if !seen[caused.EventID] {
				seen[caused.EventID] = true
				next = append(next, caused.EventID)
			}
		}
		next = next[1:]
	}
	if len(c.Caused) == 0 {
		return fmt.Sprintf("Downwards this table has nothing that %s caused. Another database may.", e.EventID), nil
	}
	return fmt.Sprintf("Downwards this table ends after %s that it caused, directly or not. Another database may "+
		"have more.", times(len(c.Caused), "row")), nil
}

// eventOf returns a row of the event with that id, or nil. It is nil for an id of another kind.
func (a *API) eventOf(ctx context.Context, id string) (*Event, error) {
	if _, _, other := core.RowIDRange(id); other != nil {
		return nil, nil //nolint:nilerr // it is the key of a command, for example
	}
	s, err := a.store.ScanEvents(ctx, Scan{
		Filter: Filter{EventID: canonicalID(id)}, Limit: 1, Look: MaxLook,
	})
	if err != nil || len(s.Events) == 0 {
		return nil, err
	}
	return &s.Events[0], nil
}
