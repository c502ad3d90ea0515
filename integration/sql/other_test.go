package sql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// migrated returns a pool of one connection to a database with the tables.
func migrated(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db := openDSN(t, dsn)
	db.SetMaxOpenConns(1)
	fixture.NewRepository(t, db, sqloutbox.Config{Dialect: core.SQLite})
	return db
}

func openDSN(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	fixture.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// outboxOn returns an outbox that has learnt nothing of its database.
func outboxOn(t *testing.T, db *sql.DB) *core.Outbox {
	t.Helper()
	repo, err := sqloutbox.New(db, sqloutbox.Config{Dialect: core.SQLite})
	fixture.NoError(t, err)
	ob, err := core.New(core.Config{Repository: repo})
	fixture.NoError(t, err)
	return ob
}

// publishIn publishes in a transaction of a pool. Publish must not wait for the pool of the outbox.
func publishIn(t *testing.T, db *sql.DB, ob *core.Outbox) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		ended <- sqltx.NewTransactor(db, core.SQLite).RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			_, err := ob.Publish(ctx, tx, core.Event{Type: "a", Data: 1})
			return err
		})
	}()
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Minute): // only if it hangs
		return errors.New("Publish waits for the pool of the outbox")
	}
}

// wantRefused publishes until the outbox has learnt its own database.
func wantRefused(t *testing.T, db *sql.DB, ob *core.Outbox) {
	t.Helper()
	fixture.Await(t, "Publish in a transaction of another database is refused", func() bool {
		return errors.Is(publishIn(t, db, ob), core.ErrOtherDatabase)
	})
}

func file(t *testing.T) string {
	t.Helper()
	return "file:" + filepath.Join(t.TempDir(), "a.db") + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"
}

// hanging is a server that does not answer. Until release is closed, its driver does not even
// notice that a context has ended.
type hanging struct {
	dials, ended atomic.Int32
	release      chan struct{}
}

func (h *hanging) Connect(ctx context.Context) (driver.Conn, error) {
	h.dials.Add(1)
	<-h.release
	<-ctx.Done()
	h.ended.Add(1)
	return nil, ctx.Err()
}

func (*hanging) Driver() driver.Driver { return &sqlite.Driver{} }

// The pool of the outbox does not answer. A transaction of another pool does not wait for it, and
// the outbox does not ask its pool again for each transaction.
func TestOtherPoolHangs(t *testing.T) {
	t.Parallel()
	h := &hanging{release: make(chan struct{})}
	letGo := sync.OnceFunc(func() { close(h.release) })
	t.Cleanup(letGo)
	own := sql.OpenDB(h)
	t.Cleanup(func() { _ = own.Close() })
	app, ob := migrated(t, file(t)), outboxOn(t, own)
	for range 5 {
		fixture.NoError(t, publishIn(t, app, ob))
	}
	letGo()
	fixture.Await(t, "the background gives up", func() bool { return h.ended.Load() == 1 })
	if err := publishIn(t, app, ob); err != nil {
		t.Error(err)
	}
	if n := h.dials.Load(); n != 1 {
		t.Errorf("the pool of the outbox was asked %d times, want once", n)
	}
}

// The outer transaction has the only connection of the outbox's pool. The inner one is of another
// pool on the same file.
func TestOtherPoolNested(t *testing.T) {
	t.Parallel()
	dsn := file(t)
	own := migrated(t, dsn)
	app, ob := openDSN(t, dsn), outboxOn(t, own)
	err := sqltx.NewTransactor(own, core.SQLite).RunInTx(t.Context(), func(context.Context, core.Tx) error {
		return publishIn(t, app, ob)
	})
	if err != nil {
		t.Error(err)
	}
}

// A transaction that locks the whole file does not make Publish wait for the pool of the outbox.
func TestOtherPoolExclusive(t *testing.T) {
	t.Parallel()
	dsn := "file:" + filepath.Join(t.TempDir(), "a.db") + "?_pragma=busy_timeout(5000)"
	_ = migrated(t, dsn).Close()
	app, ob := openDSN(t, dsn+"&_txlock=exclusive"), outboxOn(t, openDSN(t, dsn))
	for range 2 {
		if err := publishIn(t, app, ob); err != nil {
			t.Error(err)
		}
	}
}

// An outbox learns its database also if it was neither migrated nor checked nor run.
func TestOtherDatabaseIsLearnt(t *testing.T) {
	t.Parallel()
	dsn := file(t)
	ob := outboxOn(t, migrated(t, dsn))
	wantRefused(t, migrated(t, file(t)), ob)
	if err := publishIn(t, openDSN(t, dsn), ob); err != nil {
		t.Errorf("another pool on the same database: %v", err)
	}
}

// Databases in memory have no name. Those of two pools differ unless the DSN shares them.
func TestOtherDatabaseInMemory(t *testing.T) {
	t.Parallel()
	const memdb = "file:/memdb?vfs=memdb&_pragma=busy_timeout(10000)" // two pools use it at once
	for name, tc := range map[string]struct {
		own, app string
		refused  bool
	}{
		"two":             {":memory:", ":memory:", true},
		"by mode":         {"file:a?mode=memory", "file:a?mode=memory", true},
		"file and memory": {file(t), ":memory:", true},
		"shared":          {"file:shared?mode=memory&cache=shared", "file:shared?mode=memory&cache=shared", false},
		"memdb":           {memdb, memdb, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ob := outboxOn(t, migrated(t, tc.own))
			app := migrated(t, tc.app)
			for range 3 {
				if err := publishIn(t, app, ob); errors.Is(err, core.ErrOtherDatabase) != tc.refused ||
					err != nil && !tc.refused {
					t.Errorf("Publish: %v, want refused: %t", err, tc.refused)
				}
			}
		})
	}
}
