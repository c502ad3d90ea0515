package core

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

// RelayAlive is how long after its last heartbeat a relay counts as alive. A relay writes one every
// 10 s with 20 % jitter.
const RelayAlive = 25 * time.Second

// Heartbeat is a relay's record of itself. Durations count until now.
type Heartbeat struct {
	Node      string // unique for each Outbox, see Outbox.Node
	Host      string
	PID       int
	Program   string   // main module of the process, with its version or revision
	Version   string   // of ormoutbox
	AllTopics bool     // it relays every topic outside ServedTopicPrefix
	Topics    []string // topics that it relays in addition, or the only ones

	SinceStart   time.Duration
	SinceClaim   time.Duration // since the database answered a claim, or that none is needed; negative: never
	SincePublish time.Duration // since a destination accepted an event; negative: never

	RelayState
}

// RelayState is the trouble that a relay sees and reports in its heartbeat.
type RelayState struct {
	// Stopped are the destinations that it has stopped, as Outbox.Stopped returns them. In a
	// RelayStatus, Since is by the clock of the database, and Err has the text alone.
	Stopped []StoppedDestination
	Stuck   int   // publishes that have not returned although their context ended
	HotFull bool  // the fast path has no room: new events wait for the poller
	PollErr error // why its polls fail; nil unless several failed in a row
}

// Problems describes for people what does not work. Nil: no problem.
func (s RelayState) Problems() (problems []string) {
	for _, d := range s.Stopped {
		text := "destination " + strconv.Quote(errtext.Clip(d.Topic, 64)) + " is stopped"
		if d.Err != nil {
			text += ": " + textcheck.Line(errtext.Of(d.Err))
		}
		problems = append(problems, text)
	}
	if s.Stuck > 0 {
		problems = append(problems, fmt.Sprintf("%d publishes are stuck: the publisher ignores the end of its context",
			s.Stuck))
	}
	if s.PollErr != nil {
		problems = append(problems, "the relay cannot poll: "+textcheck.Line(errtext.Of(s.PollErr)))
	}
	return problems
}

// RelayStatus is a relay, as its last heartbeat recorded it. All times are by the database's clock.
type RelayStatus struct {
	Node      string // the name under which it claims rows, as in the column claimed_by
	Host      string
	PID       int
	Program   string   // main module of the process, with its version or revision
	Version   string   // of ormoutbox
	AllTopics bool     // it relays every topic outside ServedTopicPrefix
	Topics    []string // topics that it relays in addition, or the only ones

	StartedAt   time.Time
	SeenAt      time.Time
	ClaimedAt   time.Time // the database answered a claim, or that none is needed; zero: never
	PublishedAt time.Time // a destination accepted an event; zero: never
	RelayState

	// Age is the time since SeenAt. It is negative if SeenAt is more than RelayAlive in the future:
	// the clock of the database has jumped backwards since.
	Age time.Duration
	// Ahead is how far SeenAt is in the future. In a cluster, the clock of the node that wrote the
	// heartbeat is at least so much ahead of the clock of the node that was asked.
	Ahead time.Duration
}

// Alive reports whether the last heartbeat is not older than RelayAlive. A process that crashed
// counts as alive for that long. A process does not while its database is away, nor with a negative
// Age.
func (s RelayStatus) Alive() bool { return s.Age >= 0 && s.Age <= RelayAlive }

// Relays reports whether the relay publishes events of the topic.
func (s RelayStatus) Relays(topic string) bool {
	return s.AllTopics && ClaimRequest{}.Wants(topic, "") || slices.Contains(s.Topics, topic)
}

// StoppedDestination is a destination whose breaker is open in this process: its events wait and
// spend no attempts.
type StoppedDestination struct {
	Topic    string
	Since    time.Time // when it was stopped, by the clock of this process
	Failures int       // probes that failed since then
	Stuck    int       // publishes that have not returned although their context ended
	Err      error     // the latest refusal
}
