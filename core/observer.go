package core

import "time"

// Observer has the callbacks for metrics and traces. Fields may be nil. Many goroutines call them,
// some on the path of a publish or a commit. They must be fast, must not block and must not panic.
// New fields may be added.
type Observer struct {
	// Inserted: Publish wrote the rows of one event to a topic. hot tells whether the fast path has
	// the event.
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
	// BreakerChanged: a destination was stopped (open) or goes on.
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

// OperatorAction is what a person does to events.
type OperatorAction string

// Actions of Observer.Operated.
const (
	OperatorRedrive OperatorAction = "redrive"
	OperatorDiscard OperatorAction = "discard"
	OperatorReplay  OperatorAction = "replay"
)

// Path says how a relay got an event.
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

// FallbackReason says why the poller, of this process or another one, publishes an event of the
// fast path. The event is in the table and is not lost.
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
	var all []Observer
	for _, o := range observers {
		if o != nil {
			all = append(all, o.withDefaults())
		}
	}
	return &Observer{
		Inserted: func(topic string, hot bool) {
			for _, o := range all {
				o.Inserted(topic, hot)
			}
		},
		Untracked: func(rows int) {
			for _, o := range all {
				o.Untracked(rows)
			}
		},
		FellBack: func(topic string, reason FallbackReason) {
			for _, o := range all {
				o.FellBack(topic, reason)
			}
		},
		Published: func(info PublishInfo) {
			for _, o := range all {
				o.Published(info)
			}
		},
		Claimed: func(info ClaimInfo) {
			for _, o := range all {
				o.Claimed(info)
			}
		},
		Marked: func(rows int, d time.Duration, err error) {
			for _, o := range all {
				o.Marked(rows, d, err)
			}
		},
		Fenced: func(transition string, rows int) {
			for _, o := range all {
				o.Fenced(transition, rows)
			}
		},
		LateAcks: func(rows int) {
			for _, o := range all {
				o.LateAcks(rows)
			}
		},
		Stuck: func(topic string, total int) {
			for _, o := range all {
				o.Stuck(topic, total)
			}
		},
		BreakerChanged: func(topic string, open bool, cause error) {
			for _, o := range all {
				o.BreakerChanged(topic, open, cause)
			}
		},
		ProbeFailed: func(info ProbeInfo) {
			for _, o := range all {
				o.ProbeFailed(info)
			}
		},
		Cleaned: func(table string, rows int) {
			for _, o := range all {
				o.Cleaned(table, rows)
			}
		},
		Operated: func(info OperatedInfo) {
			for _, o := range all {
				o.Operated(info)
			}
		},
	}
}

// withDefaults returns a copy whose nil fields do nothing.
func (o *Observer) withDefaults() Observer {
	var c Observer
	if o != nil {
		c = *o
	}
	if c.Inserted == nil {
		c.Inserted = func(string, bool) {}
	}
	if c.Untracked == nil {
		c.Untracked = func(int) {}
	}
	if c.FellBack == nil {
		c.FellBack = func(string, FallbackReason) {}
	}
	if c.Published == nil {
		c.Published = func(PublishInfo) {}
	}
	if c.Claimed == nil {
		c.Claimed = func(ClaimInfo) {}
	}
	if c.Marked == nil {
		c.Marked = func(int, time.Duration, error) {}
	}
	if c.Fenced == nil {
		c.Fenced = func(string, int) {}
	}
	if c.LateAcks == nil {
		c.LateAcks = func(int) {}
	}
	if c.Stuck == nil {
		c.Stuck = func(string, int) {}
	}
	if c.BreakerChanged == nil {
		c.BreakerChanged = func(string, bool, error) {}
	}
	if c.ProbeFailed == nil {
		c.ProbeFailed = func(ProbeInfo) {}
	}
	if c.Cleaned == nil {
		c.Cleaned = func(string, int) {}
	}
	if c.Operated == nil {
		c.Operated = func(OperatedInfo) {}
	}
	return c
}
