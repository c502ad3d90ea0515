package crash

import (
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// Point is a place between two steps at which a child ends itself.
type Point string

// Points.
const (
	BeforeCommit  Point = "before commit"
	InsideCommit  Point = "inside commit"
	BeforeEnqueue Point = "after commit, before enqueue"
	AfterClaim    Point = "after claim, before publish"
	AfterAck      Point = "after publish, before mark"
	MidBatch      Point = "mid batch"
	BeforeMark    Point = "mark begins"
	AfterMark     Point = "after mark"
	Never         Point = ""
)

// Points lists all points.
var Points = []Point{BeforeCommit, InsideCommit, BeforeEnqueue, AfterClaim, AfterAck, MidBatch, BeforeMark, AfterMark}

// Mutant is a mistake that a child makes on purpose, to show that the proof would notice it.
type Mutant string

// Mutants.
const (
	MarkFirst    Mutant = "mark first"    // DONE is written before the event is sent
	PublishEarly Mutant = "publish early" // events leave before their commit
	Leak         Mutant = "leak"          // each sample leaves memory behind
	NoInbox      Mutant = "no inbox"      // the consumer handles each copy
)

// Sink is the kind of broker to which a child publishes.
type Sink string

// Sinks.
const (
	ToLedger Sink = ""
	ToKafka  Sink = "kafka"
	ToFranz  Sink = "kafka through franz-go" // takes many events at once
	ToRabbit Sink = "rabbitmq"
)

// Spec tells a child what to do.
type Spec struct {
	Name    string
	Dialect core.Dialect
	DSN     string
	Ledger  string // address; notes go there with every sink

	Sink     Sink
	SinkAddr string
	Topic    string

	PublishTimeout time.Duration // 0: publishTimeout, which is shorter than the leases

	Relay   bool
	Writers int // goroutines that write business data with events
	Keys    int
	Limit   int           // transactions of each writer; 0: without a limit
	Pause   time.Duration // average pause of a writer before each transaction

	Point Point
	Warm  int // Point counts only after this many events were published
	After int // the child ends itself when it passes Point for the After-th time
	Seed  uint64

	Consumer string        // name in the inbox; empty: the child does not consume
	Keep     time.Duration // published events are deleted after it; 0: the default
	Sample   time.Duration // between two samples for the Ledger; 0: none

	HotEvents int  // 0: default
	PGX       bool // native pgx writes and relays; PostgreSQL only
	Mutant    Mutant
}

// The child's configuration has short leases, so that a test need not wait. Its buffers are small,
// so that the bound of duplicates is small too.
const (
	workers        = 4
	markBatch      = 8
	maxUnmarked    = 8
	coldEvents     = 40
	inFlight       = 24
	publishTimeout = 400 * time.Millisecond
	hotLease       = time.Second
	// ClaimLease is how long a child's claims last.
	ClaimLease = 1200 * time.Millisecond

	// ColdPerKill is how many events of the poller a crash may repeat, as core.Config documents it.
	ColdPerKill = coldEvents
)

// HotPerKill is how many events of the fast path a crash may repeat, as core.Config documents it.
func (s Spec) HotPerKill() int {
	if s.Sink == ToFranz {
		return inFlight + markBatch + maxUnmarked
	}
	return workers + markBatch + maxUnmarked
}

// DuplicatesPerKill is how many events a crash may repeat.
func (s Spec) DuplicatesPerKill() int { return s.HotPerKill() + ColdPerKill }

// timeout is the time limit of a publish.
func (s Spec) timeout() time.Duration {
	if s.PublishTimeout != 0 {
		return s.PublishTimeout
	}
	return publishTimeout
}

// Config is the configuration of a relay with the timeouts of s.
func (s Spec) Config(repo core.Repository, pub core.Publisher) core.Config {
	cfg := Config(repo, pub, s.Name)
	c := cfg.Relay.(relay.Config)
	c.HotEvents = s.HotEvents
	c.Retention = relay.Retention{Keep: s.Keep, CleanupInterval: s.Keep / 2}
	if t := s.PublishTimeout; t != 0 {
		c.PublishTimeout, c.HotLease, c.ClaimLease = t, 2*t, 3*t
	}
	cfg.Relay = c
	return cfg
}

// Config is the configuration of every relay that a test starts.
func Config(repo core.Repository, pub core.Publisher, node string) core.Config {
	return core.Config{
		Repository: repo, Publisher: pub, Node: node,
		Relay: relay.Config{
			Workers:         workers,
			InFlight:        inFlight,
			MarkBatch:       markBatch,
			MaxUnmarked:     maxUnmarked,
			MarkDelay:       2 * time.Millisecond,
			PublishTimeout:  publishTimeout,
			LeaseMargin:     50 * time.Millisecond,
			HotLease:        hotLease,
			ClaimLease:      ClaimLease,
			PollInterval:    20 * time.Millisecond,
			MaxPollInterval: 100 * time.Millisecond,
			ClaimBatch:      60,
			KeyRun:          20,
			ColdEvents:      coldEvents,
			Retry: relay.RetryPolicy{
				BaseDelay: 5 * time.Millisecond, MaxDelay: 50 * time.Millisecond,
				MaxAttempts: 50,
			},
			Breaker: relay.BreakerPolicy{
				ProbeInterval:    20 * time.Millisecond,
				MaxProbeInterval: 100 * time.Millisecond,
			},
			ShutdownTimeout: 10 * time.Second,
			MaxCrashes:      1000, // tests kill processes often, and no event is the cause
		}, // tests kill processes often, and no event is the cause
	}
}
