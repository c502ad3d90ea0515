package core

import (
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/callback"
)

// Observer has the callbacks for metrics and traces. Fields may be nil. Many goroutines call them,
// some on the path of a publish or a commit. They must be fast, must not block and must not panic.
// New fields may be added.
type Observer struct {
	// Inserted: Publish wrote the rows of one event to a topic. hot reports whether the fast path
	// has the event.
	Inserted func(topic string, hot bool)
	// Untracked: rows were inserted in a transaction whose commit the outbox cannot observe. The
	// poller publishes them.
	Untracked func(rows int)
	// FellBack: the poller publishes an event that could have been published straight from its
	// commit. The event is not lost and comes a little later.
	FellBack func(topic string, reason FallbackReason)
	// Published: one publish ended.
	Published func(info PublishInfo)
	// Claimed: the poller claimed rows.
	Claimed func(info ClaimInfo)
	// Marked: a batch of marks was written.
	Marked func(rows int, d time.Duration, err error)
	// Fenced: a transition (retry, dead, renew, release) changed no row, because the claim was no
	// longer held.
	Fenced func(transition string, rows int)
	// LateAcks: the destination acknowledged rows that were already done, discarded or deleted.
	LateAcks func(rows int)
	// Stuck: a publish to the topic was abandoned because its publisher ignores the end of its
	// context, or such a publish returned after all. total is the number of stuck publishes of this
	// process. Restart the process when it stays above 0.
	Stuck func(topic string, total int)
	// BreakerChanged: a destination was stopped (open), goes on, or is not probed any more, because
	// no event has waited for it for an hour.
	BreakerChanged func(topic string, open bool, cause error)
	// ProbeFailed: a stopped destination was tried with one event, and failed again. An event that
	// is named again and again while other events of its destination go out may be the cause:
	// repair it, or end it with Discard.
	ProbeFailed func(info ProbeInfo)
	// Cleaned: the janitor deleted rows or key rows.
	Cleaned func(table string, rows int)
	// Operated: a person changed events from this process, with Redrive, Discard or package ops.
	Operated func(info OperatedInfo)
}

// OperatedInfo describes a call by which a person changed events, or a step of a plan.
type OperatedInfo struct {
	Action   OperatorAction
	Rows     int           // events that changed; of a replay, the rows that it inserted
	Duration time.Duration // duration of the transaction
}

// OperatorAction is a person's action on events.
type OperatorAction string

// Actions of Observer.Operated.
const (
	OperatorRedrive OperatorAction = "redrive"
	OperatorDiscard OperatorAction = "discard"
	OperatorReplay  OperatorAction = "replay"
	OperatorEdit    OperatorAction = "edit"
	OperatorErase   OperatorAction = "erase"
)

// Path is the way by which a relay got an event.
type Path string

// Paths.
const (
	PathHot  Path = "hot"  // straight from the commit
	PathCold Path = "cold" // claimed from the table
)

// PublishResult is the result of one publish.
type PublishResult string

// Results of one publish.
const (
	PublishDone        PublishResult = "done"
	PublishRetry       PublishResult = "retry"
	PublishDead        PublishResult = "dead"
	PublishUnavailable PublishResult = "unavailable"
)

// PublishInfo describes one publish.
type PublishInfo struct {
	Topic, Type string
	Path        Path
	Result      PublishResult
	Attempt     int
	Duration    time.Duration // duration of the publish
	Lag         time.Duration // from commit (hot) or insert (cold) to the end of the publish
	Err         error
}

// ProbeInfo describes a failed try of a stopped destination.
type ProbeInfo struct {
	Topic    string
	EventID  string // id of the event that was tried
	RowID    RowID
	Failures int           // failed tries since the destination was stopped
	Stopped  time.Duration // how long it has been stopped
	Err      error
}

// ClaimInfo describes one claim statement.
type ClaimInfo struct {
	Ordered  bool
	Rows     int
	Duration time.Duration
	Err      error
}

// FallbackReason is why the poller, of this process or another one, publishes an event of the fast
// path. The event is in the table and is not lost.
type FallbackReason string

// Reasons why the poller publishes an event.
const (
	FallbackFull FallbackReason = "full" // the fast path had no free slot
	// The transaction may or may not have committed.
	FallbackUnknown FallbackReason = "commit_unknown"
	FallbackLate    FallbackReason = "late" // its lease was over at the commit, or nearly so
	// The event before it in its key is not known to be published.
	FallbackOrder FallbackReason = "order"
	// Its key or destination is stopped or paused, or no worker is left.
	FallbackStopped  FallbackReason = "stopped"
	FallbackShutdown FallbackReason = "shutdown" // the relay ends
	FallbackLost     FallbackReason = "lost"     // its lease was lost before the publish began
)

// TeeObserver returns an Observer that calls all the given observers, in order. It skips nil
// observers.
func TeeObserver(observers ...*Observer) *Observer {
	all := callback.Present(observers...)
	return &Observer{
		Inserted:       callback.Each2(all, func(o *Observer) func(string, bool) { return o.Inserted }),
		Untracked:      callback.Each1(all, func(o *Observer) func(int) { return o.Untracked }),
		FellBack:       callback.Each2(all, func(o *Observer) func(string, FallbackReason) { return o.FellBack }),
		Published:      callback.Each1(all, func(o *Observer) func(PublishInfo) { return o.Published }),
		Claimed:        callback.Each1(all, func(o *Observer) func(ClaimInfo) { return o.Claimed }),
		Marked:         callback.Each3(all, func(o *Observer) func(int, time.Duration, error) { return o.Marked }),
		Fenced:         callback.Each2(all, func(o *Observer) func(string, int) { return o.Fenced }),
		LateAcks:       callback.Each1(all, func(o *Observer) func(int) { return o.LateAcks }),
		Stuck:          callback.Each2(all, func(o *Observer) func(string, int) { return o.Stuck }),
		BreakerChanged: callback.Each3(all, func(o *Observer) func(string, bool, error) { return o.BreakerChanged }),
		ProbeFailed:    callback.Each1(all, func(o *Observer) func(ProbeInfo) { return o.ProbeFailed }),
		Cleaned:        callback.Each2(all, func(o *Observer) func(string, int) { return o.Cleaned }),
		Operated:       callback.Each1(all, func(o *Observer) func(OperatedInfo) { return o.Operated }),
	}
}

// withDefaults returns the observer with a callback in each field.
func (o *Observer) withDefaults() Observer { return *TeeObserver(o) }
