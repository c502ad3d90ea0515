package crash_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/crash"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

const (
	killsPerCell     = 20
	killsPerSlowCell = 2 // with real brokers, and SQLite in Go
	keysPerCell      = 8
)

// Processes are ended with SIGKILL exactly between two steps, again and again, on every database.
// No committed event is lost, no other event is published, and first copies stay in order. Each
// kill repeats at most as many events as the configuration says, of the fast path and of the
// poller.
func TestCrashAtEachPoint(t *testing.T) {
	longtest.Mark(t)
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		cells := make([]cell, 0, len(crash.Points))
		for _, p := range crash.Points {
			cells = append(cells, newCell(t, db, p, killsPerCell))
		}
		runCells(t, cells)
	})
}

// This is TestCrashAtEachPoint with kills at random moments.
func TestCrashAtRandomMoments(t *testing.T) {
	longtest.Mark(t)
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		runCells(t, []cell{newCell(t, db, crash.Never, killsPerCell)})
	})
}

// This is TestCrashAtEachPoint with native pgx, which writes and relays.
func TestCrashAtEachPointOfPGX(t *testing.T) {
	longtest.Mark(t)
	db := testdb.Postgres(t)
	cells := make([]cell, 0, len(crash.Points))
	for _, p := range crash.Points {
		c := newCell(t, db, p, killsPerCell)
		c.name, c.spec.PGX = "pgx: "+string(p), true
		cells = append(cells, c)
	}
	runCells(t, cells)
}

// This is TestCrashAtEachPoint with SQLite in Go and fewer kills, because the race detector makes
// that SQLite slow.
func TestCrashAtEachPointOfSQLiteInGo(t *testing.T) {
	longtest.Mark(t)
	cells := make([]cell, 0, len(crash.Points))
	for _, p := range crash.Points {
		cells = append(cells, newCell(t, testdb.DB{Name: "sqlite in go"}, p, killsPerSlowCell))
	}
	runCells(t, cells)
}

// crashSlots bounds how many cells run at once. Processes that get too little time lose their
// leases, which other tests cover.
var crashSlots = make(chan struct{}, 4)

// cell is one database in which processes are ended at one point.
type cell struct {
	name    string
	db      testdb.DB
	spec    crash.Spec
	kills   int
	seed    uint64
	ledger  *crash.Ledger
	longest time.Duration // at random moments: how long a process lives after its first publish, at most

	read func(context.Context) ([]crash.Message, error) // reads the broker at the end; nil: the ledger is the broker
}

func newCell(t *testing.T, of testdb.DB, p crash.Point, kills int) cell {
	t.Helper()
	db := testdb.DB{}
	if of.Name == "sqlite in go" {
		db = sqliteInGo(t)
	} else {
		db = of.Another(t)
	}
	prepareCrashDB(t, db)
	ledger, err := crash.NewLedger(nil)
	fixture.NoError(t, err)
	t.Cleanup(ledger.Close)
	what := string(p)
	if p == crash.Never {
		what = "random moment"
	}
	c := cell{
		name: db.Name + ": " + what, db: db, kills: kills, seed: rand.Uint64(), ledger: ledger,
		longest: 300 * time.Millisecond,
	}
	c.spec = crash.Spec{
		Dialect: db.Dialect, DSN: db.DSN, Ledger: ledger.Addr(), Topic: "crash", Relay: true, Writers: 2,
		Keys: keysPerCell, Pause: 2 * time.Millisecond, Point: p,
	}
	if db.Dialect == core.SQLite { // one writer at a time, and the relay writes too
		c.spec.Writers, c.spec.Pause = 1, 4*time.Millisecond
	}
	if p == crash.AfterClaim || p == crash.MidBatch {
		c.spec.HotEvents = 2 // most rows are left to the poller
	}
	return c
}

func sqliteInGo(t *testing.T) testdb.DB {
	t.Helper()
	db := testdb.SQLite(t)
	db.Name, db.DSN = "sqlite in go", crash.PureGo(db.DSN)
	return db
}

// prepareCrashDB creates the tables.
func prepareCrashDB(t *testing.T, db testdb.DB) {
	t.Helper()
	// crash.Open takes the SQLite that the cells use. Two kinds of SQLite in one process would undo
	// each other's locks on the file.
	pool, err := crash.Open(db.Dialect, db.DSN)
	fixture.NoError(t, err)
	defer pool.Close()
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: db.Dialect})
	fixture.NoError(t, err)
	fixture.NoError(t, errors.Join(repo.Migrate(t.Context()), crash.CreateTruth(t.Context(), pool, keysPerCell)))
}

// runCells runs cells side by side, because they mostly wait, and prints the result of each.
func runCells(t *testing.T, cells []cell) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	verdicts, errs := make([]crash.Verdict, len(cells)), make([]error, len(cells))
	var wg sync.WaitGroup
	for i := range cells {
		wg.Go(func() {
			crashSlots <- struct{}{}
			defer func() { <-crashSlots }()
			verdicts[i], errs[i] = cells[i].run(ctx)
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("%s (seed %d): %v", cells[i].name, cells[i].seed, err)
		}
	}
	t.Log(crash.Table(verdicts) + crash.Counts(verdicts...))
}

// run ends one process after the other, publishes the remaining events, and compares.
func (c cell) run(ctx context.Context) (v crash.Verdict, err error) {
	v.Cell = c.name
	r := rand.New(rand.NewPCG(c.seed, 0))
	limits := map[string]int{}
	for n := range c.kills {
		s := c.spec
		s.Name, s.Seed, s.After = fmt.Sprintf("life-%d", n), r.Uint64(), 1+r.IntN(10)
		if s.Point == crash.MidBatch {
			s.After = 1 + r.IntN(3)
		}
		if n%2 == 0 { // every other process does some work first
			s.Warm = 10 + r.IntN(10)
		}
		if err := c.life(ctx, s, time.Duration(r.Int64N(int64(c.longest)))); err != nil {
			return v, err
		}
	}
	records, err := c.drain(ctx)
	if err != nil {
		return v, err
	}
	if v, err = judge(ctx, c.name, c.db, records); err != nil {
		return v, err
	}
	v.Kills = c.kills
	all := c.ledger.Note("last", "unanswered")
	for n := range c.kills {
		name := fmt.Sprintf("life-%d", n)
		// A copy also follows an answer that was lost or late, and the end of a lease on a slow
		// machine.
		more := c.ledger.Note(name, "unanswered") + c.ledger.Note(name, "late acks")
		limits[name], limits[crash.Poller(name)] = c.spec.HotPerKill()+more, crash.ColdPerKill+more
		all += c.spec.DuplicatesPerKill() + more
	}
	v.Limit(all, limits)
	return v, v.Err()
}

// life runs one process, from its start to its end at its point, or at a random moment after it has
// begun to publish.
func (c cell) life(ctx context.Context, s crash.Spec, more time.Duration) error {
	p, err := crash.Start(s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if s.Point != crash.Never {
		select {
		case <-p.Done():
			return p.Killed()
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s has not come to its point %q", s.Name, s.Point), p.Kill())
		}
	}
	if !c.ledger.Wait(ctx.Done(), func(records []crash.Message, note func(string, string) int) bool {
		return len(records) > 0 && records[len(records)-1].From == s.Name || note(s.Name, crash.NotePublished) > 0
	}) {
		return errors.Join(fmt.Errorf("%s does not publish", s.Name), p.Kill())
	}
	moment := time.NewTimer(more)
	defer moment.Stop()
	select {
	case <-moment.C:
	case <-p.Done():
	}
	return p.Kill()
}

// drain relays in this process, called "last", until no event is open. It returns all messages that
// the broker has accepted then.
func (c cell) drain(ctx context.Context) ([]crash.Message, error) {
	s := c.spec
	s.Name = "last"
	if c.read == nil {
		err := drainTo(ctx, c.db, s, core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			m := crash.Message{From: "last", EventID: d.ID, KeySeq: d.KeySeq}
			if d.KeySeq != 0 {
				m.Key = d.Key
			}
			c.ledger.Append(m)
			return nil
		}))
		return c.ledger.Records(), err
	}
	pub, err := crash.NewBroker(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(drainTo(ctx, c.db, s, pub), pub.Close(ctx)); err != nil {
		return nil, err
	}
	return c.read(ctx)
}

func drainTo(ctx context.Context, db testdb.DB, s crash.Spec, pub core.Publisher) error {
	pool, err := crash.Open(db.Dialect, db.DSN)
	if err != nil {
		return err
	}
	defer pool.Close()
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: db.Dialect})
	if err != nil {
		return err
	}
	ob, err := core.New(s.Config(repo, pub))
	if err != nil {
		return err
	}
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- ob.Run(run) }()
	defer stop()
	if err := untilEmpty(ctx, ob); err != nil {
		return fmt.Errorf("%w\n%s", err, openRows(pool))
	}
	stop()
	return <-ended
}

// untilEmpty polls until no event is open.
func untilEmpty(ctx context.Context, ob *core.Outbox) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		b, err := ob.Backlog(ctx)
		if err != nil {
			return err
		}
		if b.Dead > 0 {
			dead, err := ob.ListDead(ctx, core.DeadQuery{})
			return errors.Join(fmt.Errorf("%d events are dead, first %+v", b.Dead, dead[0]), err)
		}
		if b.Pending == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d events are still open: %w", b.Pending, ctx.Err())
		}
	}
}

// openRows describes the open rows, for the message of a failure.
func openRows(pool *sql.DB) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	rows, err := pool.QueryContext(ctx, "SELECT status, attempts, lost_claims, COALESCE(claimed_by, ''), "+
		"COALESCE(last_error, ''), COUNT(*) FROM outbox_event"+
		" WHERE status IN (0, 2, 3) GROUP BY 1, 2, 3, 4, 5")
	if err != nil {
		return err.Error()
	}
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		var status, attempts, lost, n int
		var by, last string
		if err := rows.Scan(&status, &attempts, &lost, &by, &last, &n); err != nil {
			return err.Error()
		}
		fmt.Fprintf(&b, "%5d rows: status %d, attempts %d, lost claims %d, claimed by %s, last error %q\n", n, status,
			attempts, lost, by, last)
	}
	if err := rows.Err(); err != nil {
		return err.Error()
	}
	return b.String()
}

// judge compares the accepted messages with the committed events.
func judge(ctx context.Context, name string, db testdb.DB, records []crash.Message) (crash.Verdict, error) {
	pool, err := crash.Open(db.Dialect, db.DSN)
	if err != nil {
		return crash.Verdict{Cell: name}, err
	}
	defer pool.Close()
	truth, err := crash.ReadTruth(ctx, pool)
	if err != nil {
		return crash.Verdict{Cell: name}, err
	}
	return crash.Judge(name, records, truth), nil
}
