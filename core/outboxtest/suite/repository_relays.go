package suite

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func relayCases() []repositoryCase {
	all := []repositoryCase{
		{"a heartbeat is read as it was written", relayRead},
		{"another heartbeat renews the first one", relayRenewed},
		{"a relay that ends is gone, one that was not seen is forgotten", relayGone},
		{"topics with open rows, with a key or without", pendingTopics},
	}
	return all
}

func (f *fixture) beat(b core.Heartbeat) {
	f.Helper()
	f.check(f.Repository.Beat(f.Context(), b))
}

func (f *fixture) relays() []core.RelayStatus {
	f.Helper()
	relays, err := f.Repository.Relays(f.Context())
	f.check(err)
	return relays
}

func near(got, want time.Duration) bool { return got > want-time.Minute/2 && got < want+time.Minute/2 }

func relayRead(f *fixture) {
	f.must(len(f.relays()) == 0, "a new table has relays")
	b := core.Heartbeat{
		Node: "shop-1-\u00e9", Host: "web-1", PID: 77, Program: "example.com/shop v1.4.0", Version: "v1.0.0",
		Topics: []string{"orders", "\u043f\u043b\u0430\u0442\u0435\u0436\u0438 \"a,b\""}, SinceStart: time.Hour,
		SinceClaim: 2 * time.Minute, SincePublish: -1,
	}
	f.beat(b)
	got := f.relays()
	f.must(len(got) == 1, "relays %+v", got)
	s := got[0]
	f.must(s.Node == b.Node && s.Host == b.Host && s.PID == b.PID && s.Program == b.Program &&
		s.Version == b.Version && !s.AllTopics && slices.Equal(s.Topics, b.Topics), "relay %+v, want %+v", s, b)
	f.must(near(s.SeenAt.Sub(s.StartedAt), time.Hour) && near(s.SeenAt.Sub(s.ClaimedAt), 2*time.Minute),
		"times %+v", s)
	f.must(s.PublishedAt.IsZero() && near(s.Age, 0) && s.Alive(), "times %+v", s)
	f.must(s.Relays("orders") && !s.Relays("other"), "relays the wrong topics: %+v", s)
	f.must(s.Problems() == nil, "problems of a relay that works: %q", s.Problems())

	b.RelayState = core.RelayState{
		Stopped: []core.StoppedDestination{{
			Topic: "mails \"\u00e9\"", Since: time.Now().Add(-time.Hour), Failures: 7, Stuck: 2,
			Err: errors.New("login refused: \x00\xff \U0001f4e8 password=hunter2"),
		}, {Topic: "orders", Since: time.Now(), Err: errors.New(strings.Repeat("long ", 2000))}},
		Stuck: 3, HotFull: true, PollErr: errors.New("claim: no right"),
	}
	f.beat(b)
	s = f.relays()[0]
	f.must(len(s.Stopped) == 2 && s.Stuck == 3 && s.HotFull && s.PollErr != nil &&
		s.PollErr.Error() == "claim: no right",
		"state %+v", s.RelayState)
	d := s.Stopped[0]
	f.must(d.Topic == b.Stopped[0].Topic && d.Failures == 7 && d.Stuck == 2 && near(s.SeenAt.Sub(d.Since), time.Hour),
		"stopped %+v", d)
	f.must(strings.HasPrefix(d.Err.Error(), "login refused: ") && !strings.Contains(d.Err.Error(), "hunter2"),
		"error %q", d.Err)
	f.must(len(s.Problems()) == 4, "problems %q", s.Problems())
}

func relayRenewed(f *fixture) {
	b := core.Heartbeat{
		Node: "a", AllTopics: true, Topics: []string{core.ServedTopicPrefix + "mail"}, SinceClaim: -1, SincePublish: -1,
	}
	f.beat(b)
	first := f.relays()[0]
	f.must(first.ClaimedAt.IsZero() && first.PublishedAt.IsZero(), "times of nothing: %+v", first)
	f.must(first.Relays("orders") && first.Relays(core.ServedTopicPrefix+"mail") &&
		!first.Relays(core.ServedTopicPrefix+"other"), "relays the wrong topics: %+v", first)
	f.eventually("the first heartbeat is older", func() bool { return f.relays()[0].Age > 20*time.Millisecond })
	b.SinceClaim, b.SincePublish = 0, time.Hour
	f.beat(b)
	got := f.relays()
	f.must(len(got) == 1, "relays %+v", got)
	second := got[0]
	f.must(second.SeenAt.After(first.SeenAt) && !second.ClaimedAt.Before(first.SeenAt) &&
		near(second.SeenAt.Sub(second.PublishedAt), time.Hour), "%+v after %+v", second, first)
}

func relayGone(f *fixture) {
	for _, node := range []string{"a", "b", "c"} {
		f.beat(core.Heartbeat{Node: node, Program: node, SinceClaim: -1, SincePublish: -1})
		f.eventually("the clock goes on", func() bool { return f.relays()[0].Age >= 5*time.Millisecond })
	}
	nodes := func() string {
		var all []string
		for _, s := range f.relays() {
			all = append(all, s.Node)
		}
		return strings.Join(all, " ")
	}
	f.must(nodes() == "c b a", "relays %s, want the one that was seen last first", nodes())
	f.check(f.Repository.RemoveRelay(f.Context(), "b"))
	f.check(f.Repository.RemoveRelay(f.Context(), "unknown"))
	f.must(nodes() == "c a", "relays %s", nodes())
	n, err := f.Repository.ForgetRelays(f.Context(), time.Hour)
	f.check(err)
	f.must(n == 0 && nodes() == "c a", "forgot %d, left %s", n, nodes())
	f.eventually("they are old", func() bool {
		_, err := f.Repository.ForgetRelays(f.Context(), 10*time.Millisecond)
		f.check(err)
		return nodes() == ""
	})
}

func pendingTopics(f *fixture) {
	topics := func() []string {
		f.Helper()
		got, err := f.Repository.PendingTopics(f.Context(), 1000)
		f.check(err)
		return got
	}
	f.must(len(topics()) == 0, "topics %v of an empty table", topics())
	effect := core.ServedTopicPrefix + "mail"
	done, doneKey := newRow("done", ""), newRow("done with key", "k")
	later := newRow("later", "")
	later.Event.Delay = time.Hour
	f.commit(newRow("b", ""), newRow("b", "k"), newRow("a", "k"), newRow("a", "l"), newRow("c", ""), newRow(effect, ""),
		newRow(effect, "k"), done, doneKey, later)
	f.done(false, done.ID, doneKey.ID)
	f.addDead(newRow("dead", ""))
	f.addDead(newRow("dead with key", "k"))
	want := []string{"a", "b", "c", effect, "later"}
	f.must(slices.Equal(topics(), want), "topics %v, want %v", topics(), want)
}
