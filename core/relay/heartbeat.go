package relay

import (
	"cmp"
	"context"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/pace"
)

const (
	heartbeatEvery  = 10 * time.Second // with 20 % jitter
	heartbeatSoon   = time.Second      // after a destination was stopped or goes on, at most so often
	heartbeatKept   = 24 * time.Hour   // the row of a relay that did not end cleanly
	heartbeatEnd    = 2 * time.Second  // the longest time for the removal at the end
	heartbeatMissed = 3                // failed heartbeats in a row that are worth a warning
)

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
func (r *engine) beat(ctx context.Context) {
	gap := pace.Spread(heartbeatEvery-heartbeatSoon, r.random())
	for failures := 0; ; {
		callCtx, cancel := context.WithTimeout(ctx, dbTimeout)
		err := r.repo().Beat(callCtx, r.heartbeat())
		if err == nil {
			r.compareClocks(callCtx)
		}
		cancel()
		if err != nil {
			r.doubt()
		}
		if err == nil {
			failures = 0
		} else if failures++; failures == heartbeatMissed && ctx.Err() == nil {
			r.ob.Logger.Warn("outbox: heartbeats of this relay fail: other processes do not see that it is alive",
				"failures", failures, "error", errtext.Of(err))
		}
		if !pace.Sleep(ctx, heartbeatSoon) || !r.untilBeat(ctx, gap) {
			return
		}
	}
}

// untilBeat waits for the next heartbeat, at most for gap. It reports false if ctx has ended.
func (r *engine) untilBeat(ctx context.Context, gap time.Duration) bool {
	timer := time.NewTimer(gap)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.signals.beat:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// endHeartbeat removes the heartbeat when the relay ends. If that fails, the relay counts as alive
// for RelayAlive.
func (r *engine) endHeartbeat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(heartbeatEnd, r.cfg.ShutdownTimeout))
	defer cancel()
	_ = r.repo().RemoveRelay(ctx, r.ob.Node)
}

func (r *engine) heartbeat() core.Heartbeat {
	build, v := buildOf(), &r.life.vitals
	host, _ := os.Hostname()
	return core.Heartbeat{
		Node:         r.ob.Node,
		Host:         errtext.Clip(host, 255),
		PID:          os.Getpid(),
		Program:      build.program,
		Version:      build.version,
		AllTopics:    r.topics.all(),
		Topics:       r.topics.list(),
		SinceStart:   time.Since(v.started),
		SinceClaim:   v.since(&v.claimed),
		SincePublish: v.since(&v.published),
		RelayState:   r.memory(),
	}
}

// turned returns how long ago the loop of Run turned.
func (r *engine) turned() time.Duration { return max(0, r.life.vitals.since(&r.life.vitals.turned)) }

// memory returns the part of the relay's state that is only in this process's memory.
func (r *engine) memory() core.RelayState {
	m := ask(r, (*state).memory)
	if err := r.life.pollFails.Load(); err != nil {
		m.PollErr = *err
	}
	return m
}

func (s *state) memory() core.RelayState {
	m := core.RelayState{
		Stuck:   s.crew.abandoned(),
		HotFull: s.inflight.hot.events >= s.cfg.HotEvents || s.inflight.hot.bytes >= s.cfg.HotBytes,
	}
	for _, d := range s.dests.stopped {
		m.Stopped = append(m.Stopped, core.StoppedDestination{
			Topic: d.topic, Since: d.outage.since, Failures: d.outage.probes, Stuck: d.stuck, Err: d.outage.cause,
		})
	}
	slices.SortFunc(m.Stopped, func(a, b core.StoppedDestination) int { return strings.Compare(a.Topic, b.Topic) })
	return m
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
	b.program = errtext.Clip(strings.TrimSpace(cmp.Or(info.Main.Path, info.Path)+" "+version), 255)
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == modulePath {
			if m.Replace != nil {
				m = m.Replace
			}
			b.version = errtext.Clip(cmp.Or(m.Version, "(devel)"), 128)
		}
	}
	return b
}
