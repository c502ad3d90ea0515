package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/enum"
	"github.com/ormoutbox/ormoutbox/core/internal/repeat"
)

// Action is the answer to a message.
type Action uint8

// Actions.
const (
	// Ack: the event is processed, now or before, or does not have to be ([Config.OnlyNewer],
	// [Inbox.Discard]). Acknowledge the message.
	Ack Action = iota + 1
	// Retry: the event is not processed. Do not acknowledge the message, and process it again, or
	// have it delivered again, after [Result.After].
	Retry
	// Dead: the event was given up, and processing it again changes nothing. First put the message,
	// with its payload, where a person finds it, such as a dead-letter queue. Then acknowledge it.
	// If the broker keeps messages, as Kafka does, the table has the message's place. Two kinds of
	// message have no row, so the dead-letter queue has the only copy: a message without a usable
	// id, whose [Result.Err] wraps ErrInvalidMessage, and a message that an AtLeastOnce gave up.
	// Every other [Result.Err] of a dead event wraps [ErrDead].
	Dead
)

var actionNames = []string{Ack: "ack", Retry: "retry", Dead: "dead"}

// String returns the name used in logs and metrics.
func (a Action) String() string { return enum.Name(actionNames, a, "action") }

// Outcomes of a message.
const (
	processed = "processed"
	duplicate = "duplicate"
	stale     = "stale"
	busy      = "in_progress"
	failed    = "failed"
	givenUp   = "dead"
)

// Result is the answer to a message.
type Result struct {
	Action Action
	// Outcome is the reason, for logs and traces, in the words of the metrics: processed,
	// duplicate, stale, in_progress, failed or dead. [Observer] describes them.
	Outcome string
	// After is how long to wait before the message is processed or delivered again, because most
	// brokers deliver a rejected message again at once. See [Config.RetryPause]. With Dead it is
	// not zero when the event was dead before and its message came again from the queue.
	After time.Duration
	// Err is the reason for Retry and Dead; nil for Ack. Final(Err) is true for Dead only.
	Err error
}

// Again waits for After and reports whether the message is to be processed again: the Action is
// Retry, and ctx did not end meanwhile. Again is for clients that do not reject single messages,
// such as Kafka's:
//
//	res := in.Process(ctx, msg, handle)
//	for res.Again(ctx) {
//		res = in.Process(ctx, msg, handle)
//	}
func (r Result) Again(ctx context.Context) bool {
	if r.Action != Retry {
		return false
	}
	r.Wait(ctx)
	return ctx.Err() == nil
}

// Wait waits for After, or for the end of ctx. It is for callers that hold a message before they
// reject it.
func (r Result) Wait(ctx context.Context) { sleep(ctx, r.After) }

// ack returns the Result of a message whose event needs nothing more.
func ack(outcome string) Result { return Result{Action: Ack, Outcome: outcome} }

// inProgress returns the Result of a message whose event another process works on.
func inProgress(after time.Duration, err error) Result {
	return Result{Action: Retry, Outcome: busy, After: after, Err: err}
}

// retry returns the Result of a message whose event is not processed and not dead. It marks a final
// err as not final, because err may be about another event.
func retry(after time.Duration, err error) Result {
	if Final(err) {
		err = &verdict{err, false}
	}
	return Result{Action: Retry, Outcome: failed, After: after, Err: err}
}

// dead returns the Result of a message that the inbox gave up. Only Inbox.dead and Inbox.invalid
// call it, whatever an error wraps.
func dead(after time.Duration, err error) Result {
	return Result{Action: Dead, Outcome: givenUp, After: after, Err: &verdict{err, true}}
}

// verdict is an error with the inbox's decision. Final finds the outermost one.
type verdict struct {
	error
	dead bool
}

// Unwrap returns the error that was judged.
func (v *verdict) Unwrap() error { return v.error }

// Errors that callers branch on with errors.Is.
var (
	// ErrInvalidMessage: the message has no event id, or an id that no table can keep. Nothing was
	// written. A further delivery has the same result: send the message to a dead-letter queue.
	ErrInvalidMessage = errors.New("inbox: invalid message")

	// ErrDead: the event was given up, because its handler failed too often or with core.Permanent,
	// or because of [ErrAcknowledged].
	// The event is not processed until Redrive, and never after Discard. If the handler has just
	// failed, the error also wraps the handler's error.
	ErrDead = errors.New("inbox: event is dead")

	// ErrInProgress: another process works on the event. Deliver the message again later.
	ErrInProgress = errors.New("inbox: event is being processed")

	// ErrTransactionEnded: the handler ended the transaction of the inbox itself, by a method of
	// the transaction or by a statement (COMMIT; on MySQL and MariaDB also CREATE, ALTER,
	// TRUNCATE). The event counts as processed, even if the handler failed afterwards: when the
	// message comes again, the handler does not run, and the rest of its work stays undone. The
	// error also wraps the handler's error. Leave the end of the transaction to the inbox.
	ErrTransactionEnded = errors.New("inbox: the handler ended the transaction of the inbox itself, and its event " +
		"counts as processed: leave COMMIT, and statements that imply it, out of handlers")

	// ErrAcknowledged: the message was acknowledged before its work was committed, by the handler
	// or by middleware such as Watermill's InstantAck. The broker does not deliver it again, so the
	// event is dead at once: [Result.Action] is Dead, and a dead-letter queue keeps the message.
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

// panicked is the error for a result of recover in a deferred function.
func panicked(v any) error { return fmt.Errorf("%w: %w", ErrPanicked, core.NewPanicError(v)) }

// Final reports whether err is final: processing the same message again cannot help. The error of a
// Result is final if its Action is Dead. Any other error is final if it wraps [ErrInvalidMessage]
// or ErrDead, or is core.Permanent.
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

// pauses returns how long to hold a failed message before it is rejected, because most brokers
// deliver a rejected message again at once.
type pauses struct {
	first, max time.Duration
	streak     atomic.Int32 // outages since the database last answered a message
}

// after is the pause after a failure that spent an attempt.
func (p *pauses) after(attempts int) time.Duration {
	d := p.first
	for range min(attempts-1, 30) {
		if d = min(2*d, p.max); d == p.max {
			break
		}
	}
	return repeat.Jitter(d)
}

// outage is the pause after a failure that is not the event's fault. It grows while nothing
// succeeds.
func (p *pauses) outage(ctx context.Context) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	return p.after(int(min(p.streak.Add(1), 30)))
}

func (p *pauses) reset() { p.streak.Store(0) }

// dead is the pause for a dead event that keeps coming.
func (p *pauses) dead() time.Duration { return min(10*p.first, p.max) }

// mistake is the pause after a refusal that only a change of the program ends. Without any, a loop
// with [Result.Again] would spin.
func (p *pauses) mistake() time.Duration {
	if p.first > 0 {
		return p.first
	}
	return defaultRetryPause
}

func (p *pauses) longest() time.Duration { return p.max }

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	if d > 0 {
		repeat.Sleep(ctx, d)
	}
}
