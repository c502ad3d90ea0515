package suite

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// AdapterHarness gives TestAdapter access to an adapter: the transactions of an ORM or a driver,
// with an outbox in them.
type AdapterHarness struct {
	// Open returns the adapter on an empty database. cfg has all fields but the Repository. Open is
	// called once for each case.
	Open func(t *testing.T, cfg core.Config) Adapter
	// AbortsOnError: a refused statement makes the transaction unusable, as in PostgreSQL.
	AbortsOnError bool
	// SingleWriter: only one transaction writes at a time, as in SQLite.
	SingleWriter bool
	// Defers: events may be written with COMMIT. Then the end of the transaction returns their
	// errors, and not Publish.
	Defers bool
	// Programs is how many random programs of savepoints are run. Default: 300.
	Programs int
	// Seed repeats the random programs of an earlier run, which printed its seed when it failed.
	// Default: a new seed each time.
	Seed uint64
}

// Adapter is an adapter under test. A field is required unless its comment makes it optional.
// Inside a transaction the functions get the context that RunInTx gave to its function.
type Adapter struct {
	// Outbox records the events of Publish. The suite runs its relay in the cases that need one.
	Outbox *core.Outbox
	// Transactor opens transactions of the adapter.
	Transactor core.Transactor
	// Nested runs fn in a nested transaction by the means of the ORM. Nil: only the Transactor can
	// nest.
	Nested func(ctx context.Context, fn func(ctx context.Context) error) error
	// Another is a second Transactor of the same pool, made as another part of the program makes
	// its own. Nil: the adapter has no way to make one.
	Another core.Transactor
	// Publish records events by the means of the adapter, in the transaction that ctx carries.
	Publish func(ctx context.Context, events ...core.Event) error
	// Exec runs a statement by the means of the ORM, in the transaction that ctx carries.
	Exec func(ctx context.Context, query string) error
	// Stored returns the event ids of all committed rows of the outbox. It uses a connection of its
	// own.
	Stored func(ctx context.Context) ([]string, error)
	// RefuseCommit makes the database refuse the COMMIT of the transaction that ctx carries, for
	// example by a deferred constraint. Nil: the database cannot do that.
	RefuseCommit func(ctx context.Context) error

	// The fields below are for scenarios that only some databases and drivers can have. If a field
	// is nil or returns an error wrapping errors.ErrUnsupported, the scenario logs the reason and
	// ends.

	// LoseCommit makes the answer to the COMMIT of the transaction that ctx carries get lost. If
	// committed is true, the database carries the COMMIT out. Otherwise the COMMIT never reaches
	// the database.
	LoseCommit func(ctx context.Context, committed bool) error
	// Deadlock makes the transaction that ctx carries the victim of a deadlock. The statement runs
	// by the means of the ORM. Deadlock returns the error of that statement.
	Deadlock func(ctx context.Context) error
	// Disconnect ends the connection of the transaction that ctx carries on the side of the server.
	Disconnect func(ctx context.Context) error
	// Connection returns a function end, for the connection of the transaction that ctx carries.
	// The suite calls end later, when no transaction uses the connection. end closes the connection
	// on the side of the server. It returns when the driver is able to see that.
	Connection func(ctx context.Context) (end func(ctx context.Context) error, err error)
	// Booked returns the ids of all committed rows of the table outboxtest_booking (id INTEGER
	// PRIMARY KEY). The table stands for the tables of an application. It exists, and is empty,
	// when the case begins.
	Booked func(ctx context.Context) ([]int, error)
}

// adapterCase is one requirement that every adapter must meet.
type adapterCase struct {
	name string
	run  func(a *adapterFixture)
}

// TestAdapter is the conformance suite of adapters. Outcomes must be reported exactly once and
// correctly, whatever the application does to its transaction. Exactly the committed events must be
// published. The groups are:
//
//   - Commit: ends by commit, error, panic, runtime.Goexit and refused COMMIT; closures that are
//     run again; concurrent transactions
//   - Unknown: a COMMIT whose answer is lost, carried out or not
//   - Savepoint: nested, released, rolled back, by the Transactor and by the ORM's own means;
//     contexts in the wrong place
//   - Text: SAVEPOINT, RELEASE, ROLLBACK TO, COMMIT, ROLLBACK and BEGIN as statements, and
//     statements that commit implicitly
//   - Trouble: contexts that end, statements that fail, duplicates, lost connections, connections
//     that died unused
//   - Deadlock: the victim, with its error returned and ignored
//   - End: the rows of the application after an error that it ignores
//   - AfterCommit: functions that run only after a commit
//   - Other: transactions of another database
//   - Relay: which events are published, when, in which order, and how often
//   - Random: programs of savepoints; reports and published events are compared with the table
func TestAdapter(t *testing.T, h AdapterHarness) {
	for _, group := range []struct {
		name  string
		cases []adapterCase
	}{
		{"Commit", adapterCommitCases()},
		{"Unknown", adapterUnknownCases()},
		{"Savepoint", slices.Concat(adapterSavepointCases(), adapterNestedCases(), adapterEndedCases())},
		{"Text", adapterTextCases()},
		{"Trouble", adapterTroubleCases()},
		{"Deadlock", adapterDeadlockCases()},
		{"End", adapterEndCases()},
		{"AfterCommit", adapterAfterCommitCases()},
		{"Other", adapterOtherCases()},
		{"Relay", adapterRelayCases()},
		{"Random", adapterRandomCases()},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range group.cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(newAdapterFixture(t, h))
				})
			}
		})
	}
}

// adapterFixture has the state of a case of the adapter suite.
type adapterFixture struct {
	*testing.T
	AdapterHarness
	Adapter
	published *outboxtest.Publisher
	polled    chan struct{} // closed when the relay has polled: from then on it publishes committed events

	mu    sync.Mutex
	heard []report
}

// report is one call of a callback that the publisher of an event registered.
type report struct {
	id      string
	outcome core.Outcome
}

func newAdapterFixture(t *testing.T, h AdapterHarness) *adapterFixture {
	return configuredFixture(t, h, func(*adapterFixture, *core.Config) {})
}

// configuredFixture is newAdapterFixture with a configuration that change has changed.
func configuredFixture(t *testing.T, h AdapterHarness,
	change func(a *adapterFixture, cfg *core.Config),
) *adapterFixture {
	a := &adapterFixture{T: t, AdapterHarness: h, published: &outboxtest.Publisher{}, polled: make(chan struct{})}
	var once sync.Once
	cfg := core.Config{
		Publisher: a.published, Relay: relay.Config{
			DisableJanitor:  true,
			PublishTimeout:  30 * time.Second,
			HotLease:        time.Minute,
			ClaimLease:      time.Minute,
			PollInterval:    20 * time.Millisecond,
			MaxPollInterval: 100 * time.Millisecond,
		},
		// A process that was stalled for seconds must not lose a lease: it would publish the event
		// again.
		Observer: &core.Observer{
			Untracked: func(int) { t.Error("the adapter gave Publish a transaction whose end cannot be heard") },
			Claimed:   func(core.ClaimInfo) { once.Do(func() { close(a.polled) }) },
		},
	}
	change(a, &cfg)
	a.Adapter = h.Open(t, cfg)
	a.checkTexts()
	return a
}

// shortLeases lets the poller find rows with an unknown outcome within the time of a case. A busy
// machine may then publish an event twice.
func shortLeases(_ *adapterFixture, cfg *core.Config) {
	r := cfg.Relay.(relay.Config)
	r.PublishTimeout, r.LeaseMargin = 500*time.Millisecond, 100*time.Millisecond
	r.HotLease, r.ClaimLease = time.Second, 2*time.Second
	cfg.Relay = r
}

func (a *adapterFixture) must(ok bool, format string, args ...any) {
	a.Helper()
	if !ok {
		a.Fatalf(format, args...)
	}
}

func (a *adapterFixture) check(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

func newEvent() core.Event {
	return core.Event{ID: core.NewEventID(), Type: "thing.happened", Topic: "topic", Data: map[string]int{"n": 1}}
}

// tx returns the transaction that ctx carries.
func (a *adapterFixture) tx(ctx context.Context) core.Tx {
	a.Helper()
	tx, ok := core.TxFromContext(ctx)
	a.must(ok, "the context that RunInTx gave carries no transaction")
	return tx
}

// tryPublish records an event and registers a callback for its outcome.
func (a *adapterFixture) tryPublish(ctx context.Context, e core.Event) error {
	if err := a.Publish(ctx, e); err != nil {
		return err
	}
	a.follow(ctx, e.ID)
	return nil
}

func (a *adapterFixture) follow(ctx context.Context, id string) {
	a.Helper()
	a.tx(ctx).OnOutcome(func(o core.Outcome) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.heard = append(a.heard, report{id, o})
	})
}

// publish records a new event, registers a callback for its outcome and returns its id.
func (a *adapterFixture) publish(ctx context.Context) string {
	a.Helper()
	e := newEvent()
	a.check(a.tryPublish(ctx, e))
	return e.ID
}

// inTx runs fn in a transaction and requires that it ends without an error.
func (a *adapterFixture) inTx(fn func(ctx context.Context)) {
	a.Helper()
	a.check(a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
		fn(ctx)
		return nil
	}))
}

// nested runs fn in a nested transaction.
type nested func(ctx context.Context, fn func(ctx context.Context) error) error

// nestings returns the ways to nest a transaction.
func (a *adapterFixture) nestings() []nested {
	ways := []nested{func(ctx context.Context, fn func(context.Context) error) error {
		return a.Transactor.RunInTx(ctx, func(ctx context.Context, _ core.Tx) error { return fn(ctx) })
	}}
	if a.Nested != nil {
		ways = append(ways, a.Nested)
	}
	return ways
}

func (a *adapterFixture) stored() []string {
	a.Helper()
	ids, err := a.Stored(a.Context())
	a.check(err)
	return ids
}

// wantStored requires that exactly these events are in the table.
func (a *adapterFixture) wantStored(want ...string) {
	a.Helper()
	got := a.stored()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		a.Fatalf("stored are %q, want %q", got, want)
	}
}

func (a *adapterFixture) reports() []report {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.heard)
}

// outcomes returns the reported outcome of each event. It fails if an outcome was reported twice.
func (a *adapterFixture) outcomes() map[string]core.Outcome {
	a.Helper()
	heard := map[string]core.Outcome{}
	for _, r := range a.reports() {
		before, twice := heard[r.id]
		a.must(!twice, "event %s was reported as %s and again as %s", r.id, before, r.outcome)
		heard[r.id] = r.outcome
	}
	return heard
}

// wantOutcome requires that this outcome was reported once for each event.
func (a *adapterFixture) wantOutcome(want core.Outcome, ids ...string) {
	a.Helper()
	heard := a.outcomes()
	for _, id := range ids {
		o, ok := heard[id]
		a.must(ok, "nothing was heard of event %s, want %s", id, want)
		a.must(o == want, "event %s was reported as %s, want %s", id, o, want)
	}
}

// noLies waits until every event has a report and requires that no report contradicts the table. It
// returns how many reports are Committed.
func (a *adapterFixture) noLies(ids ...string) (committed int) {
	a.Helper()
	eventually(a, "every outcome is heard", func() bool {
		heard := a.outcomes()
		return !slices.ContainsFunc(ids, func(id string) bool { _, ok := heard[id]; return !ok })
	})
	there := map[string]bool{}
	for _, id := range a.stored() {
		there[id] = true
	}
	heard := a.outcomes()
	for _, id := range ids {
		switch o := heard[id]; {
		case o == core.Committed && !there[id]:
			a.Fatalf("a ghost: event %s was reported as committed and is not there", id)
		case o == core.RolledBack && there[id]:
			a.Fatalf("event %s was reported as rolled back and is there", id)
		case o == core.Committed:
			committed++
		}
	}
	return committed
}

// has reports whether the adapter supports the scenario. An adapter that does not support it has a
// nil function or returns an error.
func (a *adapterFixture) has(way bool, err error) bool {
	if !way || errors.Is(err, errors.ErrUnsupported) {
		a.Log("this adapter has no way to do that")
		return false
	}
	return true
}

// whole requires that the adapter still works after trouble: a transaction commits.
func (a *adapterFixture) whole() {
	a.Helper()
	var id string
	a.inTx(func(ctx context.Context) { id = a.publish(ctx) })
	a.wantOutcome(core.Committed, id)
	a.must(slices.Contains(a.stored(), id), "the event of a transaction that committed is not there")
}

// truthful requires that the reports about these events are true, and that err, the result of
// RunInTx, is true. RunInTx may report success only if the event first is stored, and a failure
// only if it is not stored, unless the error is core.ErrCommitUnknown.
func (a *adapterFixture) truthful(err error, first string, further ...string) {
	a.Helper()
	committed := a.noLies(append(further, first)...)
	a.must((err == nil) == slices.Contains(a.stored(), first) || errors.Is(err, core.ErrCommitUnknown),
		"RunInTx: %v; stored are %q, the event was %s", err, a.stored(), first)
	a.must(err == nil || committed == 0, "RunInTx failed with %v, and an event was reported as committed", err)
}

// relay runs the relay until the case ends. The published events must be visible to every
// connection at that time.
func (a *adapterFixture) relay() {
	a.Helper()
	a.published.FailFor(func(d core.Delivery) error {
		if ids, err := a.Stored(a.Context()); err == nil && !slices.Contains(ids, d.ID) {
			a.Errorf("a ghost: event %s was published and is not there", d.ID)
		}
		return nil
	})
	a.runRelay()
}

// waitIdle waits until the relay has no events left to publish.
func (a *adapterFixture) waitIdle() {
	a.Helper()
	eventually(a, "the relay has published everything", func() bool {
		b, err := a.Outbox.Backlog(a.Context())
		a.check(err)
		return b.Pending == 0
	})
}

// runRelay returns when the relay runs, so that later commits take the fast path.
func (a *adapterFixture) runRelay() {
	a.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- a.Outbox.Run(ctx)
		close(done)
	}()
	a.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			a.Errorf("Run: %v", err)
		}
	})
	select {
	case <-a.polled:
	case err := <-done:
		a.Fatalf("Run: %v", err)
	}
}
