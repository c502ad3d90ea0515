package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// A process was killed three times, so all events that it held are suspects. The relay publishes
// suspects one at a time, without a pause of seconds for each.
func TestInnocentSuspectsAreSoonThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		for i := range 50 {
			w.publish(core.Event{Type: "a", AggregateID: fmt.Sprint(i % 10)}, core.Event{Type: "b"})
		}
		for n := range int64(4) { // the first claim finds no lost lease
			req := core.ClaimRequest{
				Node: "gone", ClaimNo: n + 1, Lease: 30 * time.Second, MaxLease: time.Hour, Limit: 500,
				MaxBytes: 1 << 20, Run: 50, Keys: 1000,
			}
			if rows, err := w.repo.ClaimUnordered(t.Context(), req); err != nil || len(rows) != 50 {
				t.Fatalf("claimed %d unordered rows, err %v; want 50", len(rows), err)
			}
			if rows, _, err := w.repo.ClaimHeads(t.Context(), req, core.KeyID{}); err != nil || len(rows) != 50 {
				t.Fatalf("claimed %d ordered rows, err %v; want 50", len(rows), err)
			}
			time.Sleep(time.Minute)
		}

		w.run()
		time.Sleep(15 * time.Second)
		w.atRest(100)
		inOrder(t, w.pub.Accepted())
		equal(t, len(w.pub.Accepted()), 100, "copies of 100 events")
	})
}

// loseClaims makes a process die the given number of times while it holds all due events.
func loseClaims(t *testing.T, w *world, times int) {
	t.Helper()
	for n := range times {
		req := core.ClaimRequest{
			Node: fmt.Sprint("gone", n), ClaimNo: 1, Lease: 30 * time.Second, MaxLease: time.Hour, Limit: 5000,
			MaxBytes: 1 << 30, Run: 5000, Keys: 5000,
		}
		must(t, errOf(w.repo.ClaimUnordered(t.Context(), req)))
		if _, _, err := w.repo.ClaimHeads(t.Context(), req, core.KeyID{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
	}
}

// A process may be killed again and again for another reason. The events that it held are not
// blamed, and are soon published.
func TestCrashLoopAccusesNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-all runs it")
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		for i := range 500 {
			w.publish(core.Event{Type: "a", AggregateID: fmt.Sprint(i)}, core.Event{Type: "b", Unordered: true})
		}
		loseClaims(t, w, 40)
		w.run()
		time.Sleep(30 * time.Second)
		w.atRest(1000)
		equal(t, len(w.pub.Accepted()), 1000, "copies of 1000 events")
	})
}

// A destination hangs, and the process ends again and again meanwhile. No event is blamed, each
// waits after a death for half of its age, at most five minutes, and Health names the one that is
// tried. All are published once the destination answers.
func TestDeathsAtADestinationThatHangsBlameNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		for i := range 3 {
			w.publish(core.Event{Type: "a", AggregateID: fmt.Sprint(i)})
		}
		created := time.Now()
		tried := map[string]time.Time{} // the last try as a suspect
		named := map[string]bool{}
		for life := range 60 {
			faulty := outboxtest.NewFaultyRepository(w.repo)
			var dead atomic.Bool
			faulty.Hook(func(context.Context, outboxtest.Method) error {
				if dead.Load() { // a dead process cannot reach the table
					return errors.New("dead")
				}
				return nil
			})
			begun := make(chan core.Delivery, 10)
			ob := newOutbox(t, core.Config{
				Repository: faulty,
				Relay:      relay.Config{ShutdownTimeout: time.Nanosecond},
				Logger:     slog.New(slog.DiscardHandler),
				Publisher: core.PublisherFunc(func(ctx context.Context, d core.Delivery) error {
					if dead.Load() {
						return errors.New("dead")
					}
					begun <- d
					<-ctx.Done()
					return ctx.Err()
				}),
			})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = ob.Run(ctx) }()
			select {
			case d := <-begun:
				if last, ok := tried[d.ID]; ok {
					waited, want := time.Since(last), min(last.Sub(created)/2, 5*time.Minute)
					if waited < want-time.Millisecond { // a row's times are in microseconds
						t.Errorf("%s was tried again after %s; want %s", d.ID, waited, want)
					}
				}
				if life >= core.Suspicious { // before, a death may be anybody's fault
					tried[d.ID] = time.Now()
				}
				for _, problem := range ob.Health(t.Context()).Problems {
					named[d.ID] = named[d.ID] || strings.Contains(problem, d.ID)
				}
			case <-time.After(time.Minute):
			}
			dead.Store(true)
			cancel()
			<-done
			time.Sleep(time.Minute) // the leases end
		}
		for _, row := range w.repo.Rows() {
			if row.Status != outboxtest.StatusNew || row.LostClaims != core.Suspicious || row.Attempts > 0 {
				t.Errorf("%s: %s after %d lost claims and %d attempts", row.Event.ID, row.Status, row.LostClaims,
					row.Attempts)
			}
		}
		equal(t, len(named), 3, "events were tried")
		for id, ok := range named {
			if !ok {
				t.Errorf("Health does not name %s", id)
			}
		}
		w.run()
		time.Sleep(15 * time.Minute)
		w.atRest(3)
	})
}

// A relay that ends while it tries an event alone gives it back at once.
func TestASuspectIsGivenBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		w.publish(core.Event{Type: "a", AggregateID: "1"}, core.Event{Type: "a", AggregateID: "1"})
		loseClaims(t, w, 4)
		w.pub.HangFor(func(core.Delivery) bool { return true })
		w.run()
		time.Sleep(time.Second)
		noError(t, w.stop())
		equal(t, len(w.pub.Attempts()), 1, "tries of the event alone")
		w.pub.HangFor(nil)
		join(t, w.repo, w.pub, core.Config{}).run()
		time.Sleep(5 * time.Second)
		w.atRest(2)
	})
}

// Suspects at a destination that does not answer hold up no other events.
func TestSuspectsStopNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var slowest time.Duration
		w := newWorld(t, core.Config{Observer: &core.Observer{Published: func(i core.PublishInfo) {
			mu.Lock()
			defer mu.Unlock()
			if i.Topic == "fine" {
				slowest = max(slowest, i.Lag)
			}
		}}})
		for i := range 20 {
			w.publish(core.Event{Type: "stuck", AggregateID: fmt.Sprint(i)})
		}
		loseClaims(t, w, 4)
		w.pub.HangFor(func(d core.Delivery) bool { return d.Topic == "stuck" })
		w.run()
		for range 600 {
			w.publish(core.Event{Type: "fine"})
			time.Sleep(100 * time.Millisecond)
		}
		equal(t, len(w.pub.Accepted()), 600, "events of 600 of a healthy destination were published")
		mu.Lock()
		if slowest > 50*time.Millisecond {
			t.Errorf("one of them took %s", slowest)
		}
		mu.Unlock()
		w.pub.HangFor(nil)
		time.Sleep(time.Minute)
		w.atRest(620)
	})
}

// A publish of a suspect does not begin unless the table has recorded it.
func TestSuspectIsWrittenDownFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		w.publish(core.Event{Type: "a"})
		loseClaims(t, w, 4)
		w.faulty.Fail(outboxtest.Fault{Method: outboxtest.MethodBeginSuspect, Times: 3})
		w.run()
		time.Sleep(2 * time.Minute)
		w.atRest(1)
		equal(t, len(w.pub.Attempts()), 1, "published so often after three failures to write it down")
	})
}

// overtaken is a table in which the claim of the first suspect is lost and taken again while the
// beginning of its publish is written down.
type overtaken struct {
	*outboxtest.Repository
	once  sync.Once
	notes []int64 // the claims whose publish was noted
}

func (r *overtaken) BeginSuspect(ctx context.Context, node string, wait time.Duration,
	claims []core.ClaimRef,
) ([]bool, error) {
	held, err := r.Repository.BeginSuspect(ctx, node, wait, claims)
	if err == nil && held[0] {
		r.notes = append(r.notes, claims[0].ClaimNo)
	}
	r.once.Do(func() {
		r.ShiftClock(time.Hour)
		time.Sleep(20 * time.Second)
	})
	return held, err
}

// A publish of a suspect is noted under the claim under which it begins. Otherwise a process that
// it kills would not count.
func TestSuspectIsNotedUnderItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &overtaken{Repository: outboxtest.NewRepository()}
		var claimNo int64
		w := join(t, repo.Repository, &outboxtest.Publisher{}, core.Config{
			Repository: repo,
			Publisher: core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
				row, _ := repo.Row(d.RowID)
				claimNo = row.ClaimNo
				return nil
			}),
		})
		w.publish(core.Event{Type: "a"})
		loseClaims(t, w, 4)
		w.run()
		time.Sleep(5 * time.Minute)
		w.atRest(1)
		if n := len(repo.notes); n < 2 || repo.notes[n-1] != claimNo || repo.notes[0] == claimNo {
			t.Errorf("noted claims %d, published under %d", repo.notes, claimNo)
		}
	})
}
