package relay_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

func TestRetryThenDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{Relay: relay.Config{Retry: relay.RetryPolicy{MaxAttempts: 4}}}).run()
		w.pub.FailFor(func(d core.Delivery) error {
			if d.Key == "poison" && d.AggregateVersion == 1 {
				return errors.New("refused, password=hunter2")
			}
			return nil
		})
		for v := range 3 {
			w.publish(core.Event{Type: "a", Key: "poison", AggregateVersion: int64(v + 1)},
				core.Event{Type: "a", Key: fmt.Sprint(v)})
		}
		time.Sleep(time.Second)
		w.publish(core.Event{Type: "a", Key: "witness"}) // shows that the destination works
		time.Sleep(5 * time.Minute)
		if got := w.statuses(); got[outboxtest.StatusDead] != 1 || got[outboxtest.StatusDone] != 4 ||
			got[outboxtest.StatusNew] != 2 {
			t.Fatalf("rows by status: %v", got)
		}
		dead, err := w.ob.ListDead(t.Context(), core.DeadQuery{})
		if err != nil || len(dead) != 1 || dead[0].Attempts != 4 || dead[0].ErrorCode != "transient" ||
			dead[0].Error != "refused, password=***" {
			t.Fatalf("ListDead: %+v, %v", dead, err)
		}
		backlog, err := w.ob.Backlog(t.Context())
		if err != nil || backlog.Dead != 1 || backlog.BlockedKeys != 1 || backlog.Pending != 2 {
			t.Fatalf("Backlog: %+v, %v", backlog, err)
		}

		// A person repairs the cause and redrives the event. The key goes on in its order.
		w.pub.FailFor(nil)
		n, err := w.ob.Redrive(t.Context(), core.AdminRequest{
			IDs: []core.RowID{dead[0].ID}, Actor: "me",
			Reason: "mended",
		})
		if err != nil || n != 1 {
			t.Fatalf("Redrive: %d, %v", n, err)
		}
		time.Sleep(10 * time.Second)
		w.atRest(7)
		inOrder(t, w.pub.Accepted())
	})
}

// An event whose type has a policy in RetryByType is tried as that policy says, and others as Retry
// says.
func TestRetryByType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine := map[string]relay.RetryPolicy{
			"once":  {MaxAttempts: 1},
			"often": {BaseDelay: time.Millisecond, MaxDelay: time.Millisecond, MaxAttempts: 100},
		}
		w := newWorld(t, core.Config{Relay: relay.Config{Retry: relay.RetryPolicy{MaxAttempts: 3}, RetryByType: mine}})
		delete(mine, "once") // a change of the caller's map changes nothing
		w.run()
		w.pub.FailFor(func(d core.Delivery) error {
			if d.Type == "witness" {
				return nil
			}
			return core.Transient(errors.New("refused"))
		})
		for _, typ := range []string{"once", "often", "other"} {
			w.publish(core.Event{Type: typ, Topic: "shared", Key: typ})
			w.publish(core.Event{Type: "witness", Topic: "shared"}) // shows that the destination works
		}
		time.Sleep(10 * time.Minute)
		dead, err := w.ob.ListDead(t.Context(), core.DeadQuery{})
		attempts := map[string]int{}
		for _, e := range dead {
			attempts[e.Event.Type] = e.Attempts
		}
		if want := map[string]int{"once": 1, "often": 100, "other": 3}; err != nil || !maps.Equal(attempts, want) {
			t.Errorf("dead after 10 minutes: %v, %v, want %v", attempts, err, want)
		}
	})
}

func TestSkipDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{DeadPolicy: core.SkipDead}).run()
		w.pub.FailNext(1, core.Permanent(errors.New("no")))
		first := w.publish(core.Event{Type: "a", Key: "k"})
		synctest.Wait()
		w.publish(core.Event{Type: "a", Key: "k"})
		time.Sleep(10 * time.Second)
		if n := len(w.pub.Accepted()); n != 1 {
			t.Fatalf("%d published behind the dead event, want 1", n)
		}
		dead, _ := w.ob.ListDead(t.Context(), core.DeadQuery{})
		if len(dead) != 1 {
			t.Fatalf("%d dead", len(dead))
		}
		if n, err := w.ob.Redrive(t.Context(), core.AdminRequest{
			IDs: []core.RowID{dead[0].ID}, Actor: "me",
			Reason: "mended",
		}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(10 * time.Second)
		got := w.pub.Accepted()
		if len(got) != 2 || got[1].ID != first[0] || got[1].KeySeq <= got[0].KeySeq {
			t.Fatalf("published %v", got)
		}
	})
}

func TestDiscardUnblocksKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{}).run()
		w.pub.FailNext(1, core.Permanent(errors.New("no")))
		w.publish(core.Event{Type: "a", Key: "k"})
		w.publish(core.Event{Type: "a", Key: "k"})
		time.Sleep(10 * time.Second)
		dead, _ := w.ob.ListDead(t.Context(), core.DeadQuery{})
		for _, bad := range []core.AdminRequest{
			{},
			{IDs: []core.RowID{{}}},
			{IDs: []core.RowID{dead[0].ID}, Actor: "me"},
		} {
			wantErr(t, errOf(w.ob.Discard(t.Context(), bad)), core.ErrInvalidRequest, "Discard(%+v)", bad)
		}
		if n, err := w.ob.Discard(t.Context(), core.AdminRequest{
			IDs: []core.RowID{dead[0].ID}, Actor: "me",
			Reason: "obsolete",
		}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(10 * time.Second)
		if n := len(w.pub.Accepted()); n != 1 {
			t.Fatalf("%d published, want the one behind the discarded event", n)
		}
	})
}

// An outage that no publisher classified must not turn a backlog into dead events.
func TestOutageSpendsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		w.pub.Outage("a", errors.New("who knows"))
		w.run()
		for i := range 300 {
			e := core.Event{Type: "a"}
			if i%2 == 0 {
				e.Key = fmt.Sprint(i % 20)
			}
			w.publish(e, core.Event{Type: "healthy", Key: "k"})
		}
		time.Sleep(time.Hour)
		attempts := 0
		for _, r := range w.repo.Rows() {
			if r.Status == outboxtest.StatusDead {
				t.Fatalf("row %s is dead", r.ID)
			}
			attempts += r.Attempts
		}
		if attempts > 4 { // the relay needs these attempts to see that the events are not at fault
			t.Errorf("%d attempts were spent", attempts)
		}
		equal(t, len(w.pub.Accepted()), 300, "events of the healthy destination went out")
		if probes := len(w.pub.Attempts()) - 300; probes > 3600 {
			t.Errorf("%d probes in an hour", probes)
		}
		w.pub.Restore("a")
		time.Sleep(2 * time.Minute)
		w.atRest(600)
		inOrder(t, w.pub.Accepted())
	})
}

func TestUnavailableStopsOnlyItsDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened, closed atomic.Int64
		w := newWorld(t, core.Config{Observer: &core.Observer{BreakerChanged: func(topic string, open bool, _ error) {
			equal(t, topic, "down", "topic of the breaker that changed")
			if open {
				opened.Add(1)
			} else {
				closed.Add(1)
			}
		}}})
		w.pub.Outage("down", nil)
		w.run()
		for range 20 {
			w.publish(core.Event{Type: "down", Key: "k"}, core.Event{Type: "down"}, core.Event{Type: "up", Key: "k"})
		}
		time.Sleep(3 * time.Second)
		if n := len(w.pub.Accepted()); n != 20 {
			t.Fatalf("%d published while one destination is down, want 20", n)
		}
		w.pub.Restore("down")
		time.Sleep(time.Minute)
		w.atRest(60)
		for _, r := range w.repo.Rows() {
			if r.Attempts != 0 {
				t.Fatalf("an attempt was spent on an outage: %+v", r)
			}
		}
		if opened.Load() != 1 || closed.Load() != 1 {
			t.Errorf("breaker opened %d and closed %d times", opened.Load(), closed.Load())
		}
		inOrder(t, w.pub.Accepted())
	})
}

// A timeout of one event is the event's fault only if its destination acknowledged other events
// meanwhile.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{Relay: relay.Config{Retry: relay.RetryPolicy{MaxAttempts: 3}}})
		w.pub.HangFor(func(d core.Delivery) bool { return d.AggregateID == "slow" })
		w.run()
		w.publish(core.Event{Type: "quiet", AggregateID: "slow"})
		w.publish(core.Event{Type: "busy", AggregateID: "slow"})
		for range 200 {
			w.publish(core.Event{Type: "busy"})
			time.Sleep(time.Second)
		}
		for _, r := range w.repo.Rows() {
			if r.Event.AggregateID != "slow" {
				continue
			}
			switch {
			case r.Event.Topic == "quiet" && (r.Status == outboxtest.StatusDead || r.Attempts != 0):
				t.Errorf("alone at a silent destination: %+v", r)
			case r.Event.Topic == "busy" && r.Status != outboxtest.StatusDead:
				t.Errorf("times out while others are acknowledged: %+v", r)
			}
		}
	})
}

func TestPermanentAndPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{Relay: relay.Config{Retry: relay.RetryPolicy{MaxAttempts: 2}}})
		w.pub.FailFor(func(d core.Delivery) error {
			switch d.Type {
			case "large":
				return core.Permanent(errors.New("too large"))
			case "panic":
				panic("oh no")
			}
			return nil
		})
		w.run()
		w.publish(core.Event{Type: "large"}, core.Event{Type: "panic", Topic: "fine"}, core.Event{Type: "fine"})
		time.Sleep(time.Second)
		w.publish(core.Event{Type: "fine"}) // shows that the destination works, so the event is at fault
		time.Sleep(time.Minute)
		dead, err := w.ob.ListDead(t.Context(), core.DeadQuery{})
		if err != nil || len(dead) != 2 {
			t.Fatalf("%d dead, want 2: %v", len(dead), err)
		}
		for _, d := range dead {
			want := map[string]string{"large": "permanent", "panic": "panic"}[d.Event.Type]
			equal(t, d.ErrorCode, want, "%s: code", d.Event.Type)
		}
	})
}

// A mark that takes three times as long as a publish does not keep the workers waiting, because the
// next batch grows meanwhile.
func TestSlowMarksKeepTheWorkersBusy(t *testing.T) {
	for _, workers := range []int{32, 128} {
		if workers > 32 && testing.Short() {
			return
		}
		for _, path := range []core.Path{core.PathHot, core.PathCold} {
			bubble(t, fmt.Sprintf("%d, %s", workers, path), func(t *testing.T) {
				const publish, mark, rounds = 5 * time.Millisecond, 15 * time.Millisecond, 40
				var mu sync.Mutex
				var batches []int
				var ended time.Time // the time of the last publish
				w := newWorld(t, core.Config{
					Relay: relay.Config{
						Workers: workers, ClaimBatch: rounds * workers, ColdEvents: rounds * workers,
						HotEvents: rounds * workers,
					}, Publisher: core.PublisherFunc(func(context.Context, core.Delivery) error {
						time.Sleep(publish)
						return nil
					}),
					Observer: &core.Observer{
						Published: func(core.PublishInfo) { mu.Lock(); defer mu.Unlock(); ended = time.Now() },
						Marked: func(rows int, _ time.Duration, _ error) {
							mu.Lock()
							defer mu.Unlock()
							batches = append(batches, rows)
						},
					},
				})
				w.faulty.Hook(func(_ context.Context, m outboxtest.Method) error {
					if m == outboxtest.MethodMarkDone {
						time.Sleep(mark)
					}
					return nil
				})
				if path == core.PathHot {
					w.run()
				}
				began := time.Now()
				w.publish(slices.Repeat([]core.Event{{Type: "a"}}, rounds*workers)...)
				if path == core.PathHot {
					time.Sleep(time.Minute)
					noError(t, w.stop())
				} else if err := w.ob.Drain(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.atRest(rounds * workers)
				if took := ended.Sub(began); took != rounds*publish {
					t.Errorf("publishing took %s, want %s: that of %d publishes one after the other; rows of "+
						"the marks: %v",
						took, rounds*publish, rounds, batches)
				}
			})
		}
	}
}

func TestMarkFailureHoldsBackAndRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{Relay: relay.Config{MaxUnmarked: 10, MarkBatch: 5, Workers: 4, HotEvents: 1000}})
		w.faulty.Fail(outboxtest.Fault{Method: outboxtest.MethodMarkDone, Times: -1})
		w.run()
		for range 100 {
			w.publish(core.Event{Type: "a"})
		}
		time.Sleep(3 * time.Second)
		if n := w.hot.Load(); n > 10+4 { // the poller takes some of the others
			t.Errorf("%d events were published while nothing could be marked, want at most MaxUnmarked + Workers", n)
		}
		w.faulty.Heal()
		time.Sleep(time.Minute)
		w.atRest(100)
		equal(t, len(w.pub.Accepted()), 100, "copies of 100 events")
	})
}

func TestKillerIsPublishedAloneAndEndsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := outboxtest.NewRepository()
		pub := &outboxtest.Publisher{}
		producer := join(t, repo, pub, core.Config{})
		for i := range 20 {
			producer.publish(core.Event{Type: "a", AggregateID: fmt.Sprint(i)})
		}
		killer := producer.publish(core.Event{Type: "a", AggregateID: "killer"})[0]
		alone := true
		lives := 40
		for range lives { // each life of a process ends when it publishes the event "killer"
			producer.publish(core.Event{Type: "a"}) // a death counts once the destination has acknowledged this one
			hang := make(chan struct{})
			var inFlight atomic.Int64
			died := make(chan struct{})
			var once sync.Once
			var dead atomic.Bool
			faulty := outboxtest.NewFaultyRepository(repo)
			faulty.Hook(func(ctx context.Context, m outboxtest.Method) error {
				if dead.Load() { // a dead process cannot reach the table
					return errors.New("dead")
				}
				return nil
			})
			life := newOutbox(t, core.Config{
				Repository: faulty, Relay: relay.Config{ShutdownTimeout: time.Nanosecond},
				Publisher: core.PublisherFunc(func(ctx context.Context, d core.Delivery) error {
					if dead.Load() {
						return errors.New("dead")
					}
					if row, _ := repo.Row(d.RowID); row.LostClaims >= core.Suspicious {
						alone = inFlight.Add(1) == 1 && alone
						defer inFlight.Add(-1)
					}
					if d.ID == killer {
						equal(t, d.Attempt, 1, "a crash was counted as a refusal: attempt")
						dead.Store(true)
						once.Do(func() { close(died) })
						<-hang
						return nil
					}
					time.Sleep(time.Millisecond)
					return pub.Publish(ctx, d)
				}),
			})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = life.Run(ctx) }()
			select {
			case <-died:
			case <-time.After(20 * time.Minute):
			}
			cancel()
			close(hang)
			<-done
			time.Sleep(time.Minute) // the leases end
		}
		if !alone {
			t.Error("a suspect was published beside another")
		}
		byStatus := map[outboxtest.Status]int{}
		for _, r := range repo.Rows() {
			byStatus[r.Status]++
			if r.Status == outboxtest.StatusDead && r.Event.ID != killer {
				t.Errorf("an innocent event died with the killer: %+v", r)
			}
		}
		if byStatus[outboxtest.StatusDead] != 1 || byStatus[outboxtest.StatusDone] != 20+lives {
			t.Errorf("rows by status: %v, want the killer dead and %d done", byStatus, 20+lives)
		}
	})
}

// A relay may start before the first consumer of a topic exists. It makes no event dead, and the
// age of the waiting events is reported.
func TestUnroutableUntilARouteWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		w.pub.Outage("a", core.Unroutable(errors.New("312 NO_ROUTE")))
		w.run()
		for range 20 {
			w.publish(core.Event{Type: "a", Key: "k"}, core.Event{Type: "a"}, core.Event{Type: "other"})
		}
		time.Sleep(10 * time.Minute)
		backlog, err := w.ob.Backlog(t.Context())
		if err != nil || backlog.Dead != 0 || backlog.Pending != 40 || backlog.OldestAge < 10*time.Minute {
			t.Fatalf("Backlog: %+v, %v; want 40 pending for 10 min and none dead", backlog, err)
		}
		w.pub.Restore("a") // a person declares the queue
		time.Sleep(5 * time.Second)
		w.atRest(60)
		inOrder(t, w.pub.Accepted())

		// From here on the topic has a route, so an event without a route is at fault.
		w.pub.FailFor(refusing(outboxtest.Match{AggregateID: "lost"}, core.Unroutable(errors.New("312 NO_ROUTE"))))
		w.publish(core.Event{Type: "a", AggregateID: "lost"}, core.Event{Type: "a", AggregateID: "fine"})
		time.Sleep(5 * time.Second)
		dead, err := w.ob.ListDead(t.Context(), core.DeadQuery{})
		if err != nil || len(dead) != 1 || dead[0].ErrorCode != "unroutable" || dead[0].Event.AggregateID != "lost" {
			t.Errorf("ListDead: %+v, %v", dead, err)
		}
	})
}

// A queue that is deleted later does not turn the backlog into dead events.
func TestRouteThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{}).run()
		w.publish(core.Event{Type: "a"})
		time.Sleep(time.Second)
		w.pub.Outage("a", core.Unroutable(errors.New("312 NO_ROUTE")))
		for range 100 {
			w.publish(core.Event{Type: "a"})
		}
		time.Sleep(10 * time.Minute)
		if n := w.statuses()[outboxtest.StatusDead]; n > 4 {
			t.Errorf("%d events are dead, want no more than it takes to see that it is not them", n)
		}
	})
}

// A publisher can put an event off. The event comes back at the time that the publisher gave,
// spends no attempt, and holds up no other event of its topic.
func TestPutOff(t *testing.T) {
	if core.PutOff(nil, time.Second) != nil {
		t.Error("nil is an error")
	}
	for d, within := range map[time.Duration][2]time.Duration{
		7 * time.Second:  {7 * time.Second, 9 * time.Second},
		0:                {time.Millisecond, 3 * time.Second}, // the same as UnavailableForKey
		-time.Hour:       {time.Millisecond, 3 * time.Second},
		1000 * time.Hour: {24 * time.Hour, 25 * time.Hour},
	} {
		if d > time.Hour && testing.Short() { // a day of polls
			continue
		}
		bubble(t, d.String(), func(t *testing.T) {
			type try struct {
				after   time.Duration
				attempt int
			}
			tries := make(chan try, 10)
			others := make(chan struct{}, 10)
			start := time.Now()
			n := 0
			repo := outboxtest.NewRepository()
			ob := newOutbox(t, core.Config{
				Repository: repo,
				Publisher: core.PublisherFunc(func(_ context.Context, d2 core.Delivery) error {
					if d2.Type == "other" {
						others <- struct{}{}
						return nil
					}
					tries <- try{time.Since(start), d2.Attempt}
					if n++; n == 1 {
						return core.PutOff(core.Unavailable(errors.New("closed on Sundays")), d)
					}
					return nil
				}),
			})
			must(t, publishTx(t.Context(), repo, ob, core.Event{Type: "first", Topic: "t", Unordered: true},
				core.Event{Type: "other", Topic: "t", Unordered: true}))
			ctx, stop := context.WithTimeout(context.Background(), within[1])
			defer stop()
			noError(t, ob.Run(ctx))
			if len(tries) != 2 || len(others) != 1 {
				t.Fatalf("%d tries, %d of the other", len(tries), len(others))
			}
			first, second := <-tries, <-tries
			if d := second.after - first.after; d < within[0] || second.attempt != 1 {
				t.Errorf("back after %s, attempt %d", d, second.attempt)
			}
		})
	}
}

// A destination can say how long it is away. Nothing of its topic is claimed or tried before that,
// neither what was just committed nor what fails meanwhile, and an answer to a publish that began
// earlier ends nothing. No attempt is spent, and other topics go on.
func TestUnavailableFor(t *testing.T) {
	if core.UnavailableFor(nil, time.Second) != nil {
		t.Error("nil is an error")
	}
	for d, within := range map[time.Duration][2]time.Duration{
		20 * time.Second:       {20 * time.Second, 21 * time.Second},
		300 * time.Millisecond: {300 * time.Millisecond, 500 * time.Millisecond}, // shorter than ProbeInterval
		-time.Hour:             {800 * time.Millisecond, 2 * time.Second},        // the same as Unavailable
		1000 * time.Hour:       {24 * time.Hour, 25 * time.Hour},
	} {
		if d > time.Hour && testing.Short() { // a day of polls
			continue
		}
		bubble(t, d.String(), func(t *testing.T) {
			var mu sync.Mutex
			var said time.Time
			var early []time.Duration
			var tries, claimed, attempts int
			var back time.Duration
			w := newWorld(t, core.Config{
				Relay: relay.Config{Workers: 4},
				Publisher: core.PublisherFunc(func(_ context.Context, e core.Delivery) error {
					if e.Topic == "other" {
						return nil
					}
					if e.Key == "slow" { // it began before, and is accepted in the pause
						time.Sleep(100 * time.Millisecond)
						return nil
					}
					mu.Lock()
					defer mu.Unlock()
					attempts = max(attempts, e.Attempt)
					if tries++; tries <= 2 { // an event that was just committed, and a row of the table
						said, back = time.Now(), 0
						return core.UnavailableFor(errors.New("429"), d)
					}
					if back == 0 {
						back = time.Since(said)
					}
					if time.Since(said) < within[0] {
						early = append(early, time.Since(said))
					}
					return nil
				}),
				Observer: &core.Observer{Claimed: func(i core.ClaimInfo) {
					mu.Lock()
					defer mu.Unlock()
					if !said.IsZero() && time.Since(said) < within[0] {
						claimed += i.Rows
					}
				}},
			}).run()
			w.publish(core.Event{Type: "t", Key: "slow"})
			w.publish(core.Event{Type: "t", Key: "first"})
			synctest.Wait()
			time.Sleep(50 * time.Millisecond)
			for range 2 {
				for i := range 50 { // they are committed in the pause
					w.publish(core.Event{Type: "t"}, core.Event{Type: "t", Key: fmt.Sprint(i)})
				}
				time.Sleep(within[1])
			}
			w.publish(core.Event{Type: "other"})
			time.Sleep(within[1])
			w.atRest(203)
			mu.Lock()
			defer mu.Unlock()
			if d > 0 && (len(early) > 0 || claimed > 0) {
				t.Errorf("%d publishes in the pause, the first after %s; %d rows were claimed", len(early),
					slices.Min(append(early, d)), claimed)
			}
			if back > within[1] || attempts != 1 || tries != 203 {
				t.Errorf("back after %s, %d publishes, attempt %d", back, tries, attempts)
			}
		})
	}
}
