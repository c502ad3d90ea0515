package suite

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func pauseCases() []repositoryCase {
	return []repositoryCase{
		{"a pause is read as it was written", pauseRead},
		{"another pause of the same topic replaces it", pauseReplaced},
		{"a tenant is paused, whatever it contains", pauseTenants},
		{"names that look alike are paused one by one", pauseLookAlikes},
		{"a pause ends by the database's clock", pauseEnds},
		{"resume removes one pause", pauseResumed},
		{"pause and resume are audited", pauseAudited},
	}
}

func rateCases() []repositoryCase {
	return []repositoryCase{
		{"rates are read as they were written", rateRead},
		{"another rate of the same topic replaces it", rateReplaced},
		{"topics that look alike have rates of their own", rateLookAlikes},
		{"rates are audited", rateAudited},
	}
}

func (f *fixture) setRate(topic string, perSecond float64, inFlight int, actor string) {
	f.Helper()
	f.check(f.Repository.SetRate(f.Context(), core.RateRequest{
		Topic: topic, PerSecond: perSecond, InFlight: inFlight, Actor: actor, Reason: "the partner's limit",
	}))
}

func (f *fixture) rates() []core.Rate {
	f.Helper()
	set, err := f.Repository.Settings(f.Context())
	f.check(err)
	return set.Rates
}

func rateRead(f *fixture) {
	f.must(len(f.rates()) == 0, "a new table has rates")
	f.beat(core.Heartbeat{Node: "clock", SinceClaim: -1, SincePublish: -1})
	now := f.relays()[0].SeenAt
	long := strings.Repeat("é", 124) + "t"
	f.setRate("orders", 0.001, 0, "ann é")
	f.setRate("Orders", 1e6, 100_000, "ann")
	f.setRate(long, 0, 7, "ann")
	got := f.rates()
	f.must(len(got) == 3 && got[0].Topic == "Orders" && got[1].Topic == "orders" && got[2].Topic == long,
		"rates %+v", got)
	f.must(got[0].PerSecond == 1e6 && got[0].InFlight == 100_000, "rate %+v", got[0])
	f.must(got[1].PerSecond == 0.001 && got[1].InFlight == 0 && got[1].Actor == "ann é" &&
		got[1].Reason == "the partner's limit" && near(got[1].Since.Sub(now), 0), "rate %+v", got[1])
	f.must(got[2].PerSecond == 0 && got[2].InFlight == 7, "rate %+v", got[2])
}

func rateReplaced(f *fixture) {
	f.setRate("orders", 2.5, 0, "ann")
	f.setRate("mails", 1, 1, "ann")
	first := f.rates()[1]
	f.eventually("the clock goes on", func() bool {
		f.setRate("orders", 0, 3, "bob")
		return f.rates()[1].Since.After(first.Since)
	})
	got := f.rates()[1]
	f.must(got.PerSecond == 0 && got.InFlight == 3 && got.Actor == "bob", "rate %+v", got)
	f.setRate("orders", 0, 0, "bob")
	f.must(len(f.rates()) == 1 && f.rates()[0].Topic == "mails", "rates %+v", f.rates())
}

func rateLookAlikes(f *fixture) {
	for i, topic := range lookAlikes {
		f.setRate(topic, float64(i+1), i, "ann")
	}
	f.must(len(f.rates()) == len(lookAlikes), "rates %+v", f.rates())
	for i, topic := range lookAlikes {
		n := slices.IndexFunc(f.rates(), func(r core.Rate) bool { return r.Topic == topic })
		f.must(n >= 0 && f.rates()[n].PerSecond == float64(i+1), "rate of %q in %+v", topic, f.rates())
		f.setRate(topic, 0, 0, "ann")
	}
	f.must(len(f.rates()) == 0, "rates %+v", f.rates())
}

func rateAudited(f *fixture) {
	store := f.Repository
	err := store.SetRate(f.Context(), core.RateRequest{Topic: "a", PerSecond: 1, Actor: "ann"})
	f.must(errors.Is(err, core.ErrInvalidRequest), "without a reason: %v", err)
	f.must(len(f.rates()) == 0 && len(f.audit(core.AuditQuery{Limit: 9})) == 0, "a refused rate left a row")
	f.setRate("a", 1, 0, "ann")
	f.setRate("a", 0, 0, "bob")
	var got []string
	for _, a := range f.audit(core.AuditQuery{Limit: 9}) {
		got = append(got, strings.Join([]string{a.Action, a.Topic, a.Actor, a.Reason}, ","))
	}
	f.must(strings.Join(got, "; ") == "rate,a,bob,the partner's limit; rate,a,ann,the partner's limit", "audit %v", got)
}

func (f *fixture) pause(req core.PauseRequest) {
	f.Helper()
	if req.Actor == "" {
		req.Actor, req.Reason = "ann", "broker upgrade"
	}
	f.check(f.Repository.Pause(f.Context(), req))
}

func (f *fixture) resume(all bool, topic string) bool {
	f.Helper()
	resumed, err := f.Repository.Resume(f.Context(),
		core.ResumeRequest{All: all, Topic: topic, Actor: "bob", Reason: "upgraded"})
	f.check(err)
	return resumed
}

func (f *fixture) pauses() []core.Pause {
	f.Helper()
	set, err := f.Repository.Settings(f.Context())
	f.check(err)
	return set.Pauses
}

// paused names the targets of the pauses.
func (f *fixture) paused() string {
	f.Helper()
	var names []string
	for _, p := range f.pauses() {
		switch {
		case p.All:
			names = append(names, "*")
		case p.Tenant != "":
			names = append(names, "@"+p.Tenant)
		default:
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
	f.must(!named.All && named.Topic == "all" && named.Covers("all", "") && !named.Covers("orders", "all"),
		"pause %+v", named)
	f.must(every.Covers("orders", "acme"), "the pause of everything does not cover a topic")
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

func pauseTenants(f *fixture) {
	store := f.Repository
	who := core.ResumeRequest{Actor: "bob", Reason: "paid"}
	resume := func(tenant string) bool {
		f.Helper()
		who.Tenant = tenant
		resumed, err := store.Resume(f.Context(), who)
		f.check(err)
		return resumed
	}
	names := []string{"ACME", "acme", `it's "a" \, topic:x`, "世界"}
	for _, name := range names {
		f.pause(core.PauseRequest{Tenant: name, Until: time.Now().Add(time.Hour)})
		f.pause(core.PauseRequest{Tenant: name}) // replaces it
	}
	f.pause(core.PauseRequest{Topic: "tenant:acme"}) // a topic of that name is no tenant
	f.pause(core.PauseRequest{Topic: "acme"})
	f.pause(core.PauseRequest{All: true})
	f.must(f.paused() == `* acme tenant:acme @ACME @acme @it's "a" \, topic:x @世界`, "paused: %s", f.paused())
	p := f.pauses()[4]
	f.must(p.Tenant == "acme" && p.Topic == "" && !p.All && p.Until.IsZero() && p.Covers("any", "acme") &&
		!p.Covers("acme", "ACME") && !p.Covers("", "") && !p.Covers("acme", ""), "pause %+v", p)
	topic := f.pauses()[1]
	f.must(topic.Covers("acme", "any") && !topic.Covers("any", "acme") && !topic.Covers("", ""), "pause %+v", topic)
	f.must(!resume("Acme"), "a tenant was resumed that is not paused")
	f.must(f.resume(true, "") && f.resume(false, "acme") && f.resume(false, "tenant:acme"), "paused: %s", f.paused())
	for _, name := range names {
		f.must(resume(name) && !resume(name), "tenant %s was not resumed once", name)
	}
	f.must(f.paused() == "", "paused: %s", f.paused())
}

// lookAlikes are names that a database may take for the same: some are a name with blanks at its
// end, or an accent written in two ways.
var lookAlikes = []string{
	"acme", "acme ", "acme  ", " acme", "ACME", "\u00e4cme", "a\u0308cme", "ac\u200bme", "\uff41cme",
}

func pauseLookAlikes(f *fixture) {
	store := f.Repository
	for _, name := range lookAlikes {
		f.pause(core.PauseRequest{Topic: name, Actor: "ann", Reason: "of " + name})
		f.pause(core.PauseRequest{Tenant: name, Actor: "ann", Reason: "of " + name})
	}
	for n, name := range lookAlikes {
		all := f.pauses()
		f.must(len(all) == 2*(len(lookAlikes)-n), "%d pauses: %+v", len(all), all)
		for _, p := range all {
			f.must(p.Reason == "of "+p.Topic+p.Tenant, "the pause of another: %+v", p)
		}
		f.must(f.resume(false, name), "topic %q was not resumed", name)
		resumed, err := store.Resume(f.Context(), core.ResumeRequest{Tenant: name, Actor: "bob", Reason: "paid"})
		f.check(err)
		f.must(resumed, "tenant %q was not resumed", name)
	}
	f.must(f.paused() == "", "paused: %s", f.paused())
}

func pauseEnds(f *fixture) {
	f.beat(core.Heartbeat{Node: "clock", SinceClaim: -1, SincePublish: -1})
	now := f.relays()[0].SeenAt
	f.pause(core.PauseRequest{Topic: "ends", Until: now.Add(time.Second)})
	f.pause(core.PauseRequest{Topic: "stays", Until: now.Add(time.Hour)})
	f.eventually("the pause ends", func() bool { return f.paused() == "stays" })
	f.must(!f.resume(false, "ends"), "a pause that has ended was resumed")
	f.pause(core.PauseRequest{Topic: "ends"})
	f.must(f.paused() == "ends stays", "paused: %s", f.paused())
	// The caller's clock is behind: a pause that never holds must not end a pause that does.
	for _, topic := range []string{"stays", "never"} {
		err := f.Repository.Pause(f.Context(), core.PauseRequest{
			Topic: topic, Until: now.Add(-time.Millisecond), Actor: "ann", Reason: "broker upgrade",
		})
		f.must(errors.Is(err, core.ErrInvalidRequest), "a pause that is over: %v", err)
	}
	f.must(f.paused() == "ends stays", "paused: %s", f.paused())
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
	store := f.Repository
	f.must(store.Pause(f.Context(), core.PauseRequest{Topic: "a", Actor: "ann"}) != nil, "no reason is needed")
	_, err := store.Resume(f.Context(), core.ResumeRequest{Topic: "a", Reason: "why"})
	f.must(errors.Is(err, core.ErrInvalidRequest), "without an actor: %v", err)
	f.resume(false, "a")
	f.must(len(f.pauses()) == 0 && len(f.audit(core.AuditQuery{Limit: 9})) == 0, "a refused pause left a row")
	f.pause(core.PauseRequest{Topic: "a"})
	f.pause(core.PauseRequest{All: true})
	f.resume(false, "a")
	f.pause(core.PauseRequest{Tenant: "acme"})
	tenant := core.ResumeRequest{Tenant: "acme", Actor: "bob", Reason: "paid"}
	_, err = store.Resume(f.Context(), tenant)
	f.check(err)
	_, err = store.Resume(f.Context(), tenant) // not paused: no row
	f.check(err)
	var got []string
	for _, a := range f.audit(core.AuditQuery{Limit: 9}) {
		got = append(got, strings.Join([]string{a.Action, a.Topic, a.Actor, a.Reason}, ","))
		f.must(a.RowID.IsZero() && a.NewID.IsZero() && a.EventID == "", "audit %+v", a)
	}
	f.must(strings.Join(got, "; ") == "resume,tenant:acme,bob,paid; pause,tenant:acme,ann,broker upgrade; "+
		"resume,a,bob,upgraded; pause,,ann,broker upgrade; pause,a,ann,broker upgrade", "audit %v", got)
}
