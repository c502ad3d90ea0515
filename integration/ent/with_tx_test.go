package ent_test

import (
	"context"
	"testing"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/entplain"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

func TestEntWithTx(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		e.RunRelay(t)
		e.Use(e.ob.Hook(onAny(nil)))
		begin := func(ctx context.Context) (*entclient.Tx, error) { return e.BeginTx(ctx, nil) }
		fixture.NoError(t, entoutbox.WithTx(t.Context(), begin, func(ctx context.Context, tx *entclient.Tx) error {
			fixture.NoError(t, tx.Order.Create().SetName("a").Exec(ctx))
			// The root client is not in the transaction, whatever the context says.
			if e.db.Dialect != core.SQLite { // which has one writer
				fixture.NoError(t, e.Order.Create().SetName("aside").Exec(ctx))
			}
			fixture.WantError(t, entoutbox.WithTx(ctx, e.Tx, func(ctx context.Context, inner *entclient.Tx) error {
				fixture.Check(t, inner == tx, "another transaction in the savepoint")
				fixture.NoError(t, inner.Item.Create().SetName("ghost").Exec(ctx))
				return fixture.ErrNoStock
			}), fixture.ErrNoStock)
			same, err := entoutbox.FromContext[*entclient.Tx](ctx)
			fixture.Check(t, err == nil && same == tx, "FromContext: %v, %v", same == tx, err)
			_, err = entoutbox.FromContext[*entplain.Tx](ctx)
			fixture.WantError(t, err, core.ErrNoTransaction)
			return e.ob.Publish(ctx, nil, fixture.Event("said"))
		}))
		fixture.WantError(t, entoutbox.WithTx(t.Context(), begin, func(ctx context.Context, tx *entclient.Tx) error {
			fixture.NoError(t, tx.Order.Create().SetName("b").Exec(ctx))
			return fixture.ErrNoStock
		}), fixture.ErrNoStock)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic ended in WithTx")
				}
			}()
			_ = entoutbox.WithTx(t.Context(), begin, func(ctx context.Context, tx *entclient.Tx) error {
				fixture.NoError(t, tx.Order.Create().SetName("c").Exec(ctx))
				panic("stop")
			})
		}()
		_, err := entoutbox.FromContext[*entclient.Tx](t.Context())
		fixture.WantError(t, err, core.ErrNoTransaction)
		if e.db.Dialect == core.SQLite {
			e.wantRows(t, "Order.create 1", "said")
			e.WantHot(t, "Order.create", "said")
			e.WantCount(t, "parents", 1)
		} else {
			e.wantRowsInAnyOrder(t, "Order.create 1", "Order.create 2", "said -")
			e.WantHot(t, "Order.create", "Order.create", "said")
			e.WantCount(t, "parents", 2)
		}
		e.WantCount(t, "capture_items", 0)
	})
}

// WithTx of one database within WithTx of another opens a transaction of its own.
func TestEntWithTxOfTwoDatabases(t *testing.T) {
	t.Parallel()
	one, two := openEnt(t, testdb.SQLite(t)), openEnt(t, testdb.SQLite(t))
	fixture.WantError(t, entoutbox.WithTx(t.Context(), one.Tx, func(ctx context.Context, tx *entclient.Tx) error {
		fixture.NoError(t, one.ob.Publish(ctx, tx, fixture.Event("rolled back")))
		fixture.NoError(t, entoutbox.WithTx(ctx, two.Tx, func(ctx context.Context, inner *entclient.Tx) error {
			return two.ob.Publish(ctx, inner, fixture.Event("committed"))
		}))
		return fixture.ErrNoStock
	}), fixture.ErrNoStock)
	one.wantRows(t)
	two.wantRows(t, "committed")
}

// If the begin function of an inner WithTx does not pass its context on, no transaction stays open.
func TestEntWithTxWhoseBeginDropsItsContext(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		if e.db.Dialect == core.SQLite {
			t.Log("a second writer would wait for the first")
			return
		}
		err := entoutbox.WithTx(t.Context(), e.Tx, func(ctx context.Context, _ *entclient.Tx) error {
			return entoutbox.WithTx(ctx,
				func(context.Context) (*entclient.Tx, error) { return e.Tx(context.Background()) },
				func(context.Context, *entclient.Tx) error { return nil })
		})
		fixture.WantError(t, err, core.ErrNotInstalled)
		if n := e.drv.(*entsql.Driver).DB().Stats().InUse; n != 0 {
			t.Errorf("%d connections are in use", n)
		}
	})
}

// If the function ignores an error, RunInTx commits only if the database still has the transaction.
// PostgreSQL has aborted it.
func TestEntTransactorAborted(t *testing.T) {
	t.Parallel()
	eachEnt(t, func(t *testing.T, e *entEnv) {
		err := entoutbox.Transactor(e.Tx).RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			_, err := e.ob.Outbox().Publish(ctx, tx, fixture.Event("x"))
			fixture.NoError(t, err)
			ent, err := entoutbox.FromContext[*entclient.Tx](ctx)
			fixture.NoError(t, err)
			_, _ = ent.ExecContext(ctx, "SELECT * FROM there_is_no_such_table")
			return nil
		})
		if e.db.Dialect == core.Postgres {
			fixture.Must(t, err != nil, "committed")
			e.wantRows(t)
		} else {
			fixture.NoError(t, err)
			e.wantRows(t, "x")
		}
		for _, nothing := range []func() error{
			func() error { return entoutbox.Transactor[*entclient.Tx](nil).RunInTx(t.Context(), nil) },
			func() error { return entoutbox.Transactor(e.Tx).RunInTx(t.Context(), nil) },
			func() error { return entoutbox.WithTx[*entclient.Tx](t.Context(), e.Tx, nil) },
		} {
			fixture.Check(t, nothing() != nil, "a nil function was accepted")
		}
	})
}
