package relay_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/driver/pgdriver"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// seldom is a poll interval longer than any test, so that only a wake-up can make an event arrive.
const seldom = 10 * time.Minute

// soon is the limit for steps that take milliseconds on an idle machine.
const soon = 30 * time.Second

// pair is a process that only publishes and a relay, on one database.
type pair struct {
	*fixture.Process // the relay

	producer *fixture.Process
	sent     []string
}

// newPair makes both, and waits until the relay has published an event from before its start.
func newPair(t *testing.T, db testdb.DB, producer, relaying core.Config) *pair {
	t.Helper()
	fixture.ChangeRelay(&relaying, func(c *relay.Config) {
		if c.PollInterval == 0 {
			c.PollInterval, c.MaxPollInterval = seldom, seldom
		}
	})
	p := &pair{Process: fixture.NewProcess(t, db, relaying)}
	p.producer = fixture.JoinProcess(t, db, p.Publisher, core.Config{})
	producer.Repository = p.producer.Repository
	var err error
	if p.producer.Outbox, err = core.New(producer); err != nil { // the producer has no Publisher
		t.Fatal(err)
	}
	p.send(core.Event{Type: "a"})
	p.Run()
	p.arrive()
	return p
}

// send publishes in the process without a relay.
func (p *pair) send(events ...core.Event) { p.sent = append(p.sent, p.producer.Publish(events...)...) }

// arrive waits until the relay has published all events that were sent.
func (p *pair) arrive() {
	p.T.Helper()
	fixture.AwaitIn(p.T, soon, fmt.Sprintf("%d events arrive", len(p.sent)),
		func() bool { return len(p.Accepted()) >= len(p.sent) })
	p.OnceEach(p.sent)
}

// listen returns the setting with which a relay on that database hears wake-ups.
func listen(t *testing.T, db testdb.DB) func(context.Context, func()) error {
	t.Helper()
	if db.Dialect != core.Postgres {
		return nil // the repository listens by itself
	}
	return pgxoutbox.Listen(pgxConfig(t, db), sqloutbox.WakeChannel(""))
}

func pgxConfig(t *testing.T, db testdb.DB) *pgx.ConnConfig {
	t.Helper()
	cfg, err := pgx.ParseConfig(db.DSN)
	fixture.NoError(t, err)
	return cfg
}

// A relay in another process publishes an event soon after its commit, whatever its poll interval.
func TestRelayHearsOfCommits(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		p := newPair(t, db, core.Config{}, core.Config{Wake: core.WakePolicy{Listen: listen(t, db)}})
		for i := range 20 {
			p.send(core.Event{Type: "a", Key: fmt.Sprint(i % 3)}, core.Event{Type: "a"})
			p.arrive()
		}
		p.AwaitDone(len(p.sent))
	})
}

// Two relays hear of the same commits. Order is kept, and no event is published twice.
func TestTwoRelaysHearOfCommits(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		wake := core.WakePolicy{Listen: listen(t, db)}
		p := newPair(t, db, core.Config{}, core.Config{Wake: wake})
		other := fixture.JoinProcess(t, db, p.Publisher, core.Config{
			Wake: wake, Relay: relay.Config{PollInterval: seldom, MaxPollInterval: seldom},
		})
		other.Run()
		var wg sync.WaitGroup
		var mu sync.Mutex
		for i := range 4 {
			wg.Go(func() {
				for range 25 {
					ids := p.producer.Publish(core.Event{Type: "a", Key: fmt.Sprint(i)})
					mu.Lock()
					p.sent = append(p.sent, ids...)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		p.arrive()
		last := map[string]int64{}
		for _, d := range p.Publisher.Accepted() {
			if d.KeySeq < last[d.Key] {
				t.Errorf("key %s: %d came after %d", d.Key, d.KeySeq, last[d.Key])
			}
			last[d.Key] = d.KeySeq
		}
	})
}

// The poller does not depend on wake-ups: if all are lost, events arrive within the poll interval.
func TestWakeUpsAreLost(t *testing.T) {
	t.Parallel()
	const interval = 300 * time.Millisecond
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		var lost atomic.Int64
		var p *pair
		hear := listen(t, db)
		if hear == nil {
			hear = func(ctx context.Context, wake func()) error { return p.Repository.Listen(ctx, wake) }
		}
		running := make(chan struct{})
		wake := core.WakePolicy{Listen: func(ctx context.Context, _ func()) error {
			select {
			case <-running:
			case <-ctx.Done():
				return ctx.Err()
			}
			return hear(ctx, func() { lost.Add(1) })
		}}
		p = newPair(t, db, core.Config{}, core.Config{
			Wake: wake, Relay: relay.Config{PollInterval: interval, MaxPollInterval: interval},
		})
		close(running)
		fixture.AwaitIn(t, soon, "it listens", func() bool { return lost.Load() > 0 })
		for range 5 {
			before := lost.Load()
			p.send(core.Event{Type: "a"})
			p.arrive()
			fixture.AwaitIn(t, soon, "a wake-up was lost", func() bool { return lost.Load() > before })
		}
	})
}

// A transaction that is rolled back wakes no relay. A transaction that commits does.
func TestRollbackWakesNobody(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		var notified atomic.Int64
		p := fixture.NewProcess(t, db, core.Config{})
		var err error
		p.Outbox, err = core.New(core.Config{
			Repository: p.Repository,
			Wake: core.WakePolicy{Notify: func(context.Context) error {
				notified.Add(1)
				return nil
			}},
		})
		fixture.NoError(t, err)
		for range 10 {
			if err := p.Tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
				_, err := p.Outbox.Publish(ctx, tx, core.Event{Type: "a"})
				return errors.Join(err, fixture.ErrBusiness)
			}); !errors.Is(err, fixture.ErrBusiness) {
				t.Fatal(err)
			}
			fixture.NoError(t, p.Tx.RunInTx(t.Context(), func(ctx context.Context, _ core.Tx) error {
				if err := p.Tx.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error { // a savepoint
					_, err := p.Outbox.Publish(ctx, tx, core.Event{Type: "a"})
					return errors.Join(err, fixture.ErrBusiness)
				}); !errors.Is(err, fixture.ErrBusiness) {
					return err
				}
				return nil
			}))
		}
		if n := notified.Load(); n != 0 {
			t.Fatalf("%d Notifies after rollbacks only", n)
		}
		p.Publish(core.Event{Type: "a"})
		fixture.AwaitIn(t, soon, "the commit is notified", func() bool { return notified.Load() == 1 })
	})
}

// Listen of one process hears each Notify of another one, and nothing else.
func TestListenHearsNotify(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		p := fixture.NewProcess(t, db, core.Config{})
		other, err := sqloutbox.New(db.Open(t), sqloutbox.Config{Dialect: db.Dialect})
		fixture.NoError(t, err)
		hear := listen(t, db)
		if hear == nil {
			hear = other.Listen
		} else if err := other.Listen(t.Context(), nil); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Listen without the driver: %v", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var heard atomic.Int64
		ended := make(chan error, 1)
		go func() { ended <- hear(ctx, func() { heard.Add(1) }) }()
		fixture.AwaitIn(t, soon, "it listens", func() bool { return heard.Load() == 1 })
		for i := range int64(5) {
			if db.Dialect == core.SQLite { // a relay on SQLite sees the commit itself
				if err := p.Repository.Notify(ctx); !errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("Notify on SQLite: %v", err)
				}
				p.Publish(core.Event{Type: "a"})
			} else if err := p.Repository.Notify(ctx); err != nil {
				t.Fatal(err)
			}
			fixture.AwaitIn(t, soon, "it hears", func() bool { return heard.Load() == i+2 })
		}
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Listen: %v", err)
		}
		if n := heard.Load(); n != 6 {
			t.Errorf("heard %d times, want 6", n)
		}
		// On MariaDB and MySQL, Notify counts up a row among the keys, which is no key.
		if _, next, err := p.Repository.CollectKeys(t.Context(), -time.Hour, core.KeyID{}, 10); err != nil ||
			!next.IsZero() {
			t.Errorf("CollectKeys: next %v, %v", next, err)
		}
		if b, err := p.Repository.Backlog(t.Context(), 100); err != nil || b.BlockedKeys != 0 {
			t.Errorf("Backlog: %+v, %v", b, err)
		}
	})
}

// A listener whose connection was terminated connects again, and hears again.
func TestListenerIsTerminated(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	p := newPair(t, db, core.Config{}, core.Config{Wake: core.WakePolicy{Listen: listen(t, db)}})
	listeners := func() []int64 {
		return fixture.Query(t, p.Pool, "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND "+
			"query LIKE 'LISTEN %'", func(r *sql.Rows) (pid int64, err error) { return pid, r.Scan(&pid) })
	}
	killed := map[int64]bool{}
	for range 3 {
		var pids []int64
		fixture.AwaitIn(t, soon, "it listens",
			func() bool { pids = listeners(); return len(pids) == 1 && !killed[pids[0]] })
		killed[pids[0]] = true
		fixture.MustExec(t, p.Pool, fmt.Sprintf("SELECT pg_terminate_backend(%d)", pids[0]))
		p.send(core.Event{Type: "a", Key: "k"}) // perhaps while no connection listens
		p.arrive()
		p.send(core.Event{Type: "a", Key: "k"})
		p.arrive()
	}
}

// PgBouncer in transaction mode accepts LISTEN and forgets it. The relay notices that it does not
// hear its own Notify, logs that once, and polls.
func TestListenThatHearsNothing(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var log lines
	p := newPair(t, db, core.Config{}, core.Config{
		Relay: relay.Config{
			PollInterval:    200 * time.Millisecond,
			MaxPollInterval: 200 * time.Millisecond,
		},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Wake: core.WakePolicy{Listen: func(ctx context.Context, wake func()) error {
			conn, err := pgx.ConnectConfig(ctx, pgxConfig(t, db))
			if err != nil {
				return err
			}
			defer conn.Close(context.WithoutCancel(ctx))
			if _, err := conn.Exec(ctx, `LISTEN outbox_wake; UNLISTEN *`); err != nil {
				return err
			}
			wake()
			_, err = conn.WaitForNotification(ctx)
			return err
		}},
	})
	p.send(core.Event{Type: "a"})
	p.arrive()
	fixture.AwaitIn(t, soon, "the log tells", func() bool { return log.count("no wake-ups arrive") > 0 })
	p.send(core.Event{Type: "a"})
	p.arrive()
	if n := log.count("level=WARN"); n != 1 || log.count("PgBouncer in transaction mode") != 1 {
		t.Errorf("%d warnings: %s", n, log.String())
	}
}

// Through PgBouncer in transaction mode events arrive by polls, and the log says why, once.
func TestListenThroughPgBouncer(t *testing.T) {
	t.Parallel()
	db := testdb.PgBouncer(t)
	var log lines
	p := newPair(t, db, core.Config{}, core.Config{
		Relay: relay.Config{
			PollInterval:    200 * time.Millisecond,
			MaxPollInterval: 200 * time.Millisecond,
		},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Wake:   core.WakePolicy{Listen: listen(t, db)},
	})
	p.send(core.Event{Type: "a", Key: "k"})
	p.arrive()
	fixture.AwaitIn(t, soon, "the log tells", func() bool { return log.count("PgBouncer in transaction mode") > 0 })
	p.send(core.Event{Type: "a", Key: "k"})
	p.arrive()
	if n := log.count("level=WARN"); n != 1 {
		t.Errorf("%d warnings: %s", n, log.String())
	}
}

// Services may notify through PgBouncer. A relay may work through PgBouncer too, if it listens on
// PostgreSQL itself.
func TestNotifyThroughPgBouncer(t *testing.T) {
	t.Parallel()
	db := testdb.PgBouncer(t)
	p := newPair(t, db, core.Config{}, core.Config{Wake: core.WakePolicy{Listen: listen(t, db.Direct(t))}})
	for range 5 {
		p.send(core.Event{Type: "a", Key: "k"})
		p.arrive()
	}
}

// Listen of the configuration may be any function, such as one with the listener of another driver.
func TestListenOfPgdriver(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	connector := pgdriver.NewConnector(pgdriver.WithDSN(db.DSN), pgdriver.WithInsecure(true))
	pool := bun.NewDB(sql.OpenDB(connector), pgdialect.New())
	defer pool.Close()
	p := newPair(t, db, core.Config{}, core.Config{Wake: core.WakePolicy{
		Listen: func(ctx context.Context, wake func()) error {
			ln := pgdriver.NewListener(pool)
			defer ln.Close()
			if err := ln.Listen(ctx, sqloutbox.WakeChannel("")); err != nil {
				return err
			}
			wake()
			notifications := ln.Channel()
			for {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-notifications:
					wake()
				}
			}
		},
	}})
	for range 5 {
		p.send(core.Event{Type: "a"})
		p.arrive()
	}
}

// A pool of SQLite that is limited to one connection keeps it for the application.
func TestSmallPoolOfSQLite(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	const interval = 50 * time.Millisecond
	p := fixture.NewProcess(t, db, core.Config{Relay: relay.Config{PollInterval: interval, MaxPollInterval: interval}})
	p.Pool.SetMaxOpenConns(1)
	p.Run()
	id := p.Publish(core.Event{Type: "a"})
	fixture.AwaitIn(t, soon, "it arrives", func() bool { return len(p.Accepted()) == 1 })
	p.OnceEach(id)
	if n := p.Pool.Stats().OpenConnections; n > 1 {
		t.Errorf("%d connections", n)
	}
}

// lines collects a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lines) count(part string) int { return strings.Count(l.String(), part) }
