package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// maxFailing is for how many topics status and doctor look for events that were not taken.
const maxFailing = 20

// topicFailure is why a destination did not take an event, which spent no attempt.
type topicFailure struct {
	ID    string `json:"id"` // id of the row
	Code  string `json:"code"`
	Error string `json:"error"`
}

func (f topicFailure) text(topic string) string {
	return fmt.Sprintf("destination %s did not take row %s: %s, %s", short(topic), f.ID, f.Code,
		within(400, f.Error)) // the cause is often at its end
}

// findFailing looks for destinations that are down, in the topics with pending events. It begins
// with the topics that have the oldest ones.
func findFailing(ctx context.Context, ob *core.Outbox, topics []topicState) error {
	api, err := ops.New(ob)
	if err != nil {
		return err
	}
	waiting := make([]*topicState, 0, len(topics))
	for i := range topics {
		if topics[i].Pending > 0 {
			waiting = append(waiting, &topics[i])
		}
	}
	slices.SortStableFunc(waiting, func(a, b *topicState) int { return int(b.OldestSecs - a.OldestSecs) })
	for _, t := range waiting[:min(len(waiting), maxFailing)] {
		e, err := api.Outage(ctx, t.Topic)
		if err != nil {
			return err
		}
		if e != nil {
			t.Failure = &topicFailure{ID: e.ID.String(), Code: e.ErrorCode, Error: e.Error}
		}
	}
	return nil
}

func (x *examination) destinations(ctx context.Context) ([]finding, error) {
	topics, _, err := x.db.topicStates(ctx, x.schema, x.prefix)
	if err != nil {
		return nil, err
	}
	if err := findFailing(ctx, x.ob, topics); err != nil {
		return nil, err
	}
	var all []finding
	for _, t := range topics {
		if t.Failure != nil {
			all = append(all, finding{
				Check: "destinations", Level: levelFailure, Found: t.Failure.text(t.Topic),
				Cause: "its events wait and spend no attempts, until the relay's next try succeeds",
				Fix: "repair the destination or the relay's credentials; `outbox explain " + t.Failure.ID +
					"` has the whole error",
			})
		}
	}
	if len(all) == 0 {
		all = append(all, fine("destinations", "none is known to refuse what waits for it"))
	}
	return all, nil
}
