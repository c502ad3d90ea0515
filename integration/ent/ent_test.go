package ent_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"entgo.io/ent"
	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	_ "github.com/ormoutbox/ormoutbox/integration/internal/entclient/runtime" // the hooks and policies of the schema
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// entEnv is a database opened with Ent and an outbox, and a record of the publishes on the fast
// path.
type entEnv struct {
	*entclient.Client
	db    testdb.DB
	drv   dialect.Driver
	ob    *entoutbox.Outbox
	plain *sql.DB // for looking at the tables from outside

	mu  sync.Mutex
	hot []string // types of the events that took the fast path
}

// eachEnt runs fn on each database.
func eachEnt(t *testing.T, fn func(t *testing.T, e *entEnv), options ...func(*entoutbox.Config)) {
	t.Helper()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		fn(t, openEnt(t, db, options...))
	})
}

func openEnt(t *testing.T, db testdb.DB, options ...func(*entoutbox.Config)) *entEnv {
	t.Helper()
	if db.Dialect == core.SQLite {
		db.DSN += "&_pragma=foreign_keys(1)" // Ent requires it
	}
	e := &entEnv{db: db, plain: db.Open(t), drv: entsql.OpenDB(adapters.EntDialect(db), db.Open(t))}
	cfg := entoutbox.Config{
		AutoCreate: true,
		Publisher:  core.PublisherFunc(func(context.Context, core.Delivery) error { return nil }),
		Observer: &core.Observer{Published: func(info core.PublishInfo) {
			if info.Path == core.PathHot {
				e.mu.Lock()
				defer e.mu.Unlock()
				e.hot = append(e.hot, info.Type)
			}
		}},
		PollInterval: time.Hour, MaxPollInterval: time.Hour, HotLease: time.Minute,
	}
	for _, set := range options {
		set(&cfg)
	}
	var err error
	e.ob, err = entoutbox.New(e.drv, cfg)
	fixture.NoError(t, err)
	e.Client = entclient.NewClient(entclient.Driver(e.ob.Driver()))
	migrateEnt.Lock()
	defer migrateEnt.Unlock()
	fixture.NoError(t, e.Schema.Create(t.Context()))
	return e
}

// migrateEnt is held during Ent's migration, which completes the generated tables. These are
// global.
var migrateEnt sync.Mutex

// run starts the relay and returns when its fast path is open.
func (e *entEnv) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.ob.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	e.sentinel(t)
}

// sentinel commits events until one takes the fast path. All earlier events of the fast path have
// arrived by then.
func (e *entEnv) sentinel(t *testing.T) {
	t.Helper()
	count := func() (n int) {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, typ := range e.hot {
			if typ == fixture.SentinelType {
				n++
			}
		}
		return n
	}
	before := count()
	fixture.Await(t, "a sentinel on the fast path", func() bool {
		fixture.NoError(t, entoutbox.WithTx(t.Context(), e.Tx, func(ctx context.Context, tx *entclient.Tx) error {
			return e.ob.Publish(ctx, tx, core.Event{Type: fixture.SentinelType})
		}))
		return count() > before
	})
}

// wantHot compares the events that were published on the fast path.
func (e *entEnv) wantHot(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	look := func() []string {
		e.mu.Lock()
		defer e.mu.Unlock()
		got = slices.DeleteFunc(slices.Clone(e.hot), func(typ string) bool { return typ == fixture.SentinelType })
		return got
	}
	if len(want) > 0 {
		fixture.Await(t, "events on the fast path", func() bool { return len(look()) >= len(want) })
	}
	e.sentinel(t)
	fixture.SameSet(t, "published on the fast path", look(), want)
}

// wantRows compares events in the table, each as "type aggregate_id", in the order of their
// insertion.
func (e *entEnv) wantRows(t *testing.T, want ...string) {
	t.Helper()
	rows, err := e.plain.QueryContext(t.Context(), "SELECT event_type, COALESCE(aggregate_id, '-') FROM "+
		"outbox_event WHERE event_type <> '"+fixture.SentinelType+"' ORDER BY event_id")
	fixture.NoError(t, err)
	defer rows.Close()
	var got []string
	for rows.Next() {
		var typ, id string
		fixture.NoError(t, rows.Scan(&typ, &id))
		got = append(got, typ+" "+id)
	}
	fixture.NoError(t, rows.Err())
	if !slices.Equal(got, want) {
		t.Fatalf("events in the table are %q, want %q", got, want)
	}
}

// wantCount compares the number of rows of one of the business tables.
func (e *entEnv) wantCount(t *testing.T, table string, want int) {
	t.Helper()
	var n int
	fixture.NoError(t, e.plain.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n))
	if n != want {
		t.Fatalf("%d rows in %s, want %d", n, table, want)
	}
}

// inTx runs fn in a transaction that the client begins, without WithTx.
func (e *entEnv) inTx(t *testing.T, fn func(tx *entclient.Tx) error) error {
	t.Helper()
	tx, err := e.Tx(t.Context())
	fixture.NoError(t, err)
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// onAny reports every mutation as "Type.op", and counts.
func onAny(calls *int) entoutbox.Mapper {
	return entoutbox.OnMutation(func(ctx context.Context, m ent.Mutation, _ ent.Value) ([]core.Event, error) {
		if calls != nil {
			*calls++
		}
		return []core.Event{{Type: m.Type() + "." + entoutbox.OpOf(ctx).String()}}, nil
	})
}
