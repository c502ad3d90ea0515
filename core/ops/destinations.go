package ops

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/counting"
)

// Destination counts the events of a topic that wait or are dead.
type Destination struct {
	Topic    string `json:"topic"`
	Pending  int64  `json:"pending"`  // not yet published
	Due      int64  `json:"due"`      // pending, due, and leased by nobody; they may wait for their key
	Leased   int64  `json:"leased"`   // pending, and a process holds them
	Retrying int64  `json:"retrying"` // pending, and refused before
	Dead     int64  `json:"dead"`
	// Oldest is the age of the oldest pending event.
	Oldest time.Duration `json:"oldest"`
}

// Destinations counts the events of each topic that wait or are dead, by topic. Topics without such
// events are missing. It reads as many events as Outbox.Backlog of each kind: open ones without a key,
// events with a key, and dead ones. more reports whether the numbers are lower bounds. Events that
// a reader of the log publishes are not counted.
func (a *API) Destinations(ctx context.Context) (all []Destination, more bool, err error) {
	return counting.Rows(func(limit int) ([]Destination, bool, error) { return a.store.ReadDestinations(ctx, limit) })
}

// Outbox returns the Outbox of the API, for its Backlog, Relays, Rates and Pauses.
func (a *API) Outbox() *core.Outbox { return a.outbox }
