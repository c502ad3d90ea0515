package inbox

import (
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
)

// Errors that callers branch on with errors.Is.
var (
	// ErrInvalidMessage: the message has no event id, or one that no table can keep. Nothing was
	// written. A further delivery has the same result: send the message to a dead-letter queue.
	ErrInvalidMessage = errors.New("inbox: invalid message")

	// ErrDead: the event was given up, because its handler failed too often or with core.Permanent,
	// or because of ErrAcknowledged.
	// The event is not processed until Redrive, and never after Discard. If the handler has just
	// failed, the error also wraps the handler's error.
	ErrDead = errors.New("inbox: event is dead")

	// ErrInProgress: another process works on the event. Deliver the message again later.
	ErrInProgress = errors.New("inbox: event is being processed")

	// ErrTransactionEnded: the handler ended the transaction of the inbox itself, by a method of
	// the transaction or by a statement (COMMIT; on MySQL and MariaDB also CREATE, ALTER,
	// TRUNCATE). The event counts as processed, even if the handler failed afterwards: when the
	// message comes again, the handler does not run, and the rest of its work stays undone. The
	// error also wraps that of the handler. Leave the end of the transaction to the inbox.
	ErrTransactionEnded = errors.New("inbox: the handler ended the transaction of the inbox itself, and its event " +
		"counts as processed: leave COMMIT, and statements that imply it, out of handlers")

	// ErrAcknowledged: the message was acknowledged before its work was committed, by the handler
	// or by middleware such as Watermill's InstantAck. The broker does not deliver it again, so the
	// event is dead at once: Result.Action is Dead, and a dead-letter queue keeps the message.
	// Everything was rolled back. Leave the acknowledgement to the caller of the inbox.
	ErrAcknowledged = core.Permanent(errors.New("inbox: the message was acknowledged before its work was committed, " +
		"so it does not come again: leave Ack to the Router, and InstantAck out"))

	// ErrInvalidRequest: a request of a person lacks something (keys, actor, reason), or names the
	// key of another consumer. Nothing was changed.
	ErrInvalidRequest = errors.New("inbox: invalid request")

	// ErrPanicked: the function given to ProcessBatch panicked with this message. Observers get
	// this error for every panic, and for a handler that called runtime.Goexit. The error also
	// wraps a *core.PanicError, which has the value and the stack.
	ErrPanicked = errors.New("inbox: the handler did not return")

	// ErrInTransaction: the context carries a transaction already, so the effects could not be
	// committed before the message is acknowledged. Either an inbox runs inside another one, or the
	// client passes on the context of the publisher.
	ErrInTransaction = errors.New("inbox: the context carries a transaction already: is the middleware there twice, " +
		"or does the Pub/Sub preserve its publisher's context?")
)

// panicked is the error for what recover returned in a deferred function.
func panicked(v any) error { return fmt.Errorf("%w: %w", ErrPanicked, core.NewPanicError(v)) }

// Final reports whether processing the same message again cannot help. For the error of a Result
// that is so if its Action is Dead. For any other error it is so if err wraps ErrInvalidMessage or
// ErrDead, or is core.Permanent.
func Final(err error) bool {
	if v, ok := errors.AsType[*verdict](err); ok {
		return v.dead
	}
	if errors.Is(err, ErrInvalidMessage) || errors.Is(err, ErrDead) {
		return true
	}
	class, ok := core.ClassOf(err)
	return ok && class == core.ClassPermanent
}
