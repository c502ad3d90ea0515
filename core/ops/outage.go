package ops

import (
	"context"
	"errors"

	"github.com/ormoutbox/ormoutbox/core"
)

// Outage returns a destination if a relay has stopped it: that of this process, or another one that
// is alive and says so in its heartbeat, at most 10 s later. Nil: none has, or the table does not
// record relays. A relay that is closed out alone, by its credentials for example, may stop a
// destination that works for others: core.Outbox.Relays tells what each of them says.
func (a *API) Outage(ctx context.Context, topic string) (*core.StoppedDestination, error) {
	if d := stopped(a.outbox.Stopped(), topic); d != nil {
		return d, nil
	}
	relays, err := a.outbox.Relays(ctx)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, core.ErrNoTables) {
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
	for i := range all {
		if all[i].Topic == topic {
			return &all[i]
		}
	}
	return nil
}
