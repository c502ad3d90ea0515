package inbox

import (
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
)

// Errors that callers branch on with errors.Is.
var (
	// ErrInvalidMessage: the event of the message is not known: the message has no id, or one that
	// no table can keep. Nothing was written. It never becomes better: send the message to a
	// dead-letter queue.
	ErrInvalidMessage = errors.New("inbox: invalid message")

	// ErrDead: the event was given up: it failed too often, or with core.Permanent. It is not
	// processed until Redrive. The error also wraps that of the handler if the handler has just
	// failed.
	ErrDead = errors.New("inbox: event is dead")

	// ErrInProgress: another process works on the event. Deliver the message again later.
	ErrInProgress = errors.New("inbox: event is being processed")

	// ErrTransactionEnded: the handler ended the transaction of the inbox itself, by a method of it
	// or by a statement (COMMIT; on MySQL and MariaDB also CREATE, ALTER, TRUNCATE).
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
	// committed before the message is acknowledged. Either an inbox runs inside of
	// another one, or the client hands on the context of the publisher.
	ErrInTransaction = errors.New("inbox: the context carries a transaction already: is the middleware there twice, " +
		"or does the Pub/Sub preserve its publisher's context?")
)

// panicked is the error for what recover returned in a deferred function.
func panicked(v any) error { return fmt.Errorf("%w: %w", ErrPanicked, core.NewPanicError(v)) }

// Final reports whether processing the same message again cannot help: err wraps ErrInvalidMessage
// or ErrDead, or is core.Permanent.
func Final(err error) bool {
	if errors.Is(err, ErrInvalidMessage) || errors.Is(err, ErrDead) {
		return true
	}
	class, ok := core.ClassOf(err)
	return ok && class == core.ClassPermanent
}
