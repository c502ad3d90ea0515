package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// stoppedRow is a destination that a relay has stopped, by its last heartbeat.
type stoppedRow struct {
	Topic    string    `json:"topic"`
	Since    time.Time `json:"since"`
	Failures int       `json:"failed_probes"`
	Stuck    int       `json:"stuck,omitempty"` // publishes that have not returned
	Error    string    `json:"error"`
}

func stoppedRowOf(d core.StoppedDestination) stoppedRow {
	row := stoppedRow{Topic: d.Topic, Since: d.Since.UTC(), Failures: d.Failures, Stuck: d.Stuck}
	if d.Err != nil {
		row.Error = d.Err.Error()
	}
	return row
}

func (r stoppedRow) text(node string) string {
	cause := within(400, r.Error) // it is often at the end of the text
	text := fmt.Sprintf("destination %s is stopped at relay %s since %s, after %s that failed: %s", short(r.Topic),
		short(node), moment(r.Since), plural(r.Failures, "probe"), cause)
	if r.Stuck > 0 {
		text += fmt.Sprintf("; %d of its publishes do not return", r.Stuck)
	}
	return text
}

// destinations reports the destinations of live relays, by their heartbeats.
func (x *examination) destinations(ctx context.Context) error {
	relays, err := x.ob.Relays(ctx)
	if err != nil {
		return err
	}
	for _, r := range relays {
		row := relayRowOf(r)
		row.problems(x.fail)
	}
	x.otherwise("no relay that is alive has stopped one")
	return nil
}
