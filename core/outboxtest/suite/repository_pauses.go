package suite

import (
	"errors"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// pauseCases are those of a repository that is a core.PauseStore.
func pauseCases() []repositoryCase {
	all := []repositoryCase{
		{"a pause is read as it was written", pauseRead},
		{"another pause of the same topic replaces it", pauseReplaced},
		{"a pause ends by the database's clock", pauseEnds},
		{"resume removes one pause", pauseResumed},
		{"pause and resume are audited", pauseAudited},
	}
	for i, c := range all {
		all[i].run = func(f *fixture) {
			if _, ok := f.Repository.(core.PauseStore); ok {
				c.run(f)
			}
		}
	}
	return all
}

func (f *fixture) pause(req core.PauseRequest) {
	f.Helper()
	if req.Actor == "" {
		req.Actor, req.Reason = "ann", "broker upgrade"
	}
	f.check(f.Repository.(core.PauseStore).Pause(f.Context(), req))
}

func (f *fixture) resume(all bool, topic string) bool {
	f.Helper()
	resumed, err := f.Repository.(core.PauseStore).Resume(f.Context(),
		core.ResumeRequest{All: all, Topic: topic, Actor: "bob", Reason: "upgraded"})
	f.check(err)
	return resumed
}

func (f *fixture) pauses() []core.Pause {
	f.Helper()
	all, err := f.Repository.(core.PauseStore).Pauses(f.Context())
	f.check(err)
	return all
}

// paused names what is paused.
func (f *fixture) paused() string {
	f.Helper()
	var names []string
	for _, p := range f.pauses() {
		if p.All {
			names = append(names, "*")
		} else {
			names = append(names, p.Topic)
		}
	}
	return strings.Join(names, " ")
}

func pauseRead(f *fixture) {
	f.must(len(f.pauses()) == 0, "a new table has pauses")
	f.beat(core.Heartbeat{Node: "clock", SinceClaim: -1, SincePublish: -1})
	now := f.relays()[0].SeenAt
	until := now.Add(time.Hour).Truncate(time.Microsecond)
	f.pause(core.PauseRequest{Topic: "orders", Until: until, Actor: "ann é", Reason: "Kafka: 3.8 \"soon\""})
	f.pause(core.PauseRequest{Topic: "all"}) // a topic of that name is not everything
	f.pause(core.PauseRequest{All: true})
	got := f.pauses()
	f.must(len(got) == 3, "pauses %+v", got)
	every, named, orders := got[0], got[1], got[2]
	f.must(every.All && every.Topic == "" && every.Until.IsZero() && every.Left == 0, "pause %+v", every)
	f.must(!named.All && named.Topic == "all" && named.Covers("all") && !named.Covers("orders"), "pause %+v", named)
	f.must(every.Covers("orders"), "the pause of everything does not cover a topic")
	f.must(orders.Topic == "orders" && !orders.All && orders.Until.Equal(until) && near(orders.Left, time.Hour) &&
		near(orders.Since.Sub(now), 0) && orders.Actor == "ann é" && orders.Reason == "Kafka: 3.8 \"soon\"",
		"pause %+v until %s", orders, until)
}

func pauseReplaced(f *fixture) {
	f.pause(core.PauseRequest{Topic: "orders", Until: time.Now().Add(time.Hour)})
	first := f.pauses()[0]
	f.eventually("the clock goes on", func() bool {
		f.pause(core.PauseRequest{Topic: "orders", Actor: "bob", Reason: "longer"})
		return f.pauses()[0].Since.After(first.Since)
	})
	got := f.pauses()
	f.must(len(got) == 1 && got[0].Actor == "bob" && got[0].Reason == "longer" && got[0].Until.IsZero(),
		"pauses %+v", got)
}

func pauseEnds(f *fixture) {
	f.beat(core.Heartbeat{Node: "clock", SinceClaim: -1, SincePublish: -1})
	now := f.relays()[0].SeenAt
	f.pause(core.PauseRequest{Topic: "ended", Until: now.Add(-time.Millisecond)})
	f.pause(core.PauseRequest{Topic: "ends", Until: now.Add(time.Second)})
	f.pause(core.PauseRequest{Topic: "stays", Until: now.Add(time.Hour)})
	f.must(!strings.Contains(f.paused(), "ended"), "paused: %s", f.paused())
	f.must(!f.resume(false, "ended"), "a pause that has ended was resumed")
	f.eventually("the pause ends", func() bool { return f.paused() == "stays" })
	f.pause(core.PauseRequest{Topic: "ended"})
	f.must(f.paused() == "ended stays", "paused: %s", f.paused())
}

func pauseResumed(f *fixture) {
	f.pause(core.PauseRequest{Topic: "a"})
	f.pause(core.PauseRequest{Topic: "A"})
	f.pause(core.PauseRequest{All: true})
	f.must(f.paused() == "* A a", "paused: %s", f.paused())
	f.must(!f.resume(false, "b"), "a topic was resumed that is not paused")
	f.must(f.resume(true, ""), "everything was not resumed")
	f.must(f.paused() == "A a", "paused: %s", f.paused())
	f.must(!f.resume(true, "") && f.resume(false, "a") && f.paused() == "A", "paused: %s", f.paused())
}

func pauseAudited(f *fixture) {
	if _, ok := f.Repository.(core.AuditLister); !ok {
		return
	}
	store := f.Repository.(core.PauseStore)
	f.must(store.Pause(f.Context(), core.PauseRequest{Topic: "a", Actor: "ann"}) != nil, "no reason is needed")
	_, err := store.Resume(f.Context(), core.ResumeRequest{Topic: "a", Reason: "why"})
	f.must(errors.Is(err, core.ErrInvalidRequest), "without an actor: %v", err)
	f.resume(false, "a")
	f.must(len(f.pauses()) == 0 && len(f.audit(core.AuditQuery{Limit: 9})) == 0, "a refused pause left a row")
	f.pause(core.PauseRequest{Topic: "a"})
	f.pause(core.PauseRequest{All: true})
	f.resume(false, "a")
	var got []string
	for _, a := range f.audit(core.AuditQuery{Limit: 9}) {
		got = append(got, strings.Join([]string{a.Action, a.Topic, a.Actor, a.Reason}, ","))
		f.must(a.RowID.IsZero() && a.NewID.IsZero() && a.EventID == "", "audit %+v", a)
	}
	f.must(strings.Join(got, "; ") == "resume,a,bob,upgraded; pause,,ann,broker upgrade; pause,a,ann,broker upgrade",
		"audit %v", got)
}
