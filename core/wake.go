package core

import (
	"context"
)

// WakePolicy connects relays with the commits of other processes. A wake-up only makes the poller
// look sooner: an event whose wake-up is lost waits for the next poll, see
// relay.Config.PollInterval. With the zero value, the Repository's own way is used. Package
// sqloutbox needs no setting on MariaDB, MySQL and SQLite, and a Listen for each relay on
// PostgreSQL.
type WakePolicy struct {
	// Listen waits for the commits of other processes. Run calls it, and calls it again after a
	// pause when it has returned. It calls wake once as soon as it is connected, and then at least
	// once after each Notify of any process, until ctx ends or its connection is lost. wake returns
	// at once, may be called too often, and by several goroutines. Listen returns soon after ctx
	// has ended. An error that wraps errors.ErrUnsupported means that there is nothing to listen
	// to.
	//
	// The relay calls Notify when Listen is connected, and after a minute without a wake. If Listen
	// does not call wake within 10 s, the relay logs a warning once, ends that call of Listen, and
	// makes another one later.
	//
	// Default: the Repository's Listen, if it is a Waker. The relay does not check whether it
	// wakes.
	Listen func(ctx context.Context, wake func()) error

	// Notify wakes the relays of other processes after a commit. The outbox calls it outside of
	// transactions, by a goroutine of its own, for transactions whose events this process does not
	// relay. One call stands for all commits before it. There is a pause of ten times the duration
	// of a call until the next one, at least 1 ms and at most 50 ms. An error that wraps
	// errors.ErrUnsupported means that no call is needed.
	//
	// Default: the Repository's Notify, if it is a Waker.
	Notify func(ctx context.Context) error

	// Disable makes this process neither notify nor listen.
	Disable bool
}

// Waker is an optional interface of a Repository that wakes the relays of other processes.
// WakePolicy describes its methods.
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
