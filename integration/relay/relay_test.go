package relay_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// A business change and its event commit together or not at all.
func TestChangeAndEventCommitTogether(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		p := fixture.NewProcess(t, db, core.Config{})
		p.Run()
		committed := core.NewEventID()
		event := func(id string) core.Event { return core.Event{ID: id, Type: "deposited", Key: "account/1"} }
		ghosts := []string{core.NewEventID(), core.NewEventID(), core.NewEventID()}

		for name, tc := range map[string]struct {
			run  func(ctx context.Context, tx core.Tx) error
			fail error
		}{
			"commit": {run: func(ctx context.Context, tx core.Tx) error {
				return p.Deposit(ctx, tx, 1, event(committed))
			}},
			"error after the event": {fail: fixture.ErrBusiness, run: func(ctx context.Context, tx core.Tx) error {
				return errors.Join(p.Deposit(ctx, tx, 2, event(ghosts[0])), fixture.ErrBusiness)
			}},
			"event refused": {fail: core.ErrInvalidEvent, run: func(ctx context.Context, tx core.Tx) error {
				return p.Deposit(ctx, tx, 3, core.Event{ID: ghosts[1]})
			}},
			"savepoint": {run: func(ctx context.Context, tx core.Tx) error {
				if err := p.Tx.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
					return errors.Join(p.Deposit(ctx, tx, 4, event(ghosts[2])), fixture.ErrBusiness)
				}); !errors.Is(err, fixture.ErrBusiness) {
					return fmt.Errorf("savepoint: %w", err)
				}
				_, err := tx.Exec(ctx, "INSERT INTO accounts (id, balance) VALUES (5, 1)")
				return err
			}},
		} {
			if err := p.Tx.RunInTx(t.Context(), tc.run); !errors.Is(err, tc.fail) {
				t.Fatalf("%s: %v, want %v", name, err, tc.fail)
			}
		}
		// The same event is published again and refused, and its business change is rolled back
		// with it.
		err := p.Tx.RunInTx(t.Context(),
			func(ctx context.Context, tx core.Tx) error { return p.Deposit(ctx, tx, 6, event(committed)) })
		fixture.Must(t, errors.Is(err, core.ErrDuplicateEvent), "same id: %v, want ErrDuplicateEvent", err)

		p.AwaitDone(1)
		if got := p.Accounts(); !slices.Equal(got, []int{1, 5}) {
			t.Errorf("accounts %v, want 1 and 5", got)
		}
		p.OnceEach([]string{committed})
	})
}

// After a commit the event is published at once, without a query.
func TestCommitIsPublishedAtOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		p := fixture.NewProcess(t, db, core.Config{Relay: relay.Config{PollInterval: time.Hour}})
		p.RunHot()
		var want []string
		for i := range 40 {
			want = append(want, p.Publish(core.Event{Type: "a", Key: fmt.Sprint(i % 4)}, core.Event{Type: "a"})...)
		}
		fixture.Await(t, "all are published", func() bool { return len(p.Accepted()) >= len(want) })
		p.AwaitDone(len(want))
		p.OnceEach(want)
		fixture.Await(t, "each publish is counted, which may come after its mark", func() bool {
			return p.Hot.Load()+p.Cold.Load() >= int64(len(want))
		})
		if hot, cold, claimed := p.Hot.Load(), p.Cold.Load(), p.Claimed.Load(); hot != int64(len(want)) || cold != 0 ||
			claimed != 0 {
			t.Errorf("%d hot, %d cold, %d claimed, want %d, 0, 0", hot, cold, claimed, len(want))
		}
		for _, r := range p.Rows() {
			if r.Holder != p.Outbox.Node() || r.Attempts != 0 || !r.Done {
				t.Fatalf("row %+v, want it held by %s, no attempts, done", r, p.Outbox.Node())
			}
		}
	})
}

// A full fast path does not fail or delay callers: the poller publishes the rest.
func TestOverflowGoesToThePoller(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		// A blocked publish stays blocked, however long the rest of the test takes.
		p := fixture.NewProcess(t, db, core.Config{
			Relay: relay.Config{
				HotEvents:      4,
				PublishTimeout: 2 * time.Minute,
				HotLease:       3 * time.Minute,
				ClaimLease:     3 * time.Minute,
			},
		})
		p.RunHot()
		p.Publisher.Block()
		var want []string
		for i := range 50 {
			want = append(want, p.Publish(core.Event{Type: "a", Key: fmt.Sprint(i % 3)}, core.Event{Type: "a"})...)
		}
		if n := p.FellBack.Load(); n < int64(len(want)-8) {
			t.Errorf("%d events found no room, want nearly all of %d", n, len(want))
		}
		if n := len(p.Accepted()); n != 0 {
			t.Errorf("%d were accepted by a blocked destination", n)
		}
		p.Publisher.Unblock()
		p.AwaitDone(len(want))
		p.OnceEach(want)
		inKeyOrder(t, p.Publisher.Accepted())
		if p.Cold.Load() == 0 || p.Hot.Load() == 0 {
			t.Errorf("%d hot, %d cold, want some of both", p.Hot.Load(), p.Cold.Load())
		}
	})
}

// An event that its destination refuses is tried again, and is DEAD after the last attempt. Other
// events go on.
func TestRetriesEndInDead(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		const attempts = 4
		p := fixture.NewProcess(t, db, core.Config{Relay: relay.Config{Retry: relay.RetryPolicy{
			BaseDelay: time.Millisecond,
			MaxDelay:  20 * time.Millisecond, MaxAttempts: attempts,
		}}})
		poison := core.NewEventID()
		var seen []fixture.StoredRow // the row as it was before each attempt
		p.Publisher.FailFor(func(d core.Delivery) error {
			if d.ID != poison {
				return nil
			}
			seen = append(seen, p.Row(poison)) // one publish of a key at a time, so it needs no lock
			return core.Transient(errors.New("refused: password=hunter2"))
		})
		stop := p.Run()
		p.Publish(core.Event{ID: poison, Type: "a", Key: "poison"})
		others := p.Publish(core.Event{Type: "a", Key: "sound"}, core.Event{Type: "a"})
		fixture.Await(t, "the event is DEAD", func() bool { return p.Row(poison).Status == fixture.StatusDead })
		fixture.Await(t, "the others are DONE", func() bool { return p.Statuses()[fixture.StatusDone] == len(others) })
		stop()

		fixture.Must(t, len(seen) == attempts, "%d attempts, want %d", len(seen), attempts)
		for i, r := range seen {
			status := fixture.StatusRetry
			if i == 0 {
				status = fixture.StatusNew
			}
			fixture.Check(t, r.Attempts == i && r.Status == status,
				"before attempt %d: attempts %d, status %d", i+1, r.Attempts, r.Status)
		}
		if r := p.Row(poison); r.Attempts != attempts || r.ErrorCode != "transient" ||
			r.Error != "refused: password=***" || r.Lost != 0 {
			t.Errorf("row %+v", r)
		}
		p.OnceEach(others)
		dead, err := p.Outbox.ListDead(t.Context(), core.DeadQuery{})
		fixture.Check(t, err == nil && len(dead) == 1 && dead[0].Event.ID == poison && dead[0].Attempts == attempts,
			"ListDead: %+v, %v", dead, err)
	})
}

// A failure after the state was changed and before the event was inserted rolls the state back.
func TestErrorRollsTheEventBack(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		p := fixture.NewProcess(t, db, core.Config{})
		p.Run()
		change := func(ctx context.Context, tx core.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO accounts (id, balance) VALUES (1, 1)")
			return err
		}
		for name, fail := range map[string]func(ctx context.Context) error{
			"error": func(context.Context) error { return fixture.ErrBusiness },
			"panic": func(context.Context) error { panic(fixture.ErrBusiness) },
			"context ended": func(ctx context.Context) error {
				return ctx.Err()
			},
		} {
			t.Run(name, func(t *testing.T) {
				reached := false
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				err := func() (err error) {
					defer func() {
						if v := recover(); v != nil {
							err = fmt.Errorf("panic: %w", v.(error))
						}
					}()
					return p.Tx.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
						fixture.NoError(t, change(ctx, tx))
						if name == "context ended" {
							cancel()
						}
						if err := fail(ctx); err != nil {
							return err
						}
						reached = true
						_, err := p.Outbox.Publish(ctx, tx, core.Event{Type: "a", Key: "k"})
						return err
					})
				}()
				fixture.Must(t, err != nil && !reached, "RunInTx: %v, the event was reached: %v", err, reached)
				if got := p.Accounts(); len(got) != 0 {
					t.Errorf("accounts %v after the rollback", got)
				}
				if n := len(p.Rows()); n != 0 {
					t.Errorf("%d events after the rollback", n)
				}
			})
		}
		// The same change goes through when nothing fails.
		id := core.NewEventID()
		fixture.NoError(t, p.Tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			return p.Deposit(ctx, tx, 1, core.Event{ID: id, Type: "a"})
		}))
		p.AwaitDone(1)
		p.OnceEach([]string{id})
	})
}

// Each refusal of the broker spends an attempt of the event, and the event stays in the table. It
// is DONE once the broker takes it. The publisher may return an error without a class while the
// broker takes no other event. Then later refusals spend no attempts: this may be an outage, which
// must not make the event dead.
func TestRefusedPublishIsTriedAgain(t *testing.T) {
	t.Parallel()
	const failures = 5 // relay.BreakerPolicy.Failures
	for name, tt := range map[string]struct {
		err   error
		spent int // of 8 refusals
		told  []int
	}{
		"the event":    {core.Transient(errors.New("not this one")), 8, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"nobody knows": {errors.New("not now"), failures - 1, []int{1, 2, 3, 4, 5, 5, 5, 5, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			brokerRefuses(t, failures, tt.err, tt.spent, tt.told)
		})
	}
}

func brokerRefuses(t *testing.T, failures int, reason error, spent int, wantTold []int) {
	t.Helper()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		p := fixture.NewProcess(t, db, core.Config{
			Relay: relay.Config{
				Retry: relay.RetryPolicy{BaseDelay: time.Millisecond, MaxDelay: 50 * time.Millisecond},
				Breaker: relay.BreakerPolicy{
					Failures: failures, ProbeInterval: 10 * time.Millisecond,
					MaxProbeInterval: 50 * time.Millisecond,
				},
			},
		})
		refusals := 0
		var told []int // the Attempt of each delivery
		id := core.NewEventID()
		p.Publisher.FailFor(func(d core.Delivery) error {
			if d.ID != id {
				return nil
			}
			told = append(told, d.Attempt)
			if r := p.Row(id); r.Attempts != min(refusals, spent) ||
				r.Status != fixture.StatusNew && r.Status != fixture.StatusRetry {
				t.Errorf("after %d refusals: status %d, attempts %d", refusals, r.Status, r.Attempts)
			}
			if refusals == 8 {
				return nil
			}
			refusals++
			return reason
		})
		stop := p.Run()
		p.Publish(core.Event{ID: id, Type: "a", Key: "k"})
		followers := p.Publish(core.Event{Type: "a", Key: "k"}, core.Event{Type: "a", Key: "k"})
		p.AwaitDone(3)
		stop()
		if r := p.Row(id); r.Attempts != spent || r.Lost != 0 {
			t.Errorf("row %+v, want %d attempts", r, spent)
		}
		fixture.Check(t, slices.Equal(told, wantTold), "deliveries named attempts %v", told)
		if got := p.Accepted(); !slices.Equal(got, append([]string{id}, followers...)) {
			t.Errorf("accepted %v, want the refused event first: it holds up its key", got)
		}
	})
}

// An outage, even one whose errors are not classified, makes no event of the backlog dead.
func TestOutageSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	const events = 300
	for name, outage := range map[string]struct {
		err error
		// Each event may spend one attempt, until enough failures in a row show that the events are
		// not at fault.
		spent int
	}{
		"unclassified": {err: errors.New("something is wrong"), spent: 4},
		"unavailable":  {err: core.Unavailable(errors.New("broker is away"))},
		"refused":      {err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db testdb.DB) {
				p := fixture.NewProcess(t, db, core.Config{
					Relay: relay.Config{
						Workers: 4,
						Retry: relay.RetryPolicy{
							BaseDelay: time.Millisecond, MaxDelay: 5 * time.Millisecond,
							MaxAttempts: 5,
						},
						Breaker: relay.BreakerPolicy{
							ProbeInterval:    10 * time.Millisecond,
							MaxProbeInterval: 40 * time.Millisecond,
						},
					},
				})
				var mu sync.Mutex
				calls := 0
				down := true
				p.Publisher.FailFor(func(core.Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					if !down {
						return nil
					}
					calls++
					return outage.err
				})
				p.Run()
				var want []string
				for i := range events / 10 {
					var batch []core.Event
					for j := range 10 {
						e := core.Event{Type: "a", Topic: "orders"}
						if j < 5 {
							e.Key = fmt.Sprint(i % 7)
						}
						batch = append(batch, e)
					}
					want = append(want, p.Publish(batch...)...)
				}
				// This is long enough for each event to become DEAD, if attempts were spent.
				fixture.Await(t, "the destination was probed again and again", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return calls >= 20 // at most 4 + 4 of them before the destination was stopped
				})
				spent := 0
				for _, r := range p.Rows() {
					spent += r.Attempts
					fixture.Must(t, r.Status != fixture.StatusDead && r.Status != fixture.StatusDone && r.Attempts <= 1,
						"during the outage: %+v", r)
				}
				fixture.Check(t, spent <= outage.spent, "%d attempts were spent, want at most %d", spent, outage.spent)
				fixture.Check(t, p.BreakerOpen.Load() != 0, "the destination was never stopped")
				mu.Lock()
				down = false
				mu.Unlock()
				p.AwaitDone(events)
				p.OnceEach(want)
				inKeyOrder(t, p.Publisher.Accepted())
			})
		})
	}
}

// inKeyOrder fails the test unless the first copies of each key came in the order of their numbers.
func inKeyOrder(t *testing.T, ds []core.Delivery) {
	t.Helper()
	last, seen := map[string]int64{}, map[string]bool{}
	for _, d := range ds {
		if d.KeySeq == 0 || seen[d.ID] {
			continue
		}
		seen[d.ID] = true
		lane := d.Topic + "\x00" + d.TenantID + "\x00" + d.Key
		if d.KeySeq <= last[lane] {
			t.Errorf("key %q: first copy of %d came after %d", d.Key, d.KeySeq, last[lane])
		}
		last[lane] = d.KeySeq
	}
	fixture.Check(t, len(last) != 0, "nothing was ordered: the check checks nothing")
}
