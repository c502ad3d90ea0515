package integration

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

	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The acceptance tests of requirements D18 and A22, over database/sql on every database. Those of the consumer's side come with
// the inbox.

// eachDatabase runs fn on every database, at the same time.
func eachDatabase(t *testing.T, fn func(t *testing.T, db testdb.DB)) {
	t.Helper()
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		t.Parallel()
		fn(t, db)
	})
}

// Business change and event commit together or not at all.
func TestD18Atomicity(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db testdb.DB) {
		p := newProcess(t, db, core.Config{})
		p.run()
		committed := core.NewEventID()
		event := func(id string) core.Event { return core.Event{ID: id, Type: "deposited", Key: "account/1"} }
		ghosts := []string{core.NewEventID(), core.NewEventID(), core.NewEventID()}

		for name, tc := range map[string]struct {
			run  func(ctx context.Context, tx core.Tx) error
			fail error
		}{
			"commit": {run: func(ctx context.Context, tx core.Tx) error { return p.deposit(ctx, tx, 1, event(committed)) }},
			"error after the event": {fail: errBusiness, run: func(ctx context.Context, tx core.Tx) error {
				return errors.Join(p.deposit(ctx, tx, 2, event(ghosts[0])), errBusiness)
			}},
			"event refused": {fail: core.ErrInvalidEvent, run: func(ctx context.Context, tx core.Tx) error {
				return p.deposit(ctx, tx, 3, core.Event{ID: ghosts[1]})
			}},
			"savepoint": {run: func(ctx context.Context, tx core.Tx) error {
				if err := p.tx.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
					return errors.Join(p.deposit(ctx, tx, 4, event(ghosts[2])), errBusiness)
				}); !errors.Is(err, errBusiness) {
					return fmt.Errorf("savepoint: %w", err)
				}
				_, err := tx.Exec(ctx, "INSERT INTO accounts (id, balance) VALUES (5, 1)")
				return err
			}},
		} {
			if err := p.tx.RunInTx(t.Context(), tc.run); !errors.Is(err, tc.fail) {
				t.Fatalf("%s: %v, want %v", name, err, tc.fail)
			}
		}
		// The same event again: its business change goes with it.
		err := p.tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error { return p.deposit(ctx, tx, 6, event(committed)) })
		if !errors.Is(err, core.ErrDuplicateEvent) {
			t.Fatalf("same id: %v, want ErrDuplicateEvent", err)
		}

		p.awaitDone(1)
		if got := p.accounts(); !slices.Equal(got, []int{1, 5}) {
			t.Errorf("accounts %v, want 1 and 5", got)
		}
		p.onceEach([]string{committed})
	})
}

// After a commit the event leaves at once, without a look at the table.
func TestD18FastPath(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db testdb.DB) {
		p := newProcess(t, db, core.Config{PollInterval: time.Hour})
		p.runHot()
		var want []string
		for i := range 40 {
			want = append(want, p.publish(core.Event{Type: "a", Key: fmt.Sprint(i % 4)}, core.Event{Type: "a"})...)
		}
		awaitThat(t, "all are published", func() bool { return len(p.accepted()) >= len(want) })
		p.awaitDone(len(want))
		p.onceEach(want)
		if hot, cold, claimed := p.hot.Load(), p.cold.Load(), p.claimed.Load(); hot != int64(len(want)) || cold != 0 || claimed != 0 {
			t.Errorf("%d hot, %d cold, %d claimed, want %d, 0, 0", hot, cold, claimed, len(want))
		}
		for _, r := range p.rows() {
			if r.ClaimNo != 1 || r.Attempts != 0 || !r.Done {
				t.Fatalf("row %+v, want claim 1, no attempts, done", r)
			}
		}
	})
}

// A full fast path does not fail or delay callers: the poller publishes the rest.
func TestD18OverflowThenPoller(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db testdb.DB) {
		p := newProcess(t, db, core.Config{HotEvents: 4})
		p.runHot()
		p.pub.Block()
		var want []string
		for i := range 50 {
			want = append(want, p.publish(core.Event{Type: "a", Key: fmt.Sprint(i % 3)}, core.Event{Type: "a"})...)
		}
		if n := p.dropped.Load(); n < int64(len(want)-8) {
			t.Errorf("%d events found no room, want nearly all of %d", n, len(want))
		}
		if n := len(p.accepted()); n != 0 {
			t.Errorf("%d were accepted by a blocked destination", n)
		}
		p.pub.Unblock()
		p.awaitDone(len(want))
		p.onceEach(want)
		inKeyOrder(t, p.pub.Accepted())
		if p.cold.Load() == 0 || p.hot.Load() == 0 {
			t.Errorf("%d hot, %d cold, want some of both", p.hot.Load(), p.cold.Load())
		}
	})
}

// An event that its destination refuses is tried again, with growing attempts, and is DEAD after the last. Others go on.
func TestD18RetryThenDead(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db testdb.DB) {
		const attempts = 4
		p := newProcess(t, db, core.Config{Retry: core.RetryPolicy{BaseDelay: time.Millisecond, MaxDelay: 20 * time.Millisecond, MaxAttempts: attempts}})
		poison := core.NewEventID()
		var seen []storedRow // the row as it was before each attempt
		p.pub.FailFor(func(d core.Delivery) error {
			if d.ID != poison {
				return nil
			}
			seen = append(seen, p.row(poison)) // one publish of a lane at a time: no lock
			return core.Transient(errors.New("refused: password=hunter2"))
		})
		stop := p.run()
		p.publish(core.Event{ID: poison, Type: "a", Key: "poison"})
		others := p.publish(core.Event{Type: "a", Key: "sound"}, core.Event{Type: "a"})
		awaitThat(t, "the event is DEAD", func() bool { return p.row(poison).Status == statusDead })
		awaitThat(t, "the others are DONE", func() bool { return p.statuses()[statusDone] == len(others) })
		stop()

		if len(seen) != attempts {
			t.Fatalf("%d attempts, want %d", len(seen), attempts)
		}
		for i, r := range seen {
			status := statusRetry
			if i == 0 {
				status = statusNew
			}
			if r.Attempts != i || r.Status != status {
				t.Errorf("before attempt %d: attempts %d, status %d", i+1, r.Attempts, r.Status)
			}
		}
		if r := p.row(poison); r.Attempts != attempts || r.ErrorCode != "transient" || r.Error != "refused: password=***" || r.Lost != 0 {
			t.Errorf("row %+v", r)
		}
		p.onceEach(others)
		dead, err := p.ob.ListDead(t.Context(), core.DeadQuery{})
		if err != nil || len(dead) != 1 || dead[0].Event.ID != poison || dead[0].Attempts != attempts {
			t.Errorf("ListDead: %+v, %v", dead, err)
		}
	})
}

// (1) A failure after the state was changed and before the event was inserted rolls the state back.
func TestA22AtomicityOnException(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db testdb.DB) {
		p := newProcess(t, db, core.Config{})
		p.run()
		change := func(ctx context.Context, tx core.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO accounts (id, balance) VALUES (1, 1)")
			return err
		}
		for name, fail := range map[string]func(ctx context.Context) error{
			"error": func(context.Context) error { return errBusiness },
			"panic": func(context.Context) error { panic(errBusiness) },
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
					return p.tx.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
						if err := change(ctx, tx); err != nil {
							t.Fatal(err)
						}
						if name == "context ended" {
							cancel()
						}
						if err := fail(ctx); err != nil {
							return err
						}
						reached = true
						_, err := p.ob.Publish(ctx, tx, core.Event{Type: "a", Key: "k"})
						return err
					})
				}()
				if err == nil || reached {
					t.Fatalf("RunInTx: %v, the event was reached: %v", err, reached)
				}
				if got := p.accounts(); len(got) != 0 {
					t.Errorf("accounts %v after the rollback", got)
				}
				if n := len(p.rows()); n != 0 {
					t.Errorf("%d events after the rollback", n)
				}
			})
		}
		// The same change goes through when nothing fails.
		id := core.NewEventID()
		if err := p.tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			return p.deposit(ctx, tx, 1, core.Event{ID: id, Type: "a"})
		}); err != nil {
			t.Fatal(err)
		}
		p.awaitDone(1)
		p.onceEach([]string{id})
	})
}

// (2) Each time the broker refuses an event its attempts grow and it stays; it is DONE once the broker takes it.
func TestA22BrokerRefuses(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db testdb.DB) {
		p := newProcess(t, db, core.Config{Retry: core.RetryPolicy{BaseDelay: time.Millisecond, MaxDelay: 50 * time.Millisecond}})
		refusals := 0
		var told []int // the Attempt each delivery names
		id := core.NewEventID()
		p.pub.FailFor(func(d core.Delivery) error {
			if d.ID != id {
				return nil
			}
			told = append(told, d.Attempt)
			if r := p.row(id); r.Attempts != refusals || r.Status != statusNew && r.Status != statusRetry {
				t.Errorf("after %d refusals: status %d, attempts %d", refusals, r.Status, r.Attempts)
			}
			if refusals == 6 {
				return nil
			}
			refusals++
			return core.Transient(errors.New("not this one")) // of an error that nobody knows it would be for the relay to find out
		})
		stop := p.run()
		p.publish(core.Event{ID: id, Type: "a", Key: "k"})
		followers := p.publish(core.Event{Type: "a", Key: "k"}, core.Event{Type: "a", Key: "k"})
		p.awaitDone(3)
		stop()
		if r := p.row(id); r.Attempts != 6 || r.Lost != 0 {
			t.Errorf("row %+v, want 6 attempts", r)
		}
		if !slices.Equal(told, []int{1, 2, 3, 4, 5, 6, 7}) {
			t.Errorf("deliveries named attempts %v", told)
		}
		if got := p.accepted(); !slices.Equal(got, append([]string{id}, followers...)) {
			t.Errorf("accepted %v, want the refused event first: it holds up its key", got)
		}
	})
}

// The same with a broker: a full queue of RabbitMQ refuses what is published to it.
func TestA22BrokerRefusesRabbitMQ(t *testing.T) {
	t.Parallel()
	r := rabbitBroker{testdb.Server(t, "OUTBOX_TEST_RABBITMQ")}
	topic := uniqueTopic("narrow")
	var queue *amqp091.Channel
	conn, err := amqp091.Dial(r.uri)
	if err == nil {
		queue, err = conn.Channel()
	}
	if err == nil {
		_, err = queue.QueueDeclare(topic, true, false, false, false, amqp091.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { queue.QueueDelete(topic, false, false, false); conn.Close() })
	take := func() string {
		var id string
		awaitThat(t, "a message is in the queue", func() bool {
			d, ok, err := queue.Get(topic, true)
			if err != nil {
				t.Fatal(err)
			}
			id, _ = d.Headers[core.HeaderEventID].(string)
			return ok
		})
		return id
	}

	p := newProcess(t, testdb.Postgres(t), core.Config{
		Publisher: r.publisher(t), Retry: core.RetryPolicy{BaseDelay: 10 * time.Millisecond, MaxDelay: 50 * time.Millisecond, MaxAttempts: 10_000},
	})
	first := p.publish(core.Event{Type: "a", Topic: topic, Key: "k"})[0]
	p.run()
	p.awaitDone(1)
	second := p.publish(core.Event{Type: "a", Topic: topic, Key: "k"})[0]
	// Refused alone at a destination that takes nothing else: that is an outage after the first few, and spends no more attempts.
	awaitThat(t, "attempts grow", func() bool {
		row := p.row(second)
		if row.Status != statusNew && row.Status != statusRetry {
			t.Fatalf("refused by the broker: %+v", row)
		}
		return row.Attempts >= 3
	})
	if got := take(); got != first {
		t.Fatalf("the queue held %s, want %s", got, first)
	}
	p.awaitDone(2)
	if got := take(); got != second {
		t.Fatalf("the queue held %s, want %s", got, second)
	}
	if row := p.row(second); row.Attempts < 3 || row.Attempts > 5 {
		t.Errorf("row %+v", row)
	}
}

// An outage, also one that nobody classified, makes no dead letters of a backlog.
func TestOutageSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	const events = 300
	for name, outage := range map[string]struct {
		err error
		// Before enough failures in a row say that it is not the events, each may spend one.
		spent int
	}{
		"unclassified": {err: errors.New("something is wrong"), spent: 4},
		"unavailable":  {err: core.Unavailable(errors.New("broker is away"))},
		"refused":      {err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}},
	} {
		t.Run(name, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, db testdb.DB) {
				p := newProcess(t, db, core.Config{
					Workers: 4,
					Retry:   core.RetryPolicy{BaseDelay: time.Millisecond, MaxDelay: 5 * time.Millisecond, MaxAttempts: 5},
					Breaker: core.BreakerPolicy{ProbeInterval: 50 * time.Millisecond, MaxProbeInterval: 200 * time.Millisecond},
				})
				var mu sync.Mutex
				calls := 0
				down := true
				p.pub.FailFor(func(core.Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					if !down {
						return nil
					}
					calls++
					return outage.err
				})
				p.run()
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
					want = append(want, p.publish(batch...)...)
				}
				// Long enough for each event to be DEAD many times over, if attempts were spent.
				awaitThat(t, "the destination was probed again and again", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return calls >= 20 // at most 4 + 4 before it was stopped
				})
				spent := 0
				for _, r := range p.rows() {
					spent += r.Attempts
					if r.Status == statusDead || r.Status == statusDone || r.Attempts > 1 {
						t.Fatalf("during the outage: %+v", r)
					}
				}
				if spent > outage.spent {
					t.Errorf("%d attempts were spent, want at most %d", spent, outage.spent)
				}
				if p.breakerOpen.Load() == 0 {
					t.Error("the destination was never stopped")
				}
				mu.Lock()
				down = false
				mu.Unlock()
				p.awaitDone(events)
				p.onceEach(want)
				inKeyOrder(t, p.pub.Accepted())
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
	if len(last) == 0 {
		t.Error("nothing was ordered: the check checks nothing")
	}
}
