package relay_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// slowly notes when each event is sent, and how many are at the same time. A publish takes a while.
type slowly struct {
	takes time.Duration

	mu   sync.Mutex
	out  map[string]int
	most map[string]int
	at   map[string][]time.Time
	got  []core.Delivery
}

func (s *slowly) Publish(ctx context.Context, d core.Delivery) error {
	s.mu.Lock()
	if s.out == nil {
		s.out, s.most, s.at = map[string]int{}, map[string]int{}, map[string][]time.Time{}
	}
	s.out[d.Topic]++
	s.most[d.Topic] = max(s.most[d.Topic], s.out[d.Topic])
	s.at[d.Topic] = append(s.at[d.Topic], time.Now())
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.out[d.Topic]--
	}()
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, d)
	return nil
}

func (s *slowly) times(topic string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time(nil), s.at[topic]...)
}

// mostWithin returns the largest number of times within d.
func mostWithin(times []time.Time, d time.Duration) (most int) {
	first := 0
	for i := range times {
		for times[i].Sub(times[first]) >= d {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

func setRate(t *testing.T, ob *core.Outbox, topic string, perSecond float64, inFlight int) {
	t.Helper()
	must(t, ob.SetRate(t.Context(), core.RateRequest{
		Topic: topic, PerSecond: perSecond, InFlight: inFlight, Actor: "ann", Reason: "partner asks for it",
	}))
}

func (p *pausing) orders(t *testing.T, ob *core.Outbox, n int) {
	t.Helper()
	for i := range n {
		e := core.Event{Type: "e", Topic: "orders", Data: i}
		if i%2 == 0 {
			e.Key = fmt.Sprint(i % 6)
		}
		p.publish(t, ob, e, core.Event{Type: "e", Topic: "mails", Data: i})
	}
}

// A destination gets its rate and no more, from the fast path, from the table and from two relays
// together. Nothing is claimed in vain, no attempt is spent, and another destination does not wait.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := &pausing{Repository: outboxtest.NewRepository()}, &slowly{takes: 20 * time.Millisecond}
		var claimed, claims atomic.Int64
		cfg := core.Config{Repository: repo, Publisher: pub, Observer: &core.Observer{
			Claimed: func(i core.ClaimInfo) { claimed.Add(int64(i.Rows)); claims.Add(1) },
		}}
		operator := newOutbox(t, core.Config{Repository: repo})
		setRate(t, operator, "orders", 10, 0)
		a, _ := runOutbox(t, cfg)
		runOutbox(t, cfg)
		time.Sleep(15 * time.Second) // both know of each other
		start := time.Now()
		repo.orders(t, a, 300)
		repo.orders(t, operator, 300)
		time.Sleep(10 * time.Second)
		equal(t, len(pub.times("mails")), 600, "mails of 600: they wait for the orders")
		held := 0
		for _, row := range repo.Rows() {
			if row.Event.Topic == "orders" && row.ClaimedBy != "" && row.Status != outboxtest.StatusDone {
				held++
			}
		}
		if held > 30 {
			t.Errorf("%d orders are claimed, want those of a second of two relays", held)
		}
		claims.Store(0)
		time.Sleep(30 * time.Second)
		if n := claims.Load(); n > 30*2*10 {
			t.Errorf("%d claims in 30 s for 300 events", n)
		}
		time.Sleep(60 * time.Second)
		times := pub.times("orders")
		if len(times) != 600 {
			t.Fatalf("%d of 600 orders after %s", len(times), time.Since(start))
		}
		if took := times[299].Sub(times[0]); took < 29*time.Second || took > 40*time.Second {
			t.Errorf("300 orders took %s, want half a minute", took)
		}
		// A relay that has claimed the next event of each key ends alone, with half of the rate.
		if took := times[599].Sub(times[0]); took < 59*time.Second || took > 95*time.Second {
			t.Errorf("600 orders took %s, want a minute", took)
		}
		if n := mostWithin(times, time.Second); n > 12 {
			t.Errorf("%d orders within a second, want 10 and the burst of two relays", n)
		}
		if n := claimed.Load(); n > 1210 {
			t.Errorf("%d rows were claimed for 1200 events", n)
		}
		for _, row := range repo.Rows() {
			if row.Status != outboxtest.StatusDone || row.Attempts > 0 {
				t.Fatalf("row %+v", row)
			}
		}
		inOrder(t, pub.got)
		// An idle destination with a rate costs no wait: the fast path takes its event.
		claimed.Store(0)
		repo.publish(t, a, core.Event{Type: "e", Topic: "orders", Key: "1"})
		synctest.Wait()
		if n := len(pub.times("orders")); n != 601 || claimed.Load() != 0 {
			t.Errorf("%d orders sent, %d claimed, want 601 by the fast path", n, claimed.Load())
		}
	})
}

// Only so many events are on their way, and the limit may change or end while events wait.
func TestRateInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := &pausing{Repository: outboxtest.NewRepository()}, &slowly{takes: time.Second}
		ob, _ := runOutbox(t, core.Config{Repository: repo, Publisher: pub})
		setRate(t, ob, "orders", 0, 2)
		synctest.Wait()
		repo.orders(t, ob, 100)
		time.Sleep(10500 * time.Millisecond)
		if n, m := len(pub.times("orders")), len(pub.times("mails")); n < 18 || n > 22 || m != 100 {
			t.Errorf("%d orders and %d mails in 10 s, want 20 and 100", n, m)
		}
		setRate(t, ob, "orders", 4, 3)
		time.Sleep(10 * time.Second)
		if n := len(pub.times("orders")); n < 46 || n > 53 || pub.most["orders"] != 3 {
			t.Errorf("%d orders, %d at most at once, want about 50 and 3", n, pub.most["orders"])
		}
		setRate(t, ob, "orders", 0, 2)
		time.Sleep(1950 * time.Millisecond)
		setRate(t, ob, "orders", 0, 0)
		time.Sleep(3 * time.Second)
		if n := len(pub.times("orders")); n < 70 {
			t.Errorf("%d orders after the end of the limit", n)
		}
		time.Sleep(20 * time.Second)
		equal(t, len(pub.times("orders")), 100, "orders of 100")
		inOrder(t, pub.got)
		if list, err := ob.Rates(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("rates %+v, %v", list, err)
		}
	})
}

// A destination may get less than one event a second. Its events wait in the table, and are not
// claimed long before their turn.
func TestRateBelowOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := &pausing{Repository: outboxtest.NewRepository()}, &slowly{}
		ob, _ := runOutbox(t, core.Config{Repository: repo, Publisher: pub})
		setRate(t, ob, "orders", 0.1, 0)
		synctest.Wait()
		repo.orders(t, ob, 7)
		leased := 0
		for range 62 {
			time.Sleep(time.Second)
			for _, row := range repo.Rows() {
				if row.Status != outboxtest.StatusDone && row.LeaseUntil.After(time.Now()) {
					leased++
				}
			}
		}
		if n := len(pub.times("orders")); n != 7 {
			t.Errorf("%d orders in 62 s, want 7: %v", n, pub.times("orders"))
		}
		equal(t, mostWithin(pub.times("orders"), 9900*time.Millisecond), 1, "orders within 10 s")
		if leased > 12 {
			t.Errorf("waiting events were leased in %d of 62 seconds", leased)
		}
	})
}

// Drain keeps the rate and publishes everything. A relay that ends publishes only the events of one
// second that it holds, and the next relay goes on.
func TestRateDrainAndShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := &pausing{Repository: outboxtest.NewRepository()}, &slowly{}
		ob := newOutbox(t, core.Config{Repository: repo, Publisher: pub})
		setRate(t, ob, "orders", 5, 0)
		setRate(t, ob, "slow", 0.5, 0)
		repo.orders(t, ob, 20)
		repo.publish(t, ob, core.Event{Type: "e", Topic: "slow"}, core.Event{Type: "e", Topic: "slow"},
			core.Event{Type: "e", Topic: "slow"})
		start := time.Now()
		must(t, ob.Drain(t.Context()))
		if o, s := len(pub.times("orders")), len(pub.times("slow")); o != 20 || s != 3 {
			t.Errorf("Drain: %d orders, %d slow ones, want 20 and 3", o, s)
		}
		if took := time.Since(start); took < 3800*time.Millisecond || took > 7*time.Second {
			t.Errorf("Drain took %s", took)
		}
		running, stop := runOutbox(t, core.Config{Repository: repo, Publisher: pub})
		repo.orders(t, running, 50)
		time.Sleep(time.Second)
		start = time.Now()
		stop()
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("the relay took %s to end", took)
		}
		for _, row := range repo.Rows() {
			if row.LeaseUntil.After(time.Now()) {
				t.Fatalf("a row is still leased: %+v", row)
			}
		}
		if err := ob.Drain(t.Context()); err != nil || len(pub.times("orders")) != 70 {
			t.Errorf("%d of 70 orders, %v", len(pub.times("orders")), err)
		}
		inOrder(t, pub.got)
	})
}

// A destination with a rate can be paused and stopped like any other.
func TestRateWithPauseAndOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := &pausing{Repository: outboxtest.NewRepository()}, &outboxtest.Publisher{}
		ob, _ := runOutbox(t, core.Config{Repository: repo, Publisher: pub})
		setRate(t, ob, "orders", 20, 4)
		synctest.Wait()
		repo.orders(t, ob, 100)
		time.Sleep(time.Second)
		pause(t, ob, core.PauseRequest{Topic: "orders"})
		synctest.Wait()
		n := accepted(pub, "orders")
		time.Sleep(time.Minute)
		if got := accepted(pub, "orders"); got != n || n < 15 || n > 25 {
			t.Errorf("%d orders after a second, %d after a pause", n, got)
		}
		resume(t, ob, core.ResumeRequest{Topic: "orders"})
		time.Sleep(time.Second)
		if got := accepted(pub, "orders"); got < n+15 {
			t.Errorf("%d orders a second after the pause, %d before", got, n)
		}
		pub.Outage("orders", nil)
		time.Sleep(time.Minute)
		if rounds := relay.Rounds(ob); true {
			time.Sleep(time.Minute)
			if more := relay.Rounds(ob) - rounds; more > 200 {
				t.Errorf("%d rounds of the poller in a minute of outage", more)
			}
		}
		pub.Restore("orders")
		time.Sleep(10 * time.Second)
		equal(t, accepted(pub, "orders"), 100, "orders of 100 after the outage")
		inOrder(t, pub.Accepted())
		rounds := relay.Rounds(ob)
		time.Sleep(10 * time.Minute)
		if more := relay.Rounds(ob) - rounds; more > 400 {
			t.Errorf("%d rounds of the poller in ten idle minutes", more)
		}
	})
}

// A bad request is refused before anything is stored.
func TestRateRequests(t *testing.T) {
	repo := outboxtest.NewRepository()
	ob := newOutbox(t, core.Config{Repository: repo})
	for name, req := range map[string]core.RateRequest{
		"no topic":   {PerSecond: 1, Actor: "a", Reason: "r"},
		"long topic": {Topic: strings.Repeat("t", 250), PerSecond: 1, Actor: "a", Reason: "r"},
		"no actor":   {Topic: "t", PerSecond: 1, Reason: "r"},
		"no reason":  {Topic: "t", PerSecond: 1, Actor: "a"},
		"negative":   {Topic: "t", PerSecond: -1, Actor: "a", Reason: "r"},
		"tiny":       {Topic: "t", PerSecond: 1e-9, Actor: "a", Reason: "r"},
		"huge":       {Topic: "t", PerSecond: math.Inf(1), Actor: "a", Reason: "r"},
		"no number":  {Topic: "t", PerSecond: math.NaN(), Actor: "a", Reason: "r"},
		"in flight":  {Topic: "t", InFlight: -1, Actor: "a", Reason: "r"},
		"too many":   {Topic: "t", InFlight: 100_001, Actor: "a", Reason: "r"},
	} {
		wantErr(t, ob.SetRate(t.Context(), req), core.ErrInvalidRequest, "%s", name)
	}
	if list, err := ob.Rates(t.Context()); err != nil || len(list)+len(repo.Audits()) > 0 {
		t.Errorf("stored %+v, %v", list, err)
	}
}
