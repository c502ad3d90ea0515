package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	engine "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// A database with the wide tables of the first migration gets the narrow ones of the second, with
// all their data. The test has a case for every statement after which a process may have died.
// Several processes then migrate at once.
func TestInboxMigratesItsFirstTables(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		files, err := sqlinbox.Migrations(sqlinbox.Config{Dialect: db.Dialect})
		fixture.NoError(t, err)
		for stop := range len(migrationStatements(files[1].Up)) + 1 {
			t.Run(fmt.Sprintf("died after %d statements", stop), func(t *testing.T) {
				db := db
				if db.Dialect == core.SQLite {
					db = testdb.SQLite(t)
				}
				w := wideInbox{T: t, db: db, pool: db.Open(t), prefix: fmt.Sprintf("s%d_", stop)}
				w.create()
				w.dieAfter(stop)
				w.migrate(stop%2 == 1)
				w.compare()
			})
		}
	})
}

// migrationStatements splits a file in which each statement ends at the end of a line.
func migrationStatements(file string) []string {
	return strings.Split(strings.TrimSuffix(file, ";\n"), ";\n")
}

// wideInbox is an inbox of the first migration.
type wideInbox struct {
	*testing.T
	db     testdb.DB
	pool   *sql.DB
	prefix string
}

func (w *wideInbox) config() sqlinbox.Config {
	return sqlinbox.Config{Dialect: w.db.Dialect, Prefix: w.prefix}
}

// wideEvent is an event of the first table. Each handler has each wideEvent once for each tenant.
type wideEvent struct {
	id               string
	status, attempts int
	old              bool // two hours old
}

var wideEvents = []wideEvent{
	{"old", 2, 1, true},
	{"p1", 2, 3, false},
	{"p'2", 2, 1, false},
	{"P1", 2, 1, false},
	{"é", 2, 1, false},
	{"failed", 3, 4, true},
	{"dead", 4, 10, true},
	{"redriven", 0, 0, false},
	{"in progress", 1, 2, false},
}

const wideProcessed, wideFailed = 5, 4

// each calls fn for each handler and tenant.
func (w *wideInbox) each(fn func(consumer, handler, tenant string)) {
	for _, consumer := range []string{"billing", "süd"} {
		for _, handler := range []string{"invoice", "Ü mail"} {
			for _, tenant := range []string{"", "acme"} {
				fn(consumer, handler, tenant)
			}
		}
	}
}

const wideHandlers = 8

func (w *wideInbox) exec(text string) {
	w.Helper()
	fixture.MustExec(w.T, w.pool, text)
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// insert returns the INSERT of an event, as the first version sends it.
func (w *wideInbox) insert(consumer, handler, tenant string, e wideEvent) string {
	now := map[core.Dialect]string{
		core.Postgres: "now()", core.MySQL: "UTC_TIMESTAMP(6)", core.SQLite: "unixepoch() * 1000000",
	}[w.db.Dialect]
	at := now
	if e.old {
		at = map[core.Dialect]string{
			core.Postgres: "now() - interval '2 hours'", core.MySQL: "UTC_TIMESTAMP(6) - INTERVAL 2 HOUR",
			core.SQLite: "(unixepoch() - 7200) * 1000000",
		}[w.db.Dialect]
	}
	processed, failed, code, text := "NULL", at, "'boom'", "'no price'"
	if e.status == 2 {
		processed, failed, code, text = at, "NULL", "NULL", "NULL"
	}
	return "INSERT INTO " + w.prefix + "inbox_event (consumer, handler, tenant_id, event_id, event_type, " +
		"event_version, aggregate_type, aggregate_id, partition_key, key_seq, source_topic, source_partition, " +
		"source_offset, status, attempts, last_error_code, last_error, received_at, updated_at, processed_at, " +
		"failed_at) VALUES (" + quoted(consumer) + ", " + quoted(handler) + ", " + quoted(tenant) + ", " +
		quoted(e.id) + ", 'order.placed', 2, 'order', '17', 'order/17', 7, 'orders', 1, 42, " +
		fmt.Sprintf("%d, %d, ", e.status, e.attempts) +
		strings.Join([]string{code, text, at, at, processed, failed}, ", ") + ")"
}

// create creates the first tables, as Migrate of the first version did, and fills them.
func (w *wideInbox) create() {
	w.Helper()
	files, err := sqlinbox.Migrations(w.config())
	fixture.NoError(w.T, err)
	for _, text := range migrationStatements(files[0].Up) {
		w.exec(text)
	}
	w.exec("CREATE TABLE " + w.prefix + "inbox_migration (version INTEGER NOT NULL PRIMARY KEY, " +
		"name VARCHAR(100) NOT NULL, applied_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)")
	w.exec("INSERT INTO " + w.prefix + "inbox_migration (version, name) VALUES (1, 'init')")
	w.each(func(consumer, handler, tenant string) {
		for _, e := range wideEvents {
			w.exec(w.insert(consumer, handler, tenant, e))
		}
	})
}

// dieAfter applies the first statements of the second migration. As soon as rows are being moved,
// the first version can no longer write rows.
func (w *wideInbox) dieAfter(stop int) {
	w.Helper()
	files, err := sqlinbox.Migrations(w.config())
	fixture.NoError(w.T, err)
	moving := false
	for _, text := range migrationStatements(files[1].Up)[:stop] {
		w.exec(text)
		moving = moving || strings.Contains(text, "INSERT")
	}
	if moving && w.db.Dialect != core.SQLite { // SQLite migrates in a transaction
		_, err := w.pool.ExecContext(w.Context(),
			w.insert("billing", "invoice", "", wideEvent{id: "late", status: 2}))
		if err == nil {
			w.Error("the first version wrote a row while rows were moved")
		}
	}
}

// migrate migrates in three processes at once, with a pool or through a Transactor.
func (w *wideInbox) migrate(transactor bool) {
	w.Helper()
	var wg sync.WaitGroup
	for range 3 {
		pool := w.db.Open(w.T)
		wg.Go(func() {
			s, err := sqlinbox.New(pool, w.config())
			if err == nil && transactor {
				s, err = sqlinbox.On(sqltx.NewTransactor(pool, w.db.Dialect), w.config())
			}
			if err == nil {
				err = s.Migrate(w.Context())
			}
			if err != nil {
				w.Error(err)
			}
		})
	}
	wg.Wait()
}

// compare asks the store for every event.
func (w *wideInbox) compare() {
	w.Helper()
	s, err := sqlinbox.New(w.pool, w.config())
	fixture.NoError(w.T, err)
	fixture.NoError(w.T, s.Check(w.Context()))
	count := func(what string, want int) {
		w.Helper()
		if n := fixture.Count(w.T, w.pool, "SELECT COUNT(*) FROM "+w.prefix+what); n != int64(want) {
			w.Errorf("%d %s, want %d", n, what, want)
		}
	}
	count("inbox_seen", wideHandlers*len(wideEvents))
	count("inbox_seen WHERE source = 'orders/1/42'", wideHandlers*len(wideEvents))
	count("inbox_seen WHERE processed_at IS NOT NULL", wideHandlers*wideProcessed)
	count("inbox_failure", wideHandlers*wideFailed)
	count("inbox_handler", 4)
	if _, err := w.pool.ExecContext(w.Context(), "SELECT 1 FROM "+w.prefix+"inbox_event"); err == nil {
		w.Error("the first table is still there")
	}
	transactor := sqltx.NewTransactor(w.pool, w.db.Dialect)
	tx := func(fn func(ctx context.Context, tx core.Tx) error) {
		w.Helper()
		err := transactor.RunInTx(w.Context(), func(ctx context.Context, tx core.Tx) error {
			return errors.Join(fn(ctx, tx), errOnce)
		})
		if !errors.Is(err, errOnce) || err.Error() != errOnce.Error() {
			w.Error(err)
		}
	}
	w.each(func(consumer, handler, tenant string) {
		event := func(id string) engine.Event {
			return engine.Event{Key: engine.Key{Consumer: consumer, Handler: handler, Tenant: tenant, EventID: id}}
		}
		for _, e := range append(wideEvents, wideEvent{id: "new"}) {
			want, attempt := engine.StateProcessed, e.attempts
			switch {
			case e.id == "dead":
				want = engine.StateDead
			case e.id == "in progress":
				want = engine.StateInProgress
			case e.status != 2:
				want, attempt = engine.StateFresh, e.attempts+1
			}
			tx(func(ctx context.Context, tx core.Tx) error {
				state, n, err := s.Begin(ctx, tx, event(e.id))
				if state != want || n != attempt {
					w.Errorf("%s of %s, %s, %q: %s, attempt %d; want %s, %d", e.id, consumer, handler, tenant, state, n,
						want, attempt)
				}
				return err
			})
			tx(func(ctx context.Context, tx core.Tx) error {
				states, err := s.BeginBatch(ctx, tx, []engine.Event{event(e.id), event("another")})
				if err == nil && (states[0] != want || states[1] != engine.StateFresh) {
					w.Errorf("%s of %s, %s, %q in a batch: %s", e.id, consumer, handler, tenant, states)
				}
				return err
			})
		}
		dead, err := s.ListDead(w.Context(),
			engine.DeadQuery{Consumer: consumer, Handler: handler, EventID: "dead", Tenant: tenant})
		fixture.NoError(w.T, err)
		if len(dead) != 1 {
			w.Fatalf("dead: %+v", dead)
		}
		d := dead[0]
		age := time.Since(d.ReceivedAt)
		if age < 119*time.Minute || age > 3*time.Hour || !d.FailedAt.Equal(d.ReceivedAt) {
			w.Errorf("the dead event was received at %s and failed at %s", d.ReceivedAt, d.FailedAt)
		}
		d.ReceivedAt, d.FailedAt = time.Time{}, time.Time{}
		want := engine.DeadEvent{Event: event("dead"), Attempts: 10, Code: "boom", Text: "no price"}
		want.Type, want.Version, want.AggregateType, want.AggregateID = "order.placed", 2, "order", "17"
		want.PartitionKey, want.KeySeq, want.Topic = "order/17", 7, "orders"
		want.Partition, want.Offset, want.Located = 1, 42, true
		if d != want {
			w.Errorf("the dead event is %+v, want %+v", d, want)
		}
		// Attempts and the time of the first failure count on from the old values.
		state, attempts, err := s.Fail(w.Context(),
			engine.Failure{Event: event("failed"), MaxAttempts: 5, MinAge: time.Hour})
		if state != engine.StateDead || attempts != 5 || err != nil {
			w.Errorf("the next failure: %s after %d attempts, %v", state, attempts, err)
		}
	})
	for _, consumer := range []string{"billing", "süd"} {
		if n, err := s.Cleanup(w.Context(), consumer, time.Hour, 100); n != wideHandlers/2 || err != nil {
			w.Errorf("%d events of %s were deleted, want %d; %v", n, consumer, wideHandlers/2, err)
		}
	}
}
