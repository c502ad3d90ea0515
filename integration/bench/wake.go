package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// wakeLoad is how many goroutines produce while the cost of Notify is measured.
const wakeLoad = 32

// wakeWarmUp is how many events are published before latency is measured.
const wakeWarmUp = 20

// Competitors of this section, after the name of the database.
const (
	wakeHeard    = ", woken"
	wakePolled   = ", polled"
	wakeSilent   = ", silent"
	wakeNotified = ", notifying"
	wakeRelayed  = ", notifying a relay"
)

var wakeColumns = []Column{
	{"p50 µs", Micros},
	{"p99 µs", Micros},
	{"events", Count},
}

var wakeProducerColumns = []Column{
	{"tx/s", Count},
	{"÷ silent", Ratio},
	{"p99 µs", Count},
	{"notifies/s", Count},
}

// wakeDatabase is a database with a process that only publishes and a relay.
type wakeDatabase struct {
	name   string
	aim    time.Duration // the aim for p50
	driver string
	dsn    string
	dial   core.Dialect
	order  string // creates the table of orders
}

// wakeSide is one process.
type wakeSide struct {
	pool     *sql.DB
	tx       core.Transactor
	ob       *core.Outbox
	notifies atomic.Int64
}

func runWake(ctx context.Context, e *env, s *Section) (err error) {
	duration := 4 * e.opts.Duration
	s.note("One process only publishes, another one relays: two pools in one program. Latency is from the return of "+
		"COMMIT to the entry of Publish, at %d transactions a second (Poisson), for %s in each round. Polled is the "+
		"same relay without wake-ups, with the default poll interval.", latencyRate, duration)
	s.note("The cost of telling others is that of %d goroutines that insert an order and publish an event. Silent is "+
		"the same process with WakePolicy.Disable. A relay, where there is one, shares the CPUs and publishes "+
		"meanwhile.", wakeLoad)
	all, drop, err := e.wakeDatabases(ctx)
	defer func() { err = errors.Join(err, drop()) }()
	if err != nil {
		return err
	}
	if err := e.wakeLatency(ctx, s, all, duration); err != nil {
		return err
	}
	for _, db := range all {
		if db.dial == core.SQLite { // no process notifies here: the relay watches the file
			continue
		}
		if err := e.wakeCost(ctx, s, db); err != nil {
			return err
		}
	}
	return nil
}

// wakeDatabases returns the databases of this section: PostgreSQL, SQLite, and the server of
// OUTBOX_TEST_MARIADB if there is one.
func (e *env) wakeDatabases(ctx context.Context) (all []wakeDatabase, drop func() error, err error) {
	drops := []func() error{}
	drop = func() (err error) {
		for _, d := range drops {
			err = errors.Join(err, d())
		}
		return err
	}
	all = append(all, wakeDatabase{
		name: "PostgreSQL", aim: time.Millisecond, driver: "pgx", dsn: e.dsn, dial: core.Postgres,
		order: "CREATE TABLE wake_order (id bigserial PRIMARY KEY, customer text NOT NULL, amount bigint NOT NULL)",
	})
	if server := os.Getenv("OUTBOX_TEST_MARIADB"); server != "" {
		cfg, err := mysql.ParseDSN(server)
		if err != nil {
			return nil, drop, err
		}
		cfg.DBName = e.name
		admin, err := sql.Open("mysql", server)
		if err != nil {
			return nil, drop, err
		}
		if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+e.name); err != nil {
			return nil, drop, errors.Join(err, admin.Close())
		}
		drops = append(drops, func() error {
			_, err := admin.ExecContext(context.WithoutCancel(ctx), "DROP DATABASE "+e.name)
			return errors.Join(err, admin.Close())
		})
		all = append(all, wakeDatabase{
			name: "MariaDB", aim: 5 * time.Millisecond, driver: "mysql", dsn: cfg.FormatDSN(), dial: core.MySQL,
			order: "CREATE TABLE wake_order (id BIGINT AUTO_INCREMENT PRIMARY KEY, customer VARCHAR(99), " +
				"amount BIGINT)",
		})
	}
	dir, err := os.MkdirTemp("", "outbox_bench")
	if err != nil {
		return nil, drop, err
	}
	drops = append(drops, func() error { return os.RemoveAll(dir) })
	return append(all, wakeDatabase{
		name: "SQLite", aim: 5 * time.Millisecond, driver: "sqlite", dial: core.SQLite,
		dsn: "file:" + filepath.Join(dir, "outbox.db") +
			"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate",
		order: "CREATE TABLE wake_order (id INTEGER PRIMARY KEY, customer TEXT, amount INTEGER)",
	}), drop, nil
}

// wake returns the setting with which a relay on the tables with that prefix hears wake-ups.
func (d wakeDatabase) wake(prefix string) (core.WakePolicy, error) {
	if d.dial != core.Postgres {
		return core.WakePolicy{}, nil // the repository listens by itself
	}
	cfg, err := pgx.ParseConfig(d.dsn)
	if err != nil {
		return core.WakePolicy{}, err
	}
	return core.WakePolicy{Listen: pgxoutbox.Listen(cfg, sqloutbox.WakeChannel(prefix))}, nil
}

// join opens a process. published is nil for a process without a relay.
func (d wakeDatabase) join(ctx context.Context, prefix string, wake core.WakePolicy, published func(n int),
) (_ *wakeSide, err error) {
	cfg := core.Config{Wake: wake}
	if published != nil {
		cfg.Publisher = core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			published(payloadNumber(d.Payload))
			return nil
		})
	}
	return d.joinAs(ctx, prefix, cfg)
}

// joinAs opens a process with cfg, and sets the Repository.
func (d wakeDatabase) joinAs(ctx context.Context, prefix string, cfg core.Config) (_ *wakeSide, err error) {
	side := &wakeSide{}
	if side.pool, err = sqltx.Open(d.driver, d.dsn, d.dial); err != nil {
		return nil, err
	}
	side.pool.SetMaxOpenConns(poolSize)
	side.pool.SetMaxIdleConns(poolSize)
	repo, err := sqloutbox.New(side.pool, sqloutbox.Config{Dialect: d.dial, Prefix: prefix})
	if err == nil {
		err = repo.Migrate(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, side.pool.Close())
	}
	side.tx = sqltx.NewTransactor(side.pool, d.dial)
	cfg.Wake.Notify = func(ctx context.Context) error {
		side.notifies.Add(1)
		return repo.Notify(ctx)
	}
	cfg.Repository, cfg.DisableJanitor = repo, true
	if side.ob, err = core.New(cfg); err != nil {
		return nil, errors.Join(err, side.pool.Close())
	}
	return side, nil
}

// run starts the relay.
func (s *wakeSide) run(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.ob.Run(ctx) }()
	return func() error { cancel(); return <-ended }
}

// order inserts an order and publishes event n. committed is called when the commit has returned.
func (s *wakeSide) order(ctx context.Context, n int, key string, committed func(n int)) error {
	return s.tx.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO wake_order (customer, amount) VALUES ('ada', 4200)"); err != nil {
			return err
		}
		tx.OnOutcome(func(core.Outcome) { committed(n) })
		_, err := s.ob.Publish(ctx, tx, core.Event{
			Type: benchType, Topic: benchTopic, Key: key, Unordered: true, ContentType: "application/json",
			Payload: newPayload(n),
		})
		return err
	})
}

// wakeLatency measures the time from a commit to the publish in the other process.
func (e *env) wakeLatency(ctx context.Context, s *Section, all []wakeDatabase, duration time.Duration) (err error) {
	type competitor struct {
		wakeDatabase
		name, prefix string
		silent       bool
	}
	t := s.table("commit in one process to publish in another", wakeColumns...)
	var some []competitor
	for _, db := range all {
		for _, c := range []competitor{
			{db, db.name + wakeHeard, "heard_", false},
			{db, db.name + wakePolled, "polled_", true},
		} {
			if e.opts.selects(c.name) {
				some = append(some, c)
				t.row(c.name, e.opts.Rounds)
			}
		}
	}
	for _, db := range all {
		if err := db.exec(ctx, db.order); err != nil {
			return err
		}
	}
	err = interleave(e.opts.Rounds, len(some), func(round, i int) error {
		c, row := some[i], t.Rows[i]
		e.progress.show("wake-up, round %d of %d: %s", round+1, e.opts.Rounds, c.name)
		return labelled(ctx, c.name, func(ctx context.Context) error {
			wake, err := c.wake(c.prefix)
			if err != nil {
				return err
			}
			wake.Disable = c.silent
			latencies, err := e.wakeRound(ctx, c.wakeDatabase, c.prefix, wake, duration)
			if err != nil {
				return err
			}
			t.set(row, round, "p50 µs", percentile(latencies, 50))
			t.set(row, round, "p99 µs", percentile(latencies, 99))
			t.set(row, round, "events", float64(len(latencies)))
			return nil
		})
	})
	if err != nil {
		return err
	}
	t.summarize()
	for _, db := range all {
		p50 := t.value(db.name+wakeHeard, "p50 µs")
		s.aim(p50, float64(p50) <= float64(db.aim.Microseconds()), Micros.text(p50)+" µs",
			"%s: p50 from the commit in one process to the publish in another at most %s", db.name, db.aim)
	}
	return nil
}

func (e *env) wakeRound(ctx context.Context, db wakeDatabase, prefix string, wake core.WakePolicy,
	duration time.Duration,
) (_ []time.Duration, err error) {
	w := newStopwatch()
	relay, err := db.join(ctx, prefix, wake, w.published)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, relay.pool.Close()) }()
	producer, err := db.join(ctx, prefix, wake, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, producer.pool.Close()) }()
	stop := relay.run(ctx)
	defer func() { err = errors.Join(err, stop()) }()

	n := 0
	for range wakeWarmUp { // after this, both processes have done each step once
		if err := producer.order(ctx, n, "", func(int) {}); err != nil {
			return nil, err
		}
		n++
	}
	published := func(want int) func() (bool, error) {
		return func() (bool, error) { return w.ended() >= want, nil }
	}
	if ok, err := await(ctx, finishLimit, time.Millisecond, published(n)); err != nil || !ok {
		return nil, errors.Join(err, errors.New("the relay does not begin"))
	}
	if err := poisson(ctx, duration, func() error {
		defer func() { n++ }()
		return producer.order(ctx, n, e.randomKey(), w.committed)
	}); err != nil {
		return nil, err
	}
	if ok, err := await(ctx, finishLimit, time.Millisecond, published(n)); err != nil || !ok {
		return nil, errors.Join(err, fmt.Errorf("%d of %d events were published", w.ended(), n))
	}
	return w.latencies()
}

// ended returns how many events were published.
func (w *stopwatch) ended() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.end)
}

// exec runs a statement on a new connection.
func (d wakeDatabase) exec(ctx context.Context, statement string) (err error) {
	pool, err := sql.Open(d.driver, d.dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	_, err = pool.ExecContext(ctx, statement)
	return err
}

// wakeCost measures how much Notify costs a process that only publishes.
func (e *env) wakeCost(ctx context.Context, s *Section, db wakeDatabase) (err error) {
	t := s.table(fmt.Sprintf("%s: a process that only publishes, %d at once", db.name, wakeLoad),
		wakeProducerColumns...)
	var names []string
	for _, name := range []string{wakeSilent, wakeNotified, wakeRelayed} {
		if e.opts.selects(db.name + name) {
			names = append(names, name)
			t.row(db.name+name, e.opts.Rounds)
		}
	}
	err = interleave(e.opts.Rounds, len(names), func(round, i int) error {
		e.progress.show("cost of notifying, round %d of %d: %s%s", round+1, e.opts.Rounds, db.name, names[i])
		return labelled(ctx, db.name+names[i], func(ctx context.Context) (err error) {
			prefix := strings.ReplaceAll(strings.Trim(names[i], ", ")+"_", " ", "_")
			wake := core.WakePolicy{Disable: names[i] == wakeSilent}
			producer, err := db.join(ctx, prefix, wake, nil)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, producer.pool.Close()) }()
			if names[i] == wakeRelayed {
				wake, err := db.wake(prefix)
				if err != nil {
					return err
				}
				relay, err := db.join(ctx, prefix, wake, func(int) {})
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, relay.pool.Close()) }()
				stop := relay.run(ctx)
				defer func() { err = errors.Join(err, stop()) }()
			}
			var next atomic.Int64
			l, err := e.produce(ctx, wakeLoad, 2*e.opts.Duration, func(ctx context.Context) error {
				return producer.order(ctx, int(next.Add(1)), e.randomKey(), func(int) {})
			})
			if err != nil {
				return err
			}
			t.set(t.Rows[i], round, "tx/s", l.rate())
			t.set(t.Rows[i], round, "p99 µs", percentile(l.latencies, 99))
			// The notifies include the warm-up, which took a tenth of the time.
			t.set(t.Rows[i], round, "notifies/s", float64(producer.notifies.Load())/(1.1*l.took.Seconds()))
			return nil
		})
	})
	if err != nil {
		return err
	}
	t.divide("÷ silent", "tx/s", func(*Row) *Row { return t.find(db.name + wakeSilent) })
	t.summarize()
	s.atLeast(t.value(db.name+wakeNotified, "÷ silent"), 0.97, "%s, %d at once: notifying costs at most 3 %%", db.name,
		wakeLoad)
	return nil
}
