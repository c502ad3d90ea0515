package core

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

const (
	// The pause after a Notify is notifyShare times its duration: a slow or busy database is
	// notified less often, and a process has a Notify under way at most a tenth of the time.
	notifyShare    = 10
	minNotifyPause = time.Millisecond
	maxNotifyPause = 50 * time.Millisecond
	// Failures in a row until they are logged: a process that ends closes its pool.
	notifyFailures = 3
)

// notifier wakes the relays of other processes after a commit, off the path of the commit. One
// Notify stands for all commits before it. Its goroutine ends when there is nothing to notify. The
// zero value does nothing.
type notifier struct {
	notify func(ctx context.Context) error // nil: there are no other relays
	logger *slog.Logger
	state  atomic.Uint32
	failed int // failures in a row; used by the goroutine alone
}

// States of a notifier.
const (
	notifierIdle  uint32 = iota
	notifierBusy         // a goroutine calls Notify, or pauses
	notifierAgain        // and events were committed since Notify began
	notifierOff          // Notify is not supported
)

// onOutcome is called with the outcome of a transaction whose events this process does not relay. It
// never blocks.
func (n *notifier) onOutcome(out Outcome) {
	if out == RolledBack {
		return
	}
	for {
		switch n.state.Load() {
		case notifierIdle:
			if n.state.CompareAndSwap(notifierIdle, notifierBusy) {
				go n.run()
				return
			}
		case notifierBusy:
			if n.state.CompareAndSwap(notifierBusy, notifierAgain) {
				return
			}
		default:
			return
		}
	}
}

// run calls Notify until no event was committed since its last call began.
func (n *notifier) run() {
	for {
		n.state.Store(notifierBusy) // later commits need another Notify
		start := time.Now()
		if err := n.notifyOnce(); errors.Is(err, errors.ErrUnsupported) {
			n.state.Store(notifierOff)
			return
		}
		time.Sleep(min(max(notifyShare*time.Since(start), minNotifyPause), maxNotifyPause))
		if n.state.CompareAndSwap(notifierBusy, notifierIdle) {
			return
		}
	}
}

func (n *notifier) notifyOnce() error {
	ctx, cancel := context.WithTimeout(context.Background(), dbTimeout)
	defer cancel()
	err := n.notify(ctx)
	switch {
	case err == nil:
		n.failed = 0
	case errors.Is(err, errors.ErrUnsupported):
	default:
		if n.failed++; n.failed == notifyFailures {
			n.logger.Warn("outbox: cannot wake the relays of other processes: events wait for their next poll",
				"failures", n.failed, "error", errtext.Of(err))
		}
	}
	return err
}
