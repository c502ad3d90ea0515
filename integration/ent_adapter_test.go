package integration

import (
	"cmp"
	"context"
	"database/sql"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/entplain"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The adapter suite over Ent: by the transaction that generated code gives, on a plain pool, on one opened with Connector and with a Debug
// driver, and without the feature sql/execquery.
func TestAdapterSuiteEnt(t *testing.T) {
	for name, way := range map[string]struct{ connector, debug, plain bool }{
		"execquery": {}, "connector": {connector: true}, "debug": {debug: true}, "without execquery": {plain: true},
	} {
		t.Run(name, func(t *testing.T) {
			testdb.Each(t, func(t *testing.T, db testdb.DB) {
				h := adapterHarness(db, func(t *testing.T, db testdb.DB, cfg core.Config) outboxtest.Adapter {
					pool := db.Open(t)
					if way.connector {
						pool = trackedPool(t, db)
					}
					var drv dialect.Driver = entsql.OpenDB(entDialect(db), pool)
					if way.debug {
						drv = dialect.Debug(drv, func(...any) {})
					}
					return entAdapter(t, db, drv, way.plain, cfg)
				})
				h.Programs = cmp.Or(h.Programs, 170)
				outboxtest.TestAdapter(t, h)
			})
		})
	}
}

func entDialect(db testdb.DB) string {
	return map[core.Dialect]string{core.Postgres: dialect.Postgres, core.MySQL: dialect.MySQL, core.SQLite: dialect.SQLite}[db.Dialect]
}

func entAdapter(t *testing.T, db testdb.DB, drv dialect.Driver, plain bool, cfg core.Config) outboxtest.Adapter {
	t.Helper()
	shared := newOutbox(t, db, cfg)
	ob, err := entoutbox.New(drv, entoutbox.Config{Outbox: shared})
	if err != nil {
		t.Fatal(err)
	}
	a := outboxtest.Adapter{Outbox: shared, Stored: storedEvents(db.Open(t)), RefuseCommit: refuseCommit(t, db)}
	if plain {
		// What runs SQL by itself has to take the transaction from the context.
		client := entplain.NewClient(entplain.Driver(ob.Driver()))
		a.Transactor = entoutbox.Transactor(client.Tx)
		a.Publish = func(ctx context.Context, events ...core.Event) error { return ob.Publish(ctx, nil, events...) }
		a.Exec = func(ctx context.Context, query string) error {
			tx, ok := core.TxFromContext(ctx)
			if !ok {
				return core.ErrNoTransaction
			}
			_, err := tx.Exec(ctx, query)
			return err
		}
		return a
	}
	client := entclient.NewClient(entclient.Driver(ob.Driver()))
	a.Transactor = entoutbox.Transactor(func(ctx context.Context) (*entclient.Tx, error) {
		return client.BeginTx(ctx, &sql.TxOptions{})
	})
	a.Nested = func(ctx context.Context, fn func(context.Context) error) error {
		return entoutbox.WithTx(ctx, client.Tx, func(ctx context.Context, _ *entclient.Tx) error { return fn(ctx) })
	}
	a.Publish = func(ctx context.Context, events ...core.Event) error {
		tx, err := entoutbox.FromContext[*entclient.Tx](ctx)
		if err != nil {
			return err
		}
		return ob.Publish(ctx, tx, events...)
	}
	a.Exec = func(ctx context.Context, query string) error {
		tx, err := entoutbox.FromContext[*entclient.Tx](ctx)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, query)
		return err
	}
	return a
}
