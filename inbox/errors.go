package inbox

import (
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
)

// Errors that callers branch on with errors.Is.
var (
	// ErrInvalidMessage: nobody can tell which event the message is: it has no id, or one that no
	// table can keep. Nothing was written. It never becomes better: send the message to a poison
	// queue.
	ErrInvalidMessage = errors.New("inbox: invalid message")

	// ErrParked: the event is parked: it failed too often, or with core.Permanent. It is not
	// processed until Release. The error also wraps that of the handler when it is the one that
	// parked it.
	ErrParked = errors.New("inbox: event is parked")

	// ErrInProgress: another process says that it works on the event. Deliver the message again
	// later.
	ErrInProgress = errors.New("inbox: event is being processed")

	// ErrProducedNeedsOutbox: the handler returned messages, and there is neither Config.Publisher
	// nor the option Publisher. The Router would publish them after the commit, and lose them where
	// that fails. Everything was rolled back.
	ErrProducedNeedsOutbox = errors.New("inbox: the handler returned messages and nobody takes them: give " +
		"Middleware the option inbox.Publisher, " +
		"or set Config.Publisher, which writes them to the outbox")

	// ErrPoisonInside: a poison queue inside of the inbox took the message and hid the handler's
	// error. Everything was rolled back. Put the poison queue outside: see Chain.
	ErrPoisonInside = errors.New("inbox: a poison queue inside of the inbox hid the handler's error: build the " +
		"chain with inbox.Chain")

	// ErrTransactionEnded: the handler ended the transaction of the inbox itself, by a method of it
	// or by a statement (COMMIT; on MySQL and MariaDB also CREATE, ALTER, TRUNCATE and the like).
	// The event counts as processed, although the handler failed afterwards or was told so late:
	// what it left undone is not done when the message comes again. The error also wraps that of
	// the handler. Leave the end of the transaction to the inbox.
	ErrTransactionEnded = errors.New("inbox: the handler ended the transaction of the inbox itself, and its event " +
		"counts as processed: leave COMMIT, and statements that imply it, out of handlers")

	// ErrPanicked: the function given to ProcessBatch panicked with this message. Observers are
	// told it of every panic, and of a handler that called runtime.Goexit. The error also wraps a
	// *core.PanicError, which has the value and the stack.
	ErrPanicked = errors.New("inbox: the handler did not return")

	// ErrInTransaction: the context carries a transaction already, so the effects could not be
	// committed before the message is acknowledged. Either the middleware was added twice, or the
	// Pub/Sub hands on the context of its publisher (gochannel's PreserveContext).
	ErrInTransaction = errors.New("inbox: the context carries a transaction already: is the middleware there twice, " +
		"or does the Pub/Sub preserve its publisher's context?")
)

// panicked is the error for what recover returned in a deferred function.
func panicked(v any) error { return fmt.Errorf("%w: %w", ErrPanicked, core.NewPanicError(v)) }

// Final reports whether handling the same message again cannot help: it wraps ErrInvalidMessage or
// ErrParked, or is core.Permanent. It is the filter for middleware.PoisonQueueWithFilter, and what
// is not Final may be retried.
func Final(err error) bool {
	if errors.Is(err, ErrInvalidMessage) || errors.Is(err, ErrParked) {
		return true
	}
	class, ok := core.ClassOf(err)
	return ok && class == core.ClassPermanent
}
