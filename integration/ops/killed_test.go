package ops_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/crash"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

const doomedVariable = "OUTBOX_OPS_DOOMED"

// TestMain lets this binary be started again as a process that runs a plan and is killed.
func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(doomedVariable); ok {
		fmt.Fprintln(os.Stderr, runDoomed(text))
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// doomed is a process that runs a plan and dies of SIGKILL while it changes events, or when it has
// changed them.
type doomed struct {
	Dialect core.Dialect
	DSN     string
	Plan    string
	Within  time.Duration // how long after the change began; 0: after its commit
	Archive string        // the file of an archive; if set, the process archives and runs no plan
}

// runDoomed runs as that process. It only returns after a mistake.
func runDoomed(text string) error {
	var d doomed
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return err
	}
	pool, err := crash.Open(d.Dialect, d.DSN)
	if err != nil {
		return err
	}
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: d.Dialect})
	if err != nil {
		return err
	}
	if d.Archive != "" {
		return runDoomedArchive(repo, d)
	}
	ob, err := core.New(core.Config{Repository: repo})
	if err != nil {
		return err
	}
	store, err := sqlops.NewStore(repo)
	if err != nil {
		return err
	}
	api, err := ops.New(ob, &doomedStore{Store: store, within: d.Within})
	if err != nil {
		return err
	}
	p, err := api.RunPlan(context.Background(), d.Plan, ops.RunOptions{Actor: "bob", SkipDead: true})
	return fmt.Errorf("the plan ended: %+v %w", p, err)
}

type doomedStore struct {
	ops.Store
	within time.Duration
}

func (s *doomedStore) ChangePlan(ctx context.Context, c ops.PlanChange) (ops.StoredPlan, bool, error) {
	if len(c.IDs) == 0 {
		return s.Store.ChangePlan(ctx, c)
	}
	die := func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	if s.within > 0 {
		time.AfterFunc(s.within, die)
	}
	if _, ok, err := s.Store.ChangePlan(ctx, c); !ok || err != nil {
		return ops.StoredPlan{}, false, fmt.Errorf("not changed: %w", err)
	}
	if s.within == 0 {
		die()
	}
	select {} // until the process is dead
}

// killed runs the stored plan in processes that are killed, one after the other, and returns when
// another one may go on with it.
func (w *poisoned) killed(db testdb.DB, lives int) {
	w.T.Helper()
	self, err := os.Executable()
	fixture.NoError(w.T, err)
	store := fixture.NewOpsStore(w.T, w.Outbox.Repository())
	for n := range lives {
		d := doomed{Dialect: db.Dialect, DSN: db.DSN, Plan: w.plan.ID}
		if n%2 == 1 {
			d.Within = time.Duration(1 + rand.IntN(5_000_000))
		}
		text, err := json.Marshal(d)
		fixture.NoError(w.T, err)
		ctx, cancel := context.WithTimeout(w.T.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, self)
		cmd.Env = append(os.Environ(), doomedVariable+"="+string(text))
		out, err := cmd.CombinedOutput()
		late := ctx.Err()
		cancel()
		var exit *exec.ExitError
		fixture.Must(w.T, errors.As(err, &exit) && late == nil, "life %d: %v, %v\n%s", n, err, late, out)
		if s, ok := exit.Sys().(syscall.WaitStatus); !ok || !s.Signaled() || s.Signal() != syscall.SIGKILL {
			w.T.Fatalf("life %d was not killed: %v\n%s", n, err, out)
		}
		// The lease would end half a minute later. This ends it now.
		fixture.Await(w.T, "the lease is given up", func() bool {
			p := w.stored()
			_, ok, err := store.ChangePlan(w.T.Context(), ops.PlanChange{Plan: p, Lease: time.Millisecond})
			return ok && err == nil
		})
		fixture.Await(w.T, "the lease ends", func() bool { p := w.stored(); return !p.Running() })
	}
}

// Processes that run a replay and a redrive are killed in the middle, and others go on. In the end
// each event of the plan was sent again once, and each key is in its order. No other event was sent
// again.
func TestKilledPlan(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		t.Run("redrive", func(t *testing.T) {
			t.Parallel()
			of := db.Another(t)
			w := newPoisoned(t, of, 60, core.SkipDead) // so that no event outside of the plan follows
			w.sentAgain(of, w.plan.IDs)
			if n := w.dead("other"); n != 1 {
				t.Errorf("%d events outside of the plan are dead, want 1", n)
			}
		})
		t.Run("replay", func(t *testing.T) {
			t.Parallel()
			of := db.Another(t)
			w := &poisoned{world: newWorld(t, of, core.Config{
				Relay: relay.Config{PollInterval: 20 * time.Millisecond, MaxPollInterval: 100 * time.Millisecond},
			})}
			for i := range 60 {
				for _, topic := range []string{"orders", "mails"} {
					e := core.Event{Type: "paid", Topic: topic}
					if i%3 > 0 {
						e.Key = fmt.Sprint("k", i%7)
					}
					w.Publish(e)
				}
			}
			w.drain()
			p, err := w.api.PlanReplay(t.Context(), ops.Filter{Topic: "orders"}, ops.ReplayOptions{DedupWindow: window})
			fixture.NoError(t, err)
			w.plan, err = w.api.StorePlan(t.Context(), p, "ada", "search lost its index")
			fixture.NoError(t, err)
			w.sentAgain(of, p.IDs)
		})
	})
}

// sentAgain runs the plan in processes that are killed, and then in one that is not. It compares
// the arrived events with those of the plan.
func (w *poisoned) sentAgain(db testdb.DB, ids []core.RowID) {
	w.T.Helper()
	w.Publisher.FailFor(nil)
	seen := len(w.Publisher.Accepted())
	want := make([]string, 0, len(ids))
	for _, id := range ids {
		want = append(want, w.eventID(id))
	}
	stop := w.Run()
	w.killed(db, 3)
	p, err := w.run(ops.RunOptions{})
	if err != nil || p.State != ops.PlanDone || p.Changed != len(ids) || p.Succeeded != len(ids) || p.Failed != 0 {
		w.T.Fatalf("%+v %v", p, err)
	}
	stop()
	var sent []string
	last := map[string]string{}
	for _, d := range w.Publisher.Accepted()[seen:] {
		sent = append(sent, d.ID)
		fixture.Check(w.T, d.ReplayOf.IsZero() != (w.plan.Action == ops.ActionReplay),
			"a %s sent %+v", w.plan.Action, d)
		if d.Key != "" && d.ID <= last[d.Key] {
			w.T.Errorf("key %s: %s arrived after %s", d.Key, d.ID, last[d.Key])
		}
		last[d.Key] = d.ID
	}
	slices.Sort(sent)
	slices.Sort(want)
	fixture.Check(w.T, slices.Equal(sent, want),
		"%d events were sent, of a plan of %d:\n%v\nwant\n%v", len(sent), len(want), sent, want)
}
