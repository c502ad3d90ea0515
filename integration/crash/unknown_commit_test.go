package crash_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/crash"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/integration/internal/wireproxy"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// silence is how long a client waits for an answer. It is also the time that a transaction has on
// PostgreSQL, so it is longer than a slow machine may stand still.
const silence = 6 * time.Second

// The connection ends around a COMMIT. The caller gets core.ErrCommitUnknown and never success, and
// no event takes the fast path. The poller publishes the events that did commit, once. The other
// events are never published.
func TestUnknownCommit(t *testing.T) {
	cuts := 4 // of each kind
	if testing.Short() {
		cuts = 2
	}
	ways := map[string]func(*testing.T, *unknownWorld) commitFunc{
		"begin": beginPlain, "connector": beginTracked, "gorm": beginGORM, "pgx": beginPGX,
	}
	for name, open := range map[string]func(*testing.T) testdb.DB{
		"postgres": testdb.Postgres,
		"mariadb":  testdb.MariaDB,
	} {
		t.Run(name, func(t *testing.T) {
			for way, opener := range ways {
				if way == "pgx" && name != "postgres" {
					continue
				}
				t.Run(way, func(t *testing.T) {
					t.Parallel()
					w := newUnknownWorld(t, open(t))
					w.run(t, name+", "+way, cuts, opener(t, w))
				})
			}
		})
	}
}

// commitFunc writes an event with its business row and returns the error of the commit. Other
// errors end the test.
type commitFunc func(ctx context.Context, e core.Event) (committed error)

// unknownWorld is a database behind a proxy, with a relay that reaches it directly.
type unknownWorld struct {
	db     testdb.DB // without the proxy
	proxy  *wireproxy.Proxy
	behind *sql.DB // through the proxy, untracked
	ob     *core.Outbox

	mu     sync.Mutex
	copies map[string]int       // event: publishes
	paths  map[string]core.Path // event type: path of the first publish
}

func newUnknownWorld(t *testing.T, db testdb.DB) *unknownWorld {
	t.Helper()
	prepareCrashDB(t, db)
	w := &unknownWorld{db: db, copies: map[string]int{}, paths: map[string]core.Path{}}
	var err error
	if w.proxy, err = wireproxy.New(fixture.ServerOf(t, db)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.proxy.Close)
	w.behind = fixture.Through(t, db, w.proxy, silence).Open(t)
	pool := db.Open(t)
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: db.Dialect})
	fixture.NoError(t, err)
	cfg := crash.Config(repo, core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.copies[d.ID]++
		return nil
	}), "direct")
	// The leases outlive the silence, so that only the outcome decides which path an event takes.
	fixture.ChangeRelay(&cfg, func(c *relay.Config) {
		c.HotLease, c.ClaimLease, c.PublishTimeout = 2*silence, 2*silence, silence
	})
	cfg.Observer = &core.Observer{Published: func(i core.PublishInfo) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if _, again := w.paths[i.Type]; !again {
			w.paths[i.Type] = i.Path
		}
	}}
	if w.ob, err = core.New(cfg); err != nil {
		t.Fatal(err)
	}
	run, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.ob.Run(run) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

// run makes every kind of cut several times. Before each cut, a commit succeeds.
func (w *unknownWorld) run(t *testing.T, name string, cuts int, commit commitFunc) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	type written struct {
		cut wireproxy.Cut
		e   core.Event
	}
	var all []written
	write := func(cut wireproxy.Cut) {
		e := core.Event{
			ID: core.NewEventID(), Type: fmt.Sprintf("unknown.%d", len(all)), Topic: "unknown",
			Key: "key-0", Payload: []byte("{}"),
		}
		all = append(all, written{cut, e})
		made := w.proxy.Made()
		w.proxy.CutNext(cut)
		err := commit(ctx, e)
		switch {
		case cut == wireproxy.None:
			fixture.Must(t, err == nil, "commit: %v", err)
		case w.proxy.Made() != made+1:
			t.Fatalf("the connection was not cut %s: commit returned %v", cut, err)
		case err == nil:
			t.Errorf("cut %s: commit returned nil", cut)
		case !errors.Is(err, core.ErrCommitUnknown):
			t.Errorf("cut %s: commit returned %v, which is not ErrCommitUnknown", cut, err)
		}
	}
	// The fast path begins with Run, in the background: the cuts wait for its first event, and a
	// test without one ends with its context.
	for hot := false; !hot; {
		write(wireproxy.None)
		if err := untilEmpty(ctx, w.ob); err != nil {
			t.Fatal("no successful commit used the fast path, so the test proves nothing: ", err)
		}
		w.mu.Lock()
		hot = w.paths[all[len(all)-1].e.Type] == core.PathHot
		w.mu.Unlock()
	}
	for _, cut := range wireproxy.Cuts {
		times := cuts
		if cut == wireproxy.Silent {
			times = 1
		}
		for range times {
			write(wireproxy.None)
			write(cut)
		}
	}
	fixture.NoError(t, untilEmpty(ctx, w.ob))
	pool, err := crash.Open(w.db.Dialect, w.db.DSN)
	fixture.NoError(t, err)
	defer pool.Close()
	truth, err := crash.ReadTruth(ctx, pool)
	fixture.NoError(t, err)

	w.mu.Lock()
	defer w.mu.Unlock()
	committed := map[wireproxy.Cut]int{}
	hot := 0
	for _, x := range all {
		_, there := truth.Events[x.e.ID]
		if there {
			committed[x.cut]++
		}
		if want := map[bool]int{true: 1}[there]; w.copies[x.e.ID] != want {
			t.Errorf("cut %q: an event with committed = %v was published %d times", x.cut, there, w.copies[x.e.ID])
		}
		path := w.paths[x.e.Type]
		switch x.cut {
		case wireproxy.None:
			fixture.Check(t, there, "commit returned nil and the row is lost")
			if path == core.PathHot {
				hot++
			}
		case wireproxy.BeforeServer, wireproxy.HalfSent:
			if there {
				t.Errorf("cut %s: it committed: the proxy cut too late", x.cut)
			}
		case wireproxy.Answered, wireproxy.HalfAnswered, wireproxy.Silent:
			if !there {
				t.Errorf("cut %s: it did not commit: the proxy cut too early", x.cut)
			}
		case wireproxy.Unread:
		}
		fixture.Check(t, x.cut == wireproxy.None || path != core.PathHot,
			"cut %s: published by the fast path on an unknown outcome", x.cut)
	}
	var b strings.Builder
	for _, cut := range slices.Insert(slices.Clone(wireproxy.Cuts), 0, wireproxy.None) {
		n := 0
		for _, x := range all {
			if x.cut == cut {
				n++
			}
		}
		fmt.Fprintf(&b, "\n%-22s %-22q %3d commits %3d committed", name, cut, n, committed[cut])
	}
	t.Logf("%s\n%d events of successful commits left by the fast path", b.String(), hot)
}

// context returns the context of one transaction. PostgreSQL's driver stops waiting when the
// context ends. MariaDB's driver has a timeout of its own.
func (w *unknownWorld) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.db.Dialect == core.Postgres {
		return context.WithTimeout(ctx, silence)
	}
	return context.WithCancel(ctx)
}

const insertBusiness = "INSERT INTO business_event (id, k, n) VALUES ('%s', '', 0)"

func beginPlain(t *testing.T, w *unknownWorld) commitFunc { return w.database(t, w.behind) }

func beginTracked(t *testing.T, w *unknownWorld) commitFunc {
	t.Helper()
	pool := sql.OpenDB(sqltx.Connector(fixture.Through(t, w.db, w.proxy, silence).Connector(t), w.db.Dialect))
	t.Cleanup(func() { _ = pool.Close() })
	return func(ctx context.Context, e core.Event) error {
		ctx, cancel := w.context(ctx)
		defer cancel()
		tx, err := pool.BeginTx(ctx, nil)
		fixture.NoError(t, err)
		defer tx.Rollback() // does nothing after Commit
		tracked, err := sqltx.TxOf(ctx, tx)
		fixture.NoError(t, err)
		if _, err := w.ob.Publish(ctx, tracked, e); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(ctx, fmt.Sprintf(insertBusiness, e.ID)); err != nil {
			t.Fatal(err)
		}
		return tx.Commit()
	}
}

// database uses sqltx.Begin.
func (w *unknownWorld) database(t *testing.T, pool *sql.DB) commitFunc {
	return func(ctx context.Context, e core.Event) error {
		ctx, cancel := w.context(ctx)
		defer cancel()
		tx, err := sqltx.Begin(ctx, pool, nil, w.db.Dialect)
		fixture.NoError(t, err)
		defer tx.Rollback() // does nothing after Commit
		if _, err := w.ob.Publish(ctx, tx, e); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(ctx, fmt.Sprintf(insertBusiness, e.ID)); err != nil {
			t.Fatal(err)
		}
		return tx.Commit()
	}
}

func beginPGX(t *testing.T, w *unknownWorld) commitFunc {
	t.Helper()
	pool := adapters.OpenPGX(t, fixture.Through(t, w.db, w.proxy, silence), nil)
	return func(ctx context.Context, e core.Event) error {
		ctx, cancel := w.context(ctx)
		defer cancel()
		tx, err := pool.Begin(ctx)
		fixture.NoError(t, err)
		defer tx.Rollback(ctx) // does nothing after Commit
		e.Eager = true         // the proxy knows a COMMIT that is sent alone
		if _, err := pgxoutbox.Publish(ctx, w.ob, tx, e); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf(insertBusiness, e.ID)); err != nil {
			t.Fatal(err)
		}
		return tx.Commit(ctx)
	}
}

func beginGORM(t *testing.T, w *unknownWorld) commitFunc {
	t.Helper()
	d := mysql.New(mysql.Config{Conn: w.behind})
	if w.db.Dialect == core.Postgres {
		d = postgres.New(postgres.Config{Conn: w.behind})
	}
	db, err := gorm.Open(d, &gorm.Config{Logger: logger.Discard})
	fixture.NoError(t, err)
	fixture.NoError(t, db.Use(gormoutbox.Plugin(gormoutbox.Config{Outbox: w.ob})))
	return func(ctx context.Context, e core.Event) error {
		ctx, cancel := w.context(ctx)
		defer cancel()
		return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			fixture.NoError(t, gormoutbox.Publish(tx.Statement.Context, tx, e))
			fixture.NoError(t, tx.Exec(fmt.Sprintf(insertBusiness, e.ID)).Error)
			return nil
		})
	}
}
