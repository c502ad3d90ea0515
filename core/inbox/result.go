package inbox

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/enum"
)

// Action is what to do with a message.
type Action uint8

// Actions.
const (
	// Ack: the event is processed, now or before, or does not have to be (Config.OnlyNewer,
	// Inbox.Discard). Acknowledge the message.
	Ack Action = iota + 1
	// Retry: the event is not processed. Do not acknowledge the message, and process it again, or
	// have it delivered again, after Result.After.
	Retry
	// Dead: the event was given up, and processing it again changes nothing. First put the message,
	// with its payload, where a person finds it, such as a dead-letter queue. Then acknowledge it.
	// A broker that keeps messages, such as Kafka, keeps this one too, and the table says where it
	// is. But there is no row for a message without a usable id, whose Result.Err wraps
	// ErrInvalidMessage, nor for one that an AtLeastOnce gave up: nothing else keeps those. Every
	// other Result.Err of a dead event wraps ErrDead.
	Dead
)

var actionNames = []string{Ack: "ack", Retry: "retry", Dead: "dead"}

// String returns the name used in logs and metrics.
func (a Action) String() string { return enum.Name(actionNames, a, "action") }

// Outcome says what became of a message, in the words of the metrics.
type Outcome string

// Outcomes. Observer says what each one means.
const (
	Processed  Outcome = "processed"
	Duplicate  Outcome = "duplicate"
	Stale      Outcome = "stale"
	InProgress Outcome = "in_progress"
	Failed     Outcome = "failed"
	GivenUp    Outcome = "dead"
)

// Result says what to do with a message.
type Result struct {
	Action Action
	// Outcome says why, for logs and traces.
	Outcome Outcome
	// After is how long to wait before the message is processed or delivered again, because most
	// brokers deliver a rejected message again at once. See Config.RetryPause. With Dead it is not
	// zero when the event was dead before and its message came again, because nobody took it out of
	// the queue.
	After time.Duration
	// Err says why; nil for Ack. Final(Err) is true for Dead only.
	Err error
}

// Again waits for After and reports whether the message is to be processed again: the Action is
// Retry, and ctx did not end meanwhile. Again is for clients that do not reject single messages,
// those of Kafka for example:
//
//	res := in.Process(ctx, msg, handle)
//	for res.Again(ctx) {
//		res = in.Process(ctx, msg, handle)
//	}
func (r Result) Again(ctx context.Context) bool {
	if r.Action != Retry {
		return false
	}
	sleep(ctx, r.After)
	return ctx.Err() == nil
}

// ack returns the Result of a message whose event needs nothing more.
func ack(o Outcome) Result { return Result{Action: Ack, Outcome: o} }

// inProgress returns the Result of a message whose event another process works on.
func inProgress(after time.Duration, err error) Result {
	return Result{Action: Retry, Outcome: InProgress, After: after, Err: err}
}

// retry returns the Result of a message whose event is not processed and not dead, whatever err
// says: it may be about another event.
func retry(after time.Duration, err error) Result {
	if Final(err) {
		err = &verdict{err, false}
	}
	return Result{Action: Retry, Outcome: Failed, After: after, Err: err}
}

// dead returns the Result of a message that the inbox gave up. Only Inbox.dead and Inbox.invalid
// call it, never because of what an error wraps.
func dead(after time.Duration, err error) Result {
	return Result{Action: Dead, Outcome: GivenUp, After: after, Err: &verdict{err, true}}
}

// verdict is an error with what the inbox decided. Final finds the outermost one.
type verdict struct {
	error
	dead bool
}

// Unwrap returns the error that was judged.
func (v *verdict) Unwrap() error { return v.error }
