package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// checkedTable is a table whose check, lists and claims fail or hang as the test says.
type checkedTable struct {
	*outboxtest.Repository
	check, down   atomic.Pointer[error]
	refuse        atomic.Pointer[error] // the error of claims
	checks, asked atomic.Int64
	hang          atomic.Pointer[chan struct{}] // claims, and the looks before them, ignore their context
}

func (c *checkedTable) Check(context.Context) error {
	c.checks.Add(1)
	if err := c.check.Load(); err != nil {
		return *err
	}
	return nil
}

func (c *checkedTable) ListDead(ctx context.Context, q core.DeadQuery) ([]core.DeadEvent, error) {
	c.asked.Add(1)
	if err := c.down.Load(); err != nil {
		return nil, *err
	}
	return c.Repository.ListDead(ctx, q)
}

func (c *checkedTable) ClaimUnordered(ctx context.Context, req core.ClaimRequest) ([]core.Claimed, error) {
	if hang := c.hang.Load(); hang != nil {
		<-*hang
	}
	if err := c.refuse.Load(); err != nil {
		return nil, *err
	}
	return c.Repository.ClaimUnordered(ctx, req)
}

func (c *checkedTable) NextDue(ctx context.Context, req core.ClaimRequest) (time.Duration, bool, error) {
	if hang := c.hang.Load(); hang != nil {
		<-*hang
	}
	return c.Repository.NextDue(ctx, req)
}

func publishTo(t *testing.T, repo *outboxtest.Repository, ob *core.Outbox, topics ...string) {
	t.Helper()
	var events []core.Event
	for _, topic := range topics {
		events = append(events, core.Event{Type: "e", Topic: topic, Data: 1})
	}
	must(t, publishTx(t.Context(), repo, ob, events...))
	synctest.Wait()
}

func healthOf(t *testing.T, ob *core.Outbox, live, ready bool, problems ...string) core.Health {
	t.Helper()
	h := ob.Health(t.Context())
	if h.Live != live || h.Ready != ready || len(h.Problems) != len(problems) || (ob.Live() == nil) != live {
		t.Errorf("health %+v, want live %t, ready %t, problems %q", h, live, ready, problems)
		return h
	}
	for i, p := range problems {
		if !strings.Contains(h.Problems[i], p) {
			t.Errorf("problem %q, want %q", h.Problems[i], p)
		}
	}
	return h
}

// A database that is away makes a process unready, not dead, whether it relays or not.
func TestHealthOfTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &checkedTable{Repository: outboxtest.NewRepository()}
		ob := newOutbox(t, core.Config{
			Repository: repo, Publisher: &outboxtest.Publisher{}, Logger: slog.New(slog.DiscardHandler),
		})
		if h := healthOf(t, ob, true, true); h.Relaying || h.Degraded() {
			t.Errorf("before Run: %+v", h)
		}
		for range 100 {
			healthOf(t, ob, true, true)
		}
		if checks, asked := repo.checks.Load(), repo.asked.Load(); checks != 1 || asked != 1 {
			t.Errorf("%d comparisons and %d questions for the probes of a moment", checks, asked)
		}
		for range 60 {
			time.Sleep(2 * time.Second)
			healthOf(t, ob, true, true)
		}
		if checks := repo.checks.Load(); checks < 3 || checks > 6 {
			t.Errorf("%d comparisons of the tables in two minutes", checks)
		}
		refused := errors.New("connection refused")
		repo.down.Store(&refused)
		time.Sleep(2 * time.Second)
		healthOf(t, ob, true, false, "connection refused")
		repo.down.Store(nil)
		time.Sleep(time.Second) // an answer is kept for a second
		healthOf(t, ob, true, true)

		differ := fmt.Errorf("%w: index x is missing", core.ErrTablesDiffer)
		repo.check.Store(&differ)
		time.Sleep(time.Minute)
		if h := healthOf(t, ob, true, true, "index x is missing"); !h.Degraded() {
			t.Errorf("tables that differ: %+v", h)
		}
		missing := fmt.Errorf("%w: table x is missing", core.ErrNoTables)
		repo.check.Store(&missing)
		time.Sleep(time.Minute)
		healthOf(t, ob, true, false, "table x is missing")
		if err := ob.Run(t.Context()); !errors.Is(err, core.ErrNoTables) {
			t.Fatal(err)
		}
		healthOf(t, ob, false, false, "Run has ended: outbox: tables or columns are missing", "table x is missing")
	})
}

// A process whose relay runs is alive, also while its destination is stopped.
func TestHealthOfARelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := outboxtest.NewRepository()
		pub := &outboxtest.Publisher{}
		ob, stop := runOutbox(t, core.Config{Repository: repo, Publisher: pub})
		time.Sleep(time.Hour)
		if h := healthOf(t, ob, true, true); !h.Relaying || h.Turned > 10*time.Second {
			t.Errorf("an idle relay: %+v", h)
		}
		pub.Outage("orders", core.Unavailable(errors.New("away: amqp://me:hunter2@broker")))
		publishTo(t, repo, ob, "orders", "mail")
		time.Sleep(10 * time.Minute)
		h := healthOf(t, ob, true, true, `destination "orders" is stopped: away: amqp://***@broker`)
		if !h.Degraded() || !slices.Equal(h.Stopped, []string{"orders"}) {
			t.Errorf("a stopped destination: %+v", h)
		}
		pub.Restore("orders")
		time.Sleep(time.Minute)
		healthOf(t, ob, true, true)
		stop()
		if h := healthOf(t, ob, true, true); h.Relaying {
			t.Errorf("after a clean end: %+v", h)
		}
	})
}

// A relay that cannot claim, though the database answers, is degraded until it can.
func TestHealthOfARelayThatCannotClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &checkedTable{Repository: outboxtest.NewRepository()}
		ob, _ := runOutbox(t, core.Config{
			Repository: table, Publisher: &outboxtest.Publisher{}, Logger: slog.New(slog.DiscardHandler),
		})
		refused := errors.New("attempt to write a readonly database")
		table.refuse.Store(&refused)
		time.Sleep(time.Minute)
		if h := healthOf(t, ob, true, true, "cannot poll: attempt to write a readonly database"); !h.Degraded() {
			t.Errorf("%+v", h)
		}
		table.refuse.Store(nil)
		time.Sleep(time.Minute)
		healthOf(t, ob, true, true)
	})
}

// A relay that hangs, or whose publishes never return, needs a restart.
func TestHealthOfAHangingRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &checkedTable{Repository: outboxtest.NewRepository()}
		ob, _ := runOutbox(t, core.Config{Repository: repo})
		hang := make(chan struct{})
		repo.hang.Store(&hang)
		time.Sleep(time.Minute)
		healthOf(t, ob, true, true)
		time.Sleep(time.Minute)
		healthOf(t, ob, false, true, "the loop of Run has not turned")
		repo.hang.Store(nil)
		close(hang)
		synctest.Wait()
		healthOf(t, ob, true, true)
	})
	synctest.Test(t, func(t *testing.T) {
		repo, never := outboxtest.NewRepository(), make(chan struct{})
		ob, _ := runOutbox(t, core.Config{
			Repository: repo, Relay: relay.Config{Workers: 1},
			Publisher: core.PublisherFunc(func(context.Context, core.Delivery) error { <-never; return nil }),
		})
		publishTo(t, repo, ob, "orders")
		time.Sleep(time.Minute)
		if h := healthOf(t, ob, true, true, "is stopped", "1 publishes are stuck"); h.Stuck != 1 || !h.Degraded() {
			t.Errorf("one stuck publish: %+v", h)
		}
		publishTo(t, repo, ob, "mail")
		time.Sleep(time.Minute)
		healthOf(t, ob, false, true, "all 2 publishes are stuck", "is stopped", "is stopped")
		close(never)
		time.Sleep(time.Minute)
		healthOf(t, ob, true, true)
	})
}

// Probes share an answer, also if it is an error. A probe whose own context had ended leaves no
// answer for others.
func TestHealthSharesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &checkedTable{Repository: outboxtest.NewRepository()}
		ob := newOutbox(t, core.Config{Repository: table})
		away := errors.New("connection refused")
		table.down.Store(&away)
		gone, leave := context.WithCancel(t.Context())
		leave()
		if h := ob.Health(gone); h.Ready {
			t.Errorf("%+v", h)
		}
		table.asked.Store(0)
		for range 5 {
			healthOf(t, ob, true, false, "connection refused")
		}
		equal(t, table.asked.Load(), 1, "the database was asked so often in one second")
		table.down.Store(nil)
		time.Sleep(time.Second)
		healthOf(t, ob, true, true)
	})
}
