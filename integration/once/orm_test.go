package once_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The key, the ORM's writes and the event commit together, in the transaction of every ORM: with
// duplicates at once, after a failure, and in a replay.
func TestOnceInTransactionsOfORMs(t *testing.T) {
	t.Parallel()
	for name, open := range adapters.Ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adapters.EachDatabase(t, name, func(t *testing.T, db testdb.DB) {
				a := open(t, db)
				pool := db.Open(t)
				runner, err := once.New(once.Config{Store: fixture.NewOnceStore(t, pool,
					sqlonce.Config{Dialect: db.Dialect})})
				fixture.NoError(t, err)
				fixture.MustExec(t, pool, "CREATE TABLE effect (n INTEGER NOT NULL)")
				onceThroughORM(t, pool, runner, a)
			})
		})
	}
}

func onceThroughORM(t *testing.T, pool *sql.DB, runner *once.Runner, a suite.Adapter) {
	t.Helper()
	key := once.Key{Scope: "test", Tenant: "Ä? %s $1", ID: `it's "1" \`}
	fp := once.FingerprintOf([]byte("body"))
	want := once.Result{Data: []byte("\x00?$1'\xff"), ContentType: "application/octet-stream", Meta: `{"a":"?"}`}
	errWork := errors.New("the work failed")
	work := func(err error) func(context.Context, core.Tx) (once.Result, error) {
		return func(ctx context.Context, _ core.Tx) (once.Result, error) {
			return want, errors.Join(a.Exec(ctx, "INSERT INTO effect (n) VALUES (1)"),
				a.Publish(ctx, core.Event{Type: "thing.happened"}), err)
		}
	}
	if _, _, err := runner.RunInTx(t.Context(), a.Transactor, key, fp, work(errWork)); !errors.Is(err, errWork) {
		t.Fatalf("failed work: %v", err)
	}
	var fresh atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			res, replayed, err := runner.RunInTx(t.Context(), a.Transactor, key, fp, work(nil))
			if err != nil || string(res.Data) != string(want.Data) || res.ContentType != want.ContentType ||
				res.Meta != want.Meta {
				t.Errorf("%+v, %v", res, err)
			}
			if !replayed {
				fresh.Add(1)
			}
		})
	}
	wg.Wait()
	if fresh.Load() != 1 {
		t.Errorf("%d runs were fresh", fresh.Load())
	}
	if _, _, err := runner.RunInTx(t.Context(), a.Transactor, key, once.FingerprintOf([]byte("other")),
		work(nil)); !errors.Is(err, once.ErrFingerprintMismatch) {
		t.Errorf("another body: %v", err)
	}
	if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM effect"); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
	if events, err := a.Stored(t.Context()); err != nil || len(events) != 1 {
		t.Errorf("%d events, want 1: %v", len(events), err)
	}
	onceInSavepoint(t, pool, runner, a)
}

// onceInSavepoint checks that work which fails in a savepoint does not keep its key, and that the
// transaction around it goes on.
func onceInSavepoint(t *testing.T, pool *sql.DB, runner *once.Runner, a suite.Adapter) {
	t.Helper()
	key, errWork := once.Key{Scope: "test", ID: "savepoint"}, errors.New("the work failed")
	err := a.Transactor.RunInTx(t.Context(), func(ctx context.Context, _ core.Tx) error {
		_, _, err := runner.RunInTx(ctx, a.Transactor, key, once.Fingerprint{},
			func(ctx context.Context, _ core.Tx) (once.Result, error) {
				return once.Result{}, errors.Join(a.Exec(ctx, "INSERT INTO effect (n) VALUES (2)"), errWork)
			})
		fixture.Check(t, errors.Is(err, errWork), "failed work: %v", err)
		return a.Exec(ctx, "INSERT INTO effect (n) VALUES (3)")
	})
	fixture.NoError(t, err)
	if n := fixture.Count(t, pool, "SELECT SUM(n) FROM effect"); n != 1+3 {
		t.Errorf("the effects are %d", n)
	}
	if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM idempotency_key"); n != 1 {
		t.Errorf("%d keys, want 1", n)
	}
}
