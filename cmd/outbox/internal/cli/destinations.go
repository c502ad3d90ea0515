package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// stoppedRow is a destination that a relay has stopped, as its last heartbeat says.
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

func stuckText(node string, n int) string {
	return fmt.Sprintf("relay %s waits for %s that do not return", short(node), plural(n, "publisher call"))
}

// destinations tells what the relays that are alive say of their destinations.
func (x *examination) destinations(ctx context.Context) ([]finding, error) {
	relays, err := x.ob.Relays(ctx)
	if err != nil {
		return nil, err
	}
	var all []finding
	failed := func(found, cause, fix string) {
		all = append(all, finding{Check: "destinations", Level: levelFailure, Found: found, Cause: cause, Fix: fix})
	}
	for _, r := range relays {
		if !r.Alive() {
			continue
		}
		for _, d := range r.Stopped {
			failed(stoppedRowOf(d).text(r.Node), "its events wait and spend no attempts, until the next probe succeeds",
				"repair the destination or the relay's credentials; the relay goes on by itself")
		}
		if r.Stuck > 0 {
			failed(stuckText(r.Node, r.Stuck),
				"the publisher ignores the end of its context",
				"take a goroutine dump of that process, restart it, and repair the publisher")
		}
		if r.PollErr != nil {
			failed(fmt.Sprintf("relay %s cannot poll: %s", short(r.Node), within(400, r.PollErr.Error())),
				"the database refuses its statements", "give its role the rights, or repair what the error names")
		}
	}
	if len(all) == 0 {
		all = append(all, fine("destinations", "no relay that is alive has stopped one"))
	}
	return all, nil
}
