package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

var errService = errors.New("503 Service Unavailable") // no classifier knows this error

// No publisher classified this outage. It makes no event dead, even if there are few events. The
// outage ends with the first acknowledgement.
func TestUnclassifiedOutageOfFewKeys(t *testing.T) {
	for _, keys := range []int{1, 5, 2, 4, 8} {
		if keys != 1 && testing.Short() {
			return
		}
		bubble(t, fmt.Sprint(keys), func(t *testing.T) {
			w := newWorld(t, core.Config{})
			w.pub.Outage("a", errService)
			w.run()
			for i := range 3 * keys {
				w.publish(core.Event{Type: "a", Key: fmt.Sprint(i % keys)})
			}
			time.Sleep(time.Hour)
			for _, r := range w.repo.Rows() {
				if r.Status == outboxtest.StatusDead || r.Attempts >= 5 {
					t.Fatalf("an attempt too many was spent on an outage: %+v", r)
				}
			}
			w.pub.Restore("a")
			time.Sleep(5 * time.Second)
			if len(w.pub.Accepted()) == 0 {
				t.Error("nothing left within 5 s of the end of the outage")
			}
			time.Sleep(5 * time.Second)
			w.atRest(3 * keys)
			inOrder(t, w.pub.Accepted())
		})
	}
}

// A destination that goes down and comes back must not make the events dead that it refused in one
// of the outages.
func TestFlappingDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{}).run()
		for range 20 {
			w.pub.Outage("a", errService)
			for range 50 {
				w.publish(core.Event{Type: "a"})
			}
			time.Sleep(2 * time.Minute)
			w.pub.Restore("a")
			time.Sleep(20 * time.Millisecond)
		}
		w.pub.Restore("a")
		time.Sleep(time.Minute)
		w.atRest(1000)
	})
}

// An event is refused alone at a destination that acknowledges nothing. The relay cannot tell this
// from an outage. It tries the event at the pace of probes and names it in ProbeFailed. When the
// destination has acknowledged another event, the attempts of this one end soon.
func TestRefusedAloneAtSilentDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var probes []core.ProbeInfo
		w := newWorld(t, core.Config{Observer: &core.Observer{ProbeFailed: func(i core.ProbeInfo) {
			mu.Lock()
			defer mu.Unlock()
			probes = append(probes, i)
		}}})
		w.pub.FailFor(refusing(outboxtest.Match{Key: "poison"}, errService))
		w.run()
		poison := w.publish(core.Event{Type: "a", Key: "poison"})[0]
		time.Sleep(time.Hour)
		if n := w.statuses()[outboxtest.StatusDead]; n != 0 {
			t.Fatal("dead, although its destination has acknowledged nothing")
		}
		mu.Lock()
		if len(probes) < 1200 || len(probes) > 2300 {
			t.Errorf("%d failed probes in an hour, want one each 2 s", len(probes))
		}
		if p := probes[len(probes)-1]; p.EventID != poison || p.Topic != "a" || p.Failures != len(probes) ||
			p.Stopped < 59*time.Minute || !errors.Is(p.Err, errService) {
			t.Errorf("the last failed probe: %+v", p)
		}
		mu.Unlock()

		w.publish(core.Event{Type: "a", Key: "fine"})
		time.Sleep(5 * time.Second)
		if n := len(w.pub.Accepted()); n != 1 {
			t.Fatalf("%d other events were accepted, want 1", n)
		}
		time.Sleep(5 * time.Minute)
		if got := w.statuses(); got[outboxtest.StatusDead] != 1 || got[outboxtest.StatusDone] != 1 {
			t.Errorf("rows by status: %v, want the event that is refused dead", got)
		}
	})
}

func TestDiscardEndsAnEventRefusedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		w.pub.FailFor(func(d core.Delivery) error {
			if d.AggregateVersion == 1 {
				return errService
			}
			return nil
		})
		w.run()
		w.publish(core.Event{Type: "a", Key: "k", AggregateVersion: 1})
		w.publish(core.Event{Type: "a", Key: "k", AggregateVersion: 2})
		time.Sleep(time.Minute)
		id := w.repo.Rows()[slices.IndexFunc(w.repo.Rows(),
			func(r outboxtest.Row) bool { return r.Event.AggregateVersion == 1 })].ID
		for n := 0; n == 0; { // Discard changes nothing while the event is published
			var err error
			if n, err = w.ob.Discard(t.Context(), core.AdminRequest{
				IDs: []core.RowID{id}, Actor: "me",
				Reason: "it is the event",
			}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		if got := w.pub.Accepted(); len(got) != 1 || got[0].AggregateVersion != 2 {
			t.Errorf("published %v, want the event behind the discarded one", got)
		}
	})
}

// Topics may be many and short-lived. A stopped one that has no events any more is not probed for
// ever, and its next event meets the outage again.
func TestStoppedDestinationWithoutEventsIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var claims atomic.Int64
		w := newWorld(t, core.Config{Observer: &core.Observer{Claimed: func(core.ClaimInfo) { claims.Add(1) }}})
		hour := func() int64 {
			before := claims.Load()
			time.Sleep(time.Hour)
			return claims.Load() - before
		}
		stopped := func() int {
			relays, err := w.ob.Relays(t.Context())
			must(t, err)
			return len(relays[0].Stopped)
		}
		w.run()
		idle := hour()
		for i := range 10 {
			topic := fmt.Sprint("user-", i)
			w.pub.Outage(topic, nil)
			w.publish(core.Event{Type: "a", Topic: topic})
		}
		time.Sleep(2 * time.Hour)
		equal(t, stopped(), 10, "topics with an event are stopped after two hours")
		for done := 0; done < 10; { // Discard leaves an event alone while it is published
			var ids []core.RowID
			for _, r := range w.repo.Rows() {
				ids = append(ids, r.ID)
			}
			n, err := w.ob.Discard(t.Context(), core.AdminRequest{IDs: ids, Actor: "me", Reason: "nobody reads them"})
			must(t, err)
			done += n
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Minute)
		equal(t, stopped(), 10, "topics are stopped ten minutes after their last event has ended")
		time.Sleep(time.Hour)
		equal(t, stopped(), 0, "topics are stopped an hour after their last event has ended")
		if n := hour(); n > idle+10 {
			t.Errorf("%d claims in an hour, want the %d of a relay without stopped topics", n, idle)
		}

		w.publish(core.Event{Type: "a", Topic: "user-0"})
		time.Sleep(time.Minute)
		equal(t, stopped(), 1, "topics are stopped after another event")
		w.pub.Restore("user-0")
		time.Sleep(5 * time.Second)
		equal(t, len(w.pub.Accepted()), 1, "events were published when their topic was back")
	})
}

// A process that has just started knows of no acknowledgement. Its first refusal must not make
// events dead that other processes had refused.
func TestFreshProcessSparesWhatOthersRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
		pub.FailFor(refusing(outboxtest.Match{Key: "poison"}, errService))
		producer := join(t, repo, pub, core.Config{})
		producer.publish(core.Event{Type: "a", Key: "poison"})
		for n := range int64(9) {
			req := core.ClaimRequest{
				Node: "other", ClaimNo: n + 1, Lease: time.Minute, MaxLease: time.Hour, Limit: 1,
				MaxBytes: 1 << 20, Run: 1, Keys: 10,
			}
			rows, _, err := repo.ClaimHeads(t.Context(), req, core.KeyID{})
			if err != nil || len(rows) != 1 {
				t.Fatalf("claimed %d rows: %v", len(rows), err)
			}
			f := core.Failure{
				ClaimRef: core.ClaimRef{ID: rows[0].ID, ClaimNo: rows[0].ClaimNo}, Kind: core.FailRetry,
				Code: "transient",
			}
			must(t, errOf(repo.MarkFailed(t.Context(), "other", []core.Failure{f})))
		}
		w := join(t, repo, pub, core.Config{}).run()
		time.Sleep(10 * time.Minute)
		if got := w.statuses(); got[outboxtest.StatusDead] != 0 {
			t.Fatal("dead, although this process has seen no acknowledgement")
		}
		w.publish(core.Event{Type: "a", Key: "fine"})
		time.Sleep(10 * time.Second)
		if got := w.statuses(); got[outboxtest.StatusDead] != 1 || got[outboxtest.StatusDone] != 1 {
			t.Errorf("rows by status: %v, want it dead soon after another event was acknowledged", got)
		}
	})
}

// An error that the publisher marked as a refusal counts as one at once.
func TestMarkedRefusalNeedsNoWitness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		w.pub.FailFor(func(core.Delivery) error { return core.Transient(errors.New("422 no such customer")) })
		w.run()
		w.publish(core.Event{Type: "a", Key: "k"})
		time.Sleep(10 * time.Minute)
		if got := w.statuses(); got[outboxtest.StatusDead] != 1 {
			t.Errorf("rows by status: %v, want it dead", got)
		}
	})
}

// Events that are refused again and again do not hold up the others.
func TestPoisonDoesNotHoldUpTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var stopped time.Duration
		var since time.Time
		w := newWorld(t, core.Config{Observer: &core.Observer{BreakerChanged: func(_ string, open bool, _ error) {
			mu.Lock()
			defer mu.Unlock()
			if open {
				since = time.Now()
			} else {
				stopped += time.Since(since)
			}
		}}})
		w.pub.FailFor(refusing(outboxtest.Match{AggregateID: "poison"}, errService))
		for range 60 { // inserted first, for the poller
			w.publish(core.Event{Type: "a", AggregateID: "poison", Unordered: true})
		}
		for i := range 200 {
			w.publish(core.Event{Type: "a", Key: fmt.Sprint(i)})
		}
		w.run()
		time.Sleep(100 * time.Second)
		equal(t, len(w.pub.Accepted()), 200, "events of 200 that nobody refuses were published in 100 s")
		// From here on the destination acknowledges other events, and the earlier refusals stop
		// nothing.
		mu.Lock()
		stopped, since = 0, time.Now()
		mu.Unlock()
		for range 600 {
			w.publish(core.Event{Type: "a"})
			time.Sleep(time.Second)
		}
		mu.Lock()
		if stopped > 5*time.Second {
			t.Errorf("stopped for %s of 10 min although an event was acknowledged each second", stopped)
		}
		mu.Unlock()
		time.Sleep(10 * time.Second)
		if got := w.statuses(); got[outboxtest.StatusDead] != 60 || got[outboxtest.StatusDone] != 800 {
			t.Errorf("rows by status: %v, want 60 dead and 800 done", got)
		}
	})
}

// A stopped destination is probed in time, even if the poller was woken for other reasons
// meanwhile.
func TestStoppedDestinationIsTriedBesideOtherTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{
			Relay: relay.Config{
				PollInterval: time.Hour, MaxPollInterval: time.Hour,
				Retry: relay.RetryPolicy{MaxAttempts: 6},
			},
		})
		w.pub.Outage("down", nil)
		w.pub.Outage("other", core.Transient(errors.New("no")))
		w.run()
		for i := range 14 {
			w.publish(core.Event{Type: "down", Key: fmt.Sprint(i)})
		}
		w.publish(core.Event{Type: "other", Key: "k"}) // its retries wake the poller until the event is dead
		time.Sleep(3 * time.Minute)
		if n := w.statuses()[outboxtest.StatusDead]; n != 1 {
			t.Fatalf("%d dead, want the other one", n)
		}
		w.pub.Restore("down")
		time.Sleep(5 * time.Second)
		equal(t, len(w.pub.Accepted()), 14, "events of 14 were published 5 s after their destination was back")
	})
}

// An event that fails each probe must not prevent probes with events of other keys.
func TestProbesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		w.pub.FailFor(func(d core.Delivery) error {
			if d.Key != "fine" {
				return core.Unavailable(errors.New("not for you"))
			}
			return nil
		})
		for i := range 10 {
			w.publish(core.Event{Type: "a", Key: fmt.Sprint(i)}, core.Event{Type: "a"})
		}
		w.publish(core.Event{Type: "a", Key: "fine"})
		w.run()
		time.Sleep(2 * time.Minute)
		equal(t, len(w.pub.Accepted()), 1, "the one event that its destination takes was not tried within 60 probes")
	})
}

// If all destinations of a relay are stopped, the relay has no reason to claim. Events that commit
// meanwhile must not make it claim.
func TestNothingSpinsWhileEveryDestinationIsStopped(t *testing.T) {
	pub := &outboxtest.Publisher{}
	pub.Outage("a", nil)
	router := core.NewRouter() // the router lists its topics
	router.Handle("a", pub)
	var failed atomic.Int64
	stopped, enough := make(chan struct{}), make(chan struct{})
	w := join(t, outboxtest.NewRepository(), pub, core.Config{
		Publisher: router, Relay: relay.Config{Breaker: relay.BreakerPolicy{
			ProbeInterval:    10 * time.Millisecond,
			MaxProbeInterval: 10 * time.Millisecond,
		}},
		Observer: &core.Observer{ProbeFailed: func(core.ProbeInfo) {
			switch failed.Add(1) {
			case 1:
				close(stopped)
			case 20:
				close(enough)
			}
		}},
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.ob.Run(ctx) }()
	w.publish(core.Event{Type: "a", Key: "k"})
	<-stopped
	w.publish(core.Event{Type: "a", Key: "k"}) // these events wait for the first event of their key
	before, probes := relay.Rounds(w.ob), failed.Load()
	<-enough
	rounds, probes := relay.Rounds(w.ob)-before, failed.Load()-probes
	if rounds > 50*uint(probes+1) { // one round for each probe, and some rounds between them
		t.Errorf("%d rounds of the poller for %d probes", rounds, probes)
	}
	pub.Restore("a")
	cancel()
	noError(t, <-done)
}

// The stopped destinations of a relay can be asked for while it runs: which, since when, and why.
func TestStoppedDestinations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub, down := &outboxtest.Publisher{}, errors.New("down")
		pub.Outage("b", core.Unavailable(down))
		pub.Outage("a", core.Unavailable(down))
		w := newWorld(t, core.Config{Publisher: pub})
		if all := w.ob.Stopped(); len(all) != 0 {
			t.Errorf("before Run: %v", all)
		}
		w.run()
		start := time.Now()
		w.publish(core.Event{Type: "b"}, core.Event{Type: "a"}, core.Event{Type: "c"})
		time.Sleep(time.Minute)
		all := w.ob.Stopped()
		if len(all) != 2 || all[0].Topic != "a" || all[1].Topic != "b" {
			t.Fatalf("%v", all)
		}
		for _, d := range all {
			if d.Since.Sub(start) > 10*time.Second || !errors.Is(d.Err, down) || d.Failures < 10 {
				t.Errorf("%+v", d)
			}
		}
		pub.Restore("a")
		time.Sleep(time.Minute)
		if all := w.ob.Stopped(); len(all) != 1 || all[0].Topic != "b" {
			t.Errorf("after one goes on: %v", all)
		}
		noError(t, w.stop())
		if all := w.ob.Stopped(); len(all) != 0 {
			t.Errorf("after Run: %v", all)
		}
	})
}

// A key whose next look is due later does not prevent Drain from reporting that its destination is
// stopped.
func TestDrainEndsWhenEveryDestinationIsStopped(t *testing.T) {
	acked := make(chan struct{}) // an acknowledgement after the refusal would let the destination go on
	router := core.NewRouter()
	router.Handle("a", core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
		if d.Key == "bad" {
			<-acked
			return core.Unavailable(errors.New("down"))
		}
		return nil
	}))
	w := newWorld(t, core.Config{Publisher: router, Observer: &core.Observer{Published: func(info core.PublishInfo) {
		if info.Result == core.PublishDone {
			close(acked)
		}
	}}})
	w.publish(core.Event{Type: "a", Key: "good"}, core.Event{Type: "a", Key: "bad"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	wantErr(t, w.ob.Drain(ctx), core.ErrStopped, "Drain")
}
