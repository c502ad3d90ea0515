package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	heartbeatEvery  = 10 * time.Second // with 20 % jitter
	heartbeatSoon   = time.Second      // after a destination was stopped or goes on, at most so often
	heartbeatKept   = 24 * time.Hour   // the row of a relay that did not end cleanly
	heartbeatEnd    = 2 * time.Second  // the longest time for the removal at the end
	heartbeatMissed = 3                // failed heartbeats in a row that are worth a warning

	// RelayAlive is how long after its last heartbeat a relay counts as alive. A relay writes one
	// every 10 s with 20 % jitter.
	RelayAlive = 25 * time.Second

	// pendingSample is how many open rows with a key the search for topics looks at.
	pendingSample = 10_000
)

// RelayRegistry is implemented by a Repository that records which relays are alive. Run writes a
// heartbeat when it starts and then every 10 s, and removes it at its end. An error of these
// methods never ends a relay. If the table is missing, it wraps ErrNoTables.
type RelayRegistry interface {
	// Beat records that a relay is alive now, by the database's clock.
	Beat(ctx context.Context, b Heartbeat) error
	// RemoveRelay removes what Beat recorded.
	RemoveRelay(ctx context.Context, node string) error
	// Relays returns up to 1000 relays, the one that was seen last first. It includes those that
	// are not alive.
	Relays(ctx context.Context) ([]RelayStatus, error)
	// ForgetRelays removes the relays that were not seen for that time, and returns how many.
	ForgetRelays(ctx context.Context, unseen time.Duration) (int, error)
	// PendingTopics returns the topics that have open rows, in ascending order: all those of rows
	// without a key, and those of the first rows with a key, up to sample.
	PendingTopics(ctx context.Context, sample int) ([]string, error)
}

// Heartbeat is what a relay records about itself. Durations are those until now.
type Heartbeat struct {
	Node      string // unique for each Outbox, see Outbox.Node
	Host      string
	PID       int
	Program   string   // main module of the process, with its version or revision
	Version   string   // of ormoutbox
	AllTopics bool     // it relays all topics but those of ServedTopicPrefix
	Topics    []string // topics that it relays in addition, or the only ones

	SinceStart   time.Duration
	SinceClaim   time.Duration // since the database answered a claim; negative: never
	SincePublish time.Duration // since a destination accepted an event; negative: never

	RelayState
}

// RelayState is what only the memory of a relay knows.
type RelayState struct {
	// Stopped are the destinations that it has stopped, as Outbox.Stopped returns them. In a
	// RelayStatus, Since is by the clock of the database, and Err has the text alone.
	Stopped []StoppedDestination
	Stuck   int   // publishes that have not returned although their context ended
	HotFull bool  // the fast path has no room: new events wait for the poller
	PollErr error // why its polls fail, several in a row; nil: they do not
}

// Problems says in words what does not work, for people. Nil: nothing.
func (s RelayState) Problems() (problems []string) {
	for _, d := range s.Stopped {
		text := "destination " + strconv.Quote(clip(d.Topic, 64)) + " is stopped"
		if d.Err != nil {
			text += ": " + errorText(d.Err)
		}
		problems = append(problems, text)
	}
	if s.Stuck > 0 {
		problems = append(problems, fmt.Sprintf("%d publishes are stuck: the publisher ignores the end of its context",
			s.Stuck))
	}
	if s.PollErr != nil {
		problems = append(problems, "the relay cannot poll: "+errorText(s.PollErr))
	}
	return problems
}

// RelayStatus is a relay, as its last heartbeat recorded it. All times are those of the database's
// clock.
type RelayStatus struct {
	Node      string // the name under which it claims rows, as in the column claimed_by
	Host      string
	PID       int
	Program   string   // main module of the process, with its version or revision
	Version   string   // of ormoutbox
	AllTopics bool     // it relays all topics but those of ServedTopicPrefix
	Topics    []string // topics that it relays in addition, or the only ones

	StartedAt   time.Time
	SeenAt      time.Time
	ClaimedAt   time.Time // the database answered a claim; zero: never
	PublishedAt time.Time // a destination accepted an event; zero: never
	RelayState

	// Age is the time since SeenAt. It is negative if SeenAt is more than RelayAlive in the future:
	// the clock of the database has jumped backwards since.
	Age time.Duration
}

// Alive reports whether the last heartbeat is not older than RelayAlive. A process that crashed is
// alive for that long. A process whose database is away is not, though it goes on when it is back.
// Nor is one with a negative Age.
func (s RelayStatus) Alive() bool { return s.Age >= 0 && s.Age <= RelayAlive }

// Relays reports whether the relay publishes events of the topic.
func (s RelayStatus) Relays(topic string) bool {
	return s.AllTopics && ClaimRequest{}.Wants(topic, "") || slices.Contains(s.Topics, topic)
}

// Relays returns the relays of all processes, the one that was seen last first, at most 1000. It
// includes those that disappeared within the last day without a clean end: see RelayStatus.Alive.
// Calls of Drain are not among them. The error wraps errors.ErrUnsupported if the Repository is no
// RelayRegistry, and ErrNoTables if the table is missing.
func (o *Outbox) Relays(ctx context.Context) ([]RelayStatus, error) {
	reg, ok := o.cfg.Repository.(RelayRegistry)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return reg.Relays(ctx)
}

// UnrelayedTopics returns the topics that have pending events, also delayed ones, and that no
// living relay publishes, in ascending order. After the crash of its last relay a topic counts as
// relayed for up to RelayAlive. Of the events with a key the query looks at 10,000. Keys come in
// random order, so only a topic with a small share of a large backlog can be missed. The errors are
// those of Relays.
func (o *Outbox) UnrelayedTopics(ctx context.Context) ([]string, error) {
	reg, ok := o.cfg.Repository.(RelayRegistry)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	topics, err := reg.PendingTopics(ctx, pendingSample)
	if err != nil || len(topics) == 0 {
		return nil, err
	}
	relays, err := reg.Relays(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(topics, func(topic string) bool {
		return slices.ContainsFunc(relays, func(s RelayStatus) bool { return s.Alive() && s.Relays(topic) })
	}), nil
}

// vitals are the last times at which the parts of a relay did something.
type vitals struct {
	started                    time.Time
	turned, claimed, published moment
}

// moment is a time since the start of the relay; zero: never.
type moment struct{ at atomic.Int64 }

func (v *vitals) stamp(m *moment) { m.at.Store(max(1, int64(time.Since(v.started)))) }

// since is negative if it never happened.
func (v *vitals) since(m *moment) time.Duration {
	at := m.at.Load()
	if at == 0 {
		return -1
	}
	return time.Since(v.started) - time.Duration(at)
}

// beat writes heartbeats until ctx ends.
func (r *relay) beat(ctx context.Context) {
	reg, ok := r.repo().(RelayRegistry)
	if !ok {
		return
	}
	gap := spread(heartbeatEvery-heartbeatSoon, r.random())
	for failures := 0; ; {
		callCtx, cancel := context.WithTimeout(ctx, dbTimeout)
		err := reg.Beat(callCtx, r.heartbeat())
		cancel()
		if err == nil {
			failures = 0
		} else if failures++; failures == heartbeatMissed && ctx.Err() == nil {
			r.cfg.Logger.Warn("outbox: heartbeats of this relay fail: other processes do not see that it is alive",
				"component", "outbox", "failures", failures, "err", errorText(err))
		}
		if !sleep(ctx, heartbeatSoon) || !r.untilBeat(ctx, gap) {
			return
		}
	}
}

// untilBeat waits for the next heartbeat, at most for gap. It reports false if ctx has ended.
func (r *relay) untilBeat(ctx context.Context, gap time.Duration) bool {
	timer := time.NewTimer(gap)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.life.news:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// tellSoon makes the next heartbeat come soon, because a destination was stopped or goes on.
func (r *relay) tellSoon() {
	select {
	case r.life.news <- struct{}{}:
	default:
	}
}

// endHeartbeat removes the heartbeat when the relay ends. If that fails, the relay counts as alive
// for RelayAlive.
func (r *relay) endHeartbeat(ctx context.Context) {
	if reg, ok := r.repo().(RelayRegistry); ok {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(heartbeatEnd, r.cfg.ShutdownTimeout))
		defer cancel()
		_ = reg.RemoveRelay(ctx, r.cfg.Node)
	}
}

func (r *relay) heartbeat() Heartbeat {
	build, v := buildOf(), &r.life.vitals
	host, _ := os.Hostname()
	return Heartbeat{
		Node: r.cfg.Node, Host: clip(host, 255), PID: os.Getpid(), Program: build.program, Version: build.version,
		AllTopics: r.o.topics.all(), Topics: r.o.topics.list(),
		SinceStart: time.Since(v.started), SinceClaim: v.since(&v.claimed), SincePublish: v.since(&v.published),
		RelayState: r.state(),
	}
}

// state returns what only the memory of this process knows.
func (r *relay) state() RelayState {
	s := RelayState{Stopped: r.stoppedNow()}
	_, s.Stuck = r.crewState()
	if err := r.life.pollFails.Load(); err != nil {
		s.PollErr = *err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.HotFull = r.inflight.hot.events >= r.cfg.HotEvents || r.inflight.hot.bytes >= r.cfg.HotBytes
	return s
}

type build struct{ program, version string }

const modulePath = "github.com/ormoutbox/ormoutbox"

// buildOf names the program and the version of this module in it.
var buildOf = sync.OnceValue(func() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return build{}
	}
	return describe(info)
})

func describe(info *debug.BuildInfo) (b build) {
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	version := info.Main.Version
	if (version == "" || version == "(devel)") && revision != "" {
		version = revision + dirty
	}
	b.program = clip(strings.TrimSpace(cmp.Or(info.Main.Path, info.Path)+" "+version), 255)
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == modulePath {
			if m.Replace != nil {
				m = m.Replace
			}
			b.version = clip(cmp.Or(m.Version, "(devel)"), 128)
		}
	}
	return b
}
