package core

import (
	"context"
	"time"
)

// RelayConfig makes the relay of an Outbox. Config of package core/relay implements it.
type RelayConfig interface {
	// Problems returns the problems of the settings for an Outbox with the Config c. Each error
	// names its field by the path, such as Relay.HotLease.
	Problems(c Config) []error
	// NewRelay returns a relay for an Outbox with the Config c, which has its defaults. claimNo
	// returns claim numbers that are used once, for rows that the relay takes from the table.
	NewRelay(c Config, claimNo func() int64) Relay
}

// Relay publishes the events of an Outbox, whose methods of the same names describe it. The writing
// side uses nothing else of the publishing side.
type Relay interface {
	Run(ctx context.Context) error
	Drain(ctx context.Context) error
	Live() error
	// Report returns state that is only in the relay's memory. The zero value: it does not relay
	// now.
	Report() RelayReport
	// Serves reports whether the relay publishes events of the topic now.
	Serves(topic string) bool
	// Reserve takes places on the fast path for the rows of a tracked Publish, before their insert
	// under this claim number. It marks the rows that got one as Hot, and returns their lease.
	Reserve(rows []NewRow, claimNo int64) (Reservation, time.Duration)
	// Operated is called after a call of this Outbox has changed events, or settings of operators.
	// The relay looks at once.
	Operated()
}

// RelayReport is the part of a relay's state that is only in memory.
type RelayReport struct {
	RelayState
	Running bool          // Run relays, not only Drain
	Turned  time.Duration // how long ago the loop of Run turned
	Alone   error         // an event that is tried alone; a death of the process would not count
}

// Reservation is the place of the rows of one Publish on the fast path of a running relay. Publish
// calls its methods on the goroutine that uses the transaction, one after the other: Cancel, or
// Deferred (and Sending and Inserted or Cancel later) or Inserted, and at the end of a tracked
// transaction Ended.
type Reservation interface {
	// Cancel frees the places, because nothing was inserted.
	Cancel()
	// Deferred: the rows are inserted later, and their leases have not begun.
	Deferred()
	// Sending: deferred rows are being sent, under this claim number.
	Sending(claimNo int64)
	// Inserted: the rows are in the table. places may be empty.
	Inserted(places []Inserted)
	// Ended is called with the transaction's outcome. It never blocks.
	Ended(out Outcome)
}

// noReservation is for rows that no relay of this process publishes.
type noReservation struct{}

func (noReservation) Cancel()             {}
func (noReservation) Deferred()           {}
func (noReservation) Sending(int64)       {}
func (noReservation) Inserted([]Inserted) {}
func (noReservation) Ended(Outcome)       {}
