package core

import (
	"context"
)

// WakePolicy says how a relay hears of events that other processes have committed. A wake-up only
// makes the poller look sooner: an event whose wake-up is lost waits for the next poll, see
// relay.Config.PollInterval. The zero value is what the Repository does by itself. Package
// sqloutbox needs no setting on MariaDB, MySQL and SQLite, and a Listen for each relay on
// PostgreSQL.
type WakePolicy struct {
	// Listen hears of the commits of other processes. Run calls it, and calls it again after a
	// pause when it has returned. It calls wake once as soon as it hears, and then once or more
	// after each Notify of any process, until ctx ends or its connection is lost. wake returns at
	// once, may be called too often, and by several goroutines. Listen returns soon after ctx has
	// ended. An error that wraps errors.ErrUnsupported means that there is nothing to listen to.
	//
	// The relay calls Notify when Listen begins to hear, and when it has heard nothing for a
	// minute. If Listen does not hear that within 10 s, the relay logs a warning once, ends that
	// call of Listen, and makes another one later.
	//
	// Default: that of the Repository, if it is a Waker. The relay does not check that one.
	Listen func(ctx context.Context, wake func()) error

	// Notify tells the relays of other processes that events were committed. The outbox calls it
	// outside of transactions, by a goroutine of its own, for transactions whose events this
	// process does not relay. One call stands for all commits before it. There is a pause of ten
	// times the duration of a call until the next one, at least 1 ms and at most 50 ms. An error
	// that wraps errors.ErrUnsupported means that nobody needs to be told.
	//
	// Default: that of the Repository, if it is a Waker.
	Notify func(ctx context.Context) error

	// Disable makes this process neither notify nor listen.
	Disable bool
}

// Waker is an optional interface of a Repository that wakes the relays of other processes. Its
// methods are those of WakePolicy.
type Waker interface {
	Listen(ctx context.Context, wake func()) error
	Notify(ctx context.Context) error
}

// withDefaults returns p with the Notify of the repository. The relay takes its Listen.
func (p WakePolicy) withDefaults(repo Repository) WakePolicy {
	if p.Disable {
		return WakePolicy{Disable: true}
	}
	w, ok := repo.(Waker)
	if ok && p.Notify == nil {
		p.Notify = w.Notify
	}
	return p
}
