package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// operatorEvents returns how many events a poisoned deploy made dead, each the first of its key,
// and how many keys have one more event, which waits. OUTBOX_TEST_DEAD changes the first number.
func operatorEvents(d core.Dialect) (dead, waiting int) {
	if n, err := strconv.Atoi(os.Getenv("OUTBOX_TEST_DEAD")); err == nil {
		return n, n / 20
	}
	switch {
	case testing.Short():
		return 600, 50
	case d == core.Postgres:
		return 10_000, 500
	default: // the number of PostgreSQL would take minutes here
		return 2000, 100
	}
}

// consumers are the destination of the service. They refuse every event of a version until they are
// repaired.
type consumers struct {
	mu       sync.Mutex
	repaired bool
	tried    int
	arrived  map[string][]string // event ids by key
}

func (c *consumers) publish(_ context.Context, d core.Delivery) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tried++
	if !c.repaired {
		return core.Permanent(fmt.Errorf("event %s: version %d has no field \"total\"", d.ID, 3))
	}
	c.arrived[d.Key] = append(c.arrived[d.Key], d.ID)
	return nil
}

// state returns how many publishes were tried, and how many events have arrived.
func (c *consumers) state() (tried, arrived int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ids := range c.arrived {
		arrived += len(ids)
	}
	return c.tried, arrived
}

// A poisoned deploy makes 10,000 events dead. With the command line alone, a person finds them and
// learns why other events wait. A redrive before the repair does no harm, and one after it
// succeeds. The audit has a record of all that.
func TestOperatorOfAPoisonedDeploy(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		do := func(want int, args ...string) string {
			t.Helper()
			out, errs, code := outbox(t, db, args...)
			if code != want {
				t.Fatalf("outbox %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, out, errs)
			}
			return out + errs
		}
		read := func(into any, args ...string) {
			t.Helper()
			out, errs, _ := outbox(t, db, append(args, "--json")...)
			if err := json.Unmarshal([]byte(out), into); err != nil {
				t.Fatalf("outbox %s: %v\n%s%s", strings.Join(args, " "), err, out, errs)
			}
		}
		n, behind := operatorEvents(db.Dialect)
		do(0, "migrate", "up")
		to := &consumers{arrived: map[string][]string{}}
		want := deployPoison(t, db, to, n, behind)

		var failures ops.Groups
		fixture.AwaitIn(t, 5*time.Minute, "the events are dead", func() bool {
			read(&failures, "groups")
			return len(failures.Groups) == 1 && failures.Groups[0].Dead == n
		})
		group := failures.Groups[0]
		fixture.Check(t, group.BlockedKeys == n && strings.Contains(group.Pattern, `has no field <text>`), "%+v", group)
		var waiting ops.Page
		if read(&waiting, "list", "--status", "new", "--limit", "1"); len(waiting.Events) != 1 {
			t.Fatalf("%+v", waiting)
		}
		why := do(0, "explain", waiting.Events[0].ID.String())
		for _, part := range []string{"an earlier event of its key", "which is dead", "outbox redrive"} {
			fixture.Check(t, strings.Contains(why, part), "explain lacks %q:\n%s", part, why)
		}

		var plan ops.StoredPlan
		read(&plan, "redrive", "plan", "--group", group.Fingerprint, "--reason", "INC-42: field total",
			"--actor", "ada")
		fixture.Must(t, plan.Events == n && plan.Keys == n && plan.Topics["orders"] == n, "%+v", plan)
		before, _ := to.state()
		early := do(4, "redrive", "apply", plan.ID, "--yes", "--actor", "ada")
		after, arrived := to.state()
		fixture.Must(t, after-before <= 11 && arrived == 0 && strings.Contains(early, "failed again"),
			"%d publishes before the repair, %d arrived\n%s", after-before, arrived, early)
		to.mu.Lock()
		to.repaired = true
		to.mu.Unlock()
		do(0, "redrive", "apply", plan.ID, "--yes", "--actor", "bob")
		var dead ops.Page
		if read(&dead, "list", "--status", "dead"); len(dead.Events) != after-before { // the events that failed again
			t.Fatalf("%d events are dead, want %d", len(dead.Events), after-before)
		}
		for _, d := range dead.Events { // one by one
			do(0, "redrive", d.ID.String(), "--reason", "INC-42", "--yes", "--actor", "bob")
		}
		fixture.AwaitIn(t, 5*time.Minute, "all arrive", func() bool {
			_, arrived := to.state()
			return arrived == n+behind
		})
		arrivedAsPublished(t, to, want)
		fixture.Await(t, "status reports no problem", func() bool {
			out, _, code := outbox(t, db, "status")
			return code == 0 && strings.Contains(out, "no event waits, and none is dead")
		})
		for action, parts := range map[string][]string{
			"plan":     {"ada", "INC-42: field total", fmt.Sprint("redrive of ", n, " events"), group.Fingerprint},
			"run-plan": {"ada", "bob"},
			"redrive":  {"ada", "bob", "INC-42: field total"},
		} {
			said := audited(t, db, action)
			for _, part := range parts {
				fixture.Check(t, strings.Contains(said, part), "the audit of %s lacks %q: %.2000s", action, part, said)
			}
		}
	})
}

// audited returns the audit rows of an action, as JSON.
func audited(t *testing.T, db testdb.DB, action string) (all string) {
	t.Helper()
	for after := "0"; ; {
		out, errs, code := outbox(t, db, "audit", "--action", action, "--limit", "1000", "--after", after, "--json")
		var page struct {
			Next string `json:"next"`
		}
		if err := json.Unmarshal([]byte(out), &page); code != 0 || err != nil {
			t.Fatalf("outbox audit: %d %v\n%s%s", code, err, out, errs)
		}
		if all += out; page.Next == "" {
			return all
		}
		after = page.Next
	}
}

// deployPoison publishes the events, and runs a relay that finds that they are refused. It returns
// the ids of each key.
func deployPoison(t *testing.T, db testdb.DB, to *consumers, dead, behind int) map[string][]string {
	t.Helper()
	p := fixture.JoinProcess(t, db, nil, core.Config{
		Publisher: core.PublisherFunc(to.publish), Logger: slog.New(slog.DiscardHandler),
		Relay: relay.Config{
			PollInterval: 20 * time.Millisecond, MaxPollInterval: 100 * time.Millisecond,
			Breaker: relay.BreakerPolicy{Failures: 10 * dead},
		},
	})
	p.Run()
	want := map[string][]string{}
	for first := 0; first < dead+behind; first += 500 {
		var events []core.Event
		for n := first; n < min(first+500, dead+behind); n++ {
			events = append(events, core.Event{
				Type: "order.placed", Topic: "orders", Key: fmt.Sprint(n % dead), Payload: []byte("{}"),
			})
		}
		for n, id := range p.Publish(events...) {
			want[events[n].Key] = append(want[events[n].Key], id)
		}
	}
	return want
}

// arrivedAsPublished compares the ids of each key, and their order.
func arrivedAsPublished(t *testing.T, to *consumers, want map[string][]string) {
	t.Helper()
	to.mu.Lock()
	defer to.mu.Unlock()
	var errs []error
	for key, ids := range want {
		if got := to.arrived[key]; strings.Join(got, " ") != strings.Join(ids, " ") {
			errs = append(errs, fmt.Errorf("key %s: %v arrived, want %v", key, got, ids))
		}
	}
	if len(errs) > 0 {
		t.Errorf("%d keys differ: %v", len(errs), errors.Join(errs[:min(3, len(errs))]...))
	}
}
