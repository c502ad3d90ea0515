package relay

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// Config configures the relay of an Outbox. It is the value of core.Config.Relay, and of the field
// Relay in the Config of each adapter. The zero value means the documented defaults.
type Config struct {
	// PublishTimeout ends a publish. A publisher that ignores it is abandoned after twice that
	// time: the event counts as timed out, and may be published twice. Default: 5 s.
	PublishTimeout time.Duration
	// ShutdownTimeout is the longest time that Run takes to return after its context ended. In that
	// time Run publishes the events that it holds, and gives the rest back. It must be shorter than
	// the time after which the process is killed (30 s on Kubernetes). Default: 20 s.
	ShutdownTimeout time.Duration
	// Retry sets the pauses and the number of attempts of refused events.
	Retry RetryPolicy
	// RetryByType has policies of single event types, in place of Retry. A zero field has the value
	// of Retry; MaxDelay is then at least BaseDelay. Default: none.
	RetryByType map[string]RetryPolicy
	// Breaker sets when a destination is stopped and how it is probed.
	Breaker BreakerPolicy
	// Classifier judges publish errors that no publisher has marked with a class. Default:
	// core.ClassUnavailable if Repository.Classify returns core.ErrorUnavailable, otherwise
	// core.DefaultClassifier.
	Classifier func(error) core.Class
	// MaxCrashes is how many processes may die while they publish a suspicious event before the
	// event is DEAD. An event is suspicious after three lost leases. From then on the relay
	// publishes it beside no other suspicious event, and records the start of each publish. A death
	// counts only during such a publish, and only if the destination works as far as the process
	// has seen: it has acknowledged another event, and refused none since. Default: 10.
	MaxCrashes int
	// Retention is how long published rows are kept.
	Retention Retention
	// DisableJanitor leaves retention and the collection of idle keys to other processes.
	DisableJanitor bool
	// PollInterval is the pause between two polls, unless a poll found so much that the next one
	// follows at once. The pause doubles up to MaxPollInterval while nothing is found. Both get 20
	// % jitter. Default: 1 s and 5 s.
	PollInterval    time.Duration
	MaxPollInterval time.Duration
	// Workers is how many events are published at once, or how many goroutines hand events over to
	// an AsyncPublisher. Default: 32.
	Workers int
	// InFlight and InFlightBytes bound the events that were handed to an AsyncPublisher and wait
	// for its answer. InFlightBytes may be exceeded by one event. Other publishers get one event
	// from each worker. Default: 1024 events, 16 MiB.
	InFlight      int
	InFlightBytes int64
	// HotEvents and HotBytes bound the fast path, from Publish to the mark. The poller publishes
	// the events that do not fit. Default: 4096 events, 64 MiB.
	HotEvents int
	HotBytes  int64
	// ColdEvents and ColdBytes bound the events that the poller holds in memory. Replayed events
	// get at most half of both. Default: 1000 events and 64 MiB. With an AsyncPublisher, the
	// default of ColdEvents is twice InFlight if that is more.
	ColdEvents int
	ColdBytes  int64
	// HotLease is how long a new row is leased to the process that inserts it. After a crash of
	// that process its events wait this long. Default: 10 s.
	HotLease time.Duration
	// ClaimLease is how long the poller leases a row. The lease is renewed while the row is worked
	// on. Default: 30 s.
	ClaimLease time.Duration
	// LeaseMargin is the time kept free between the end of a publish and the end of its lease, for
	// pauses of the process and for differing clocks. Default: 1 s.
	LeaseMargin time.Duration
	// MaxLease is the longest possible lease. A longer lease in the table comes from a clock that
	// jumped, and counts as over. Default: 15 min.
	MaxLease time.Duration
	// ClaimBatch is how many rows one claim takes. Default: 500.
	ClaimBatch int
	// KeyRun is how many rows of one key a claim takes at most. A claim takes fewer when many keys
	// are waiting. Default: 50.
	KeyRun int
	// MarkBatch, MarkDelay and MaxUnmarked control the marks of the fast path: they are written in
	// batches of MarkBatch, no later than MarkDelay, and the fast path publishes nothing while
	// MaxUnmarked marks are unwritten. A crash can repeat at most Workers + MarkBatch + MaxUnmarked
	// events of the fast path, with InFlight in place of Workers for an AsyncPublisher. Its rate of
	// publishing is at most MaxUnmarked divided by the duration of a mark. Default: 100, 5 ms, and
	// 8 for each of the Workers, at least 256, and at least InFlight with an AsyncPublisher.
	//
	// Marks of the events that the poller claimed are written in batches of ClaimBatch, or of half
	// of ColdEvents if that is less, and no later than MarkDelay. A crash can repeat at most
	// ColdEvents of them.
	MarkBatch   int
	MarkDelay   time.Duration
	MaxUnmarked int
}

// RetryPolicy sets when a refused event is tried again: after a random time below min(MaxDelay,
// BaseDelay*2^(n-1)) for refusal number n.
//
// When a destination refuses every event, the events are not at fault. So an event never becomes
// DEAD by unmarked refusals (see Transient) while its destination has acknowledged nothing since it
// first refused the event. An event that is refused alone at a silent destination is tried without
// end, once per BreakerPolicy.MaxProbeInterval. The log and Observer.ProbeFailed name the event,
// and Discard ends it.
type RetryPolicy struct {
	BaseDelay time.Duration // default 200 ms
	MaxDelay  time.Duration // default 60 s
	// after this many refusals that are its own fault, an event is DEAD; default 10
	MaxAttempts int
}

// BreakerPolicy sets when a destination (a topic) is stopped. A stopped destination costs its
// events no attempts.
type BreakerPolicy struct {
	// Failures is how many different events the destination refuses in a row, with no
	// acknowledgement in between, before the breaker opens. Errors count whether or not they are
	// marked as an outage. An event that was refused before counts only if nothing is acknowledged
	// for MaxProbeInterval. The breaker also opens when one event is refused Failures times
	// (MaxAttempts times, if fewer) and nothing was acknowledged since its first refusal. Default:
	// 5.
	Failures int
	// ProbeInterval is the first pause before one event is tried. It doubles with each failed probe
	// up to MaxProbeInterval, with 20 % jitter. MaxProbeInterval is therefore the longest wait for
	// the first event after a destination is back. Default: 1 s and 2 s.
	ProbeInterval    time.Duration
	MaxProbeInterval time.Duration
}

// Retention is how long rows are kept after they ended. An open or a dead row is never deleted,
// however old it is: Redrive or Discard ends a dead one.
type Retention struct {
	// DeleteOnSuccess deletes a row instead of marking it DONE. That is the fastest way. Published
	// events can then not be replayed, and a duplicate event id is refused only while the row
	// exists.
	DeleteOnSuccess bool
	// Keep is how long DONE rows stay without DeleteOnSuccess. Default: 7 days.
	Keep time.Duration
	// KeepDiscarded is how long DISCARDED rows stay, so that a mistake can be looked into. If the
	// two times differ by weeks and the table is large, the cleanup is slower: every walk over the
	// table reads the rows again that stay longer. Default: Keep.
	KeepDiscarded time.Duration
	// Archive gets the rows before the janitor deletes them, to write them to a table of your own
	// or to files, for example. It gets at most ArchiveRows rows and ArchiveBytes of payload at
	// once. They are deleted only after Archive has returned nil. If it returns an error or panics,
	// they stay, a warning is logged, and the next run of the janitor begins with them: the cleanup
	// does not go past rows that cannot be archived. Rows may come again after a crash, so an
	// archive must recognise their IDs. On PostgreSQL, MariaDB and MySQL two processes do not
	// archive the same row at once, because the rows are locked meanwhile in a transaction on a
	// connection of the pool. SQLite locks nothing meanwhile.
	//
	// Archive must end when ctx does, a minute after the begin of the cleanup at the latest, and
	// must not change the outbox. A call that goes on for another second is left alone, so that Run
	// can end: its rows stay, and the next call begins when it has returned. DeleteOnSuccess cannot
	// be set with it: published rows would be deleted unseen. With partitions, rows are then
	// deleted one by one, and a partition is dropped when it is empty. Set the same in every
	// process with a janitor, or DisableJanitor: a janitor without Archive deletes unseen. Default:
	// none.
	Archive func(ctx context.Context, rows []core.ArchivedEvent) error
	// CleanupInterval is the pause between runs of the janitor. Default: 1 min.
	CleanupInterval time.Duration
	// CleanupBatch is how many rows one statement of the janitor deletes. Default: 1000.
	CleanupBatch int
}

// withDefaults returns c, for an Outbox with the Config ob, with every zero field set to its default.
func (c Config) withDefaults(ob core.Config) Config {
	_, async := publisherKinds(ob.Publisher)
	c.Workers = cmp.Or(c.Workers, 32)
	c.InFlight = cmp.Or(c.InFlight, 1024)
	c.InFlightBytes = cmp.Or(c.InFlightBytes, 16<<20)
	c.PublishTimeout = cmp.Or(c.PublishTimeout, 5*time.Second)
	c.HotEvents = cmp.Or(c.HotEvents, 4096)
	c.HotBytes = cmp.Or(c.HotBytes, 64<<20)
	c.ColdEvents = cmp.Or(c.ColdEvents, c.defaultCold(async))
	c.ColdBytes = cmp.Or(c.ColdBytes, 64<<20)
	c.HotLease = cmp.Or(c.HotLease, 10*time.Second)
	c.ClaimLease = cmp.Or(c.ClaimLease, 30*time.Second)
	c.LeaseMargin = cmp.Or(c.LeaseMargin, time.Second)
	c.MaxLease = cmp.Or(c.MaxLease, 15*time.Minute)
	c.PollInterval = cmp.Or(c.PollInterval, time.Second)
	c.MaxPollInterval = cmp.Or(c.MaxPollInterval, max(5*time.Second, c.PollInterval))
	c.ClaimBatch = cmp.Or(c.ClaimBatch, 500)
	c.KeyRun = cmp.Or(c.KeyRun, 50)
	c.MarkBatch = cmp.Or(c.MarkBatch, 100)
	c.MarkDelay = cmp.Or(c.MarkDelay, 5*time.Millisecond)
	c.MaxUnmarked = cmp.Or(c.MaxUnmarked, c.defaultUnmarked(async))
	c.Retry.BaseDelay = cmp.Or(c.Retry.BaseDelay, 200*time.Millisecond)
	c.Retry.MaxDelay = cmp.Or(c.Retry.MaxDelay, time.Minute)
	c.Retry.MaxAttempts = cmp.Or(c.Retry.MaxAttempts, 10)
	c.RetryByType = maps.Clone(c.RetryByType)
	for typ, p := range c.RetryByType {
		c.RetryByType[typ] = p.or(c.Retry)
	}
	c.Breaker.Failures = cmp.Or(c.Breaker.Failures, 5)
	c.Breaker.ProbeInterval = cmp.Or(c.Breaker.ProbeInterval, time.Second)
	c.Breaker.MaxProbeInterval = cmp.Or(c.Breaker.MaxProbeInterval, max(2*time.Second, c.Breaker.ProbeInterval))
	c.MaxCrashes = cmp.Or(c.MaxCrashes, 10)
	c.Retention.Keep = cmp.Or(c.Retention.Keep, 7*24*time.Hour)
	c.Retention.KeepDiscarded = cmp.Or(c.Retention.KeepDiscarded, c.Retention.Keep)
	c.Retention.CleanupInterval = cmp.Or(c.Retention.CleanupInterval, time.Minute)
	c.Retention.CleanupBatch = cmp.Or(c.Retention.CleanupBatch, 1000)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 20*time.Second)
	if c.Classifier == nil {
		c.Classifier = func(err error) core.Class { return classifyOf(ob.Repository, err) }
	}
	return c
}

// classifyOf is the default of Classifier. The Repository recognises errors of a publisher that
// writes into the same kind of database.
func classifyOf(repo core.Repository, err error) core.Class {
	if repo.Classify(err) == core.ErrorUnavailable {
		return core.ClassUnavailable
	}
	return core.DefaultClassifier(err)
}

// defaultUnmarked is the default of MaxUnmarked: so many that publishing goes on while a batch of
// marks is written.
func (c *Config) defaultUnmarked(async bool) int {
	n := max(256, 8*c.Workers)
	if async {
		n = max(n, c.InFlight)
	}
	return n
}

// defaultCold is the default of ColdEvents. An AsyncPublisher can have InFlight events, and as many
// again wait in memory meanwhile.
func (c *Config) defaultCold(async bool) int {
	if async {
		return max(1000, 2*c.InFlight)
	}
	return 1000
}

// coldMarkBatch is how many marks of claimed events are a batch: as many as a claim has rows. The
// poller claims again when half of its room is free, so a batch is not larger than that.
func (c *Config) coldMarkBatch() int {
	return max(c.MarkBatch, min(c.ClaimBatch, (c.ColdEvents+1)/2))
}

// Problems implements RelayConfig.
func (c Config) Problems(ob core.Config) []error {
	c = c.withDefaults(ob)
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, &core.FieldError{Format: format, Args: args})
	}
	for name, n := range map[string]int64{
		"Workers": int64(c.Workers), "HotEvents": int64(c.HotEvents),
		"InFlight": int64(c.InFlight), "InFlightBytes": c.InFlightBytes,
		"HotBytes": c.HotBytes, "ColdEvents": int64(c.ColdEvents), "ColdBytes": c.ColdBytes,
		"ClaimBatch": int64(c.ClaimBatch), "KeyRun": int64(c.KeyRun),
		"MarkBatch": int64(c.MarkBatch), "MaxUnmarked": int64(c.MaxUnmarked),
		"Breaker.Failures": int64(c.Breaker.Failures),
		"MaxCrashes":       int64(c.MaxCrashes), "Retention.CleanupBatch": int64(c.Retention.CleanupBatch),
		"PublishTimeout": int64(c.PublishTimeout), "HotLease": int64(c.HotLease), "ClaimLease": int64(c.ClaimLease),
		"LeaseMargin": int64(c.LeaseMargin), "MaxLease": int64(c.MaxLease), "PollInterval": int64(c.PollInterval),
		"MaxPollInterval": int64(c.MaxPollInterval), "MarkDelay": int64(c.MarkDelay),
		"Breaker.ProbeInterval":    int64(c.Breaker.ProbeInterval),
		"Breaker.MaxProbeInterval": int64(c.Breaker.MaxProbeInterval), "Retention.Keep": int64(c.Retention.Keep),
		"Retention.KeepDiscarded":   int64(c.Retention.KeepDiscarded),
		"Retention.CleanupInterval": int64(c.Retention.CleanupInterval), "ShutdownTimeout": int64(c.ShutdownTimeout),
	} {
		if n < 0 {
			bad("{Relay." + name + "} is negative")
		}
	}
	if need := c.PublishTimeout + c.LeaseMargin; c.HotLease <= need {
		bad("{Relay.HotLease} %s must be longer than {PublishTimeout} + {LeaseMargin} = %s", c.HotLease, need)
	} else if c.ClaimLease <= need {
		bad("{Relay.ClaimLease} %s must be longer than {PublishTimeout} + {LeaseMargin} = %s", c.ClaimLease, need)
	}
	if c.MaxLease < max(c.HotLease, c.ClaimLease) {
		bad(
			"{Relay.MaxLease} %s is shorter than {HotLease} %s or {ClaimLease} %s",
			c.MaxLease,
			c.HotLease,
			c.ClaimLease,
		)
	}
	if c.MaxPollInterval < c.PollInterval {
		bad("{Relay.MaxPollInterval} %s is shorter than {PollInterval} %s", c.MaxPollInterval, c.PollInterval)
	}
	c.Retry.validate("Retry", bad)
	for typ, p := range c.RetryByType {
		if typ == "" {
			bad("{Relay.RetryByType} has an empty event type")
		}
		p.validate(fmt.Sprintf("RetryByType[%q]", errtext.Clip(typ, 64)), bad)
	}
	if c.Breaker.MaxProbeInterval < c.Breaker.ProbeInterval {
		bad("{Relay.Breaker.MaxProbeInterval} %s is shorter than {Breaker.ProbeInterval} %s",
			c.Breaker.MaxProbeInterval, c.Breaker.ProbeInterval)
	}
	c.Retention.validate(ob, bad)
	return problems
}

func (r Retention) validate(ob core.Config, bad func(format string, args ...any)) {
	if r.Archive != nil && r.DeleteOnSuccess {
		bad("{Relay.Retention.Archive} would not see published rows, because {DeleteOnSuccess} is set: leave one of " +
			"them out")
	}
	if r.DeleteOnSuccess && ob.RelayedByLog {
		bad("{Relay.Retention.DeleteOnSuccess} and {RelayedByLog} are both set: no relay marks the rows, so they are " +
			"deleted by their age. Set {Relay.Retention.Keep}")
	}
}
