package managers_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// newOutbox makes an outbox without an ORM, with the settings of an adapter's.
func newOutbox(t *testing.T, db testdb.DB, cfg adapter.Config) *core.Outbox {
	t.Helper()
	return fixture.NewOutbox(t, db, core.Config{Publisher: cfg.Publisher, Observer: cfg.Observer, Relay: cfg.Relay})
}

func placed(id string) core.Event {
	return core.Event{Type: "placed", AggregateType: "order", AggregateID: id}
}

// One pool has two faces: pgx for the application, database/sql for keys and effects, whose tables
// need a *sql.DB. All work in one transaction.
func TestOnePoolTwoFaces(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		ctx := t.Context()
		config, err := pgxpool.ParseConfig(db.DSN)
		fixture.NoError(t, err)
		config.MaxConns = 4
		own, err := pgxpool.NewWithConfig(ctx, config)
		fixture.NoError(t, err)
		t.Cleanup(own.Close)
		face := stdlib.OpenDBFromPool(own)
		t.Cleanup(func() { _ = face.Close() })

		keys := fixture.NewOnceStore(t, face, sqlonce.Config{})
		effects := fixture.NewEffectStore(t, face, sqlcommand.Config{})
		var mailed []string
		worker, err := command.NewWorker(command.WorkerConfig{Store: effects, Handlers: map[string]command.Handler{
			"mail": func(_ context.Context, e command.Effect) (string, error) {
				mailed = append(mailed, e.Key)
				return "sent", nil
			},
		}})
		fixture.NoError(t, err)
		var published []string
		router := core.NewRouter()
		worker.AddTo(router)
		router.Handle("order", core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			published = append(published, d.AggregateID)
			return nil
		}))
		pool := pgxoutbox.NewPool(own)
		outbox, err := pgxoutbox.New(pool, pgxoutbox.OpenConfig{Publisher: router, AutoCreate: true})
		fixture.NoError(t, err)
		queue, err := command.NewQueue(command.QueueConfig{Store: effects, Outbox: outbox})
		fixture.NoError(t, err)
		runner, err := once.New(once.Config{Store: keys})
		fixture.NoError(t, err)
		_, err = pool.Exec(ctx, "CREATE TABLE orders (id TEXT PRIMARY KEY)")
		fixture.NoError(t, err)

		place := func(id string, fail error) (replayed bool, err error) {
			key := once.Key{Scope: "place", ID: id}
			_, replayed, err = runner.RunInTx(ctx, pgxoutbox.Transactor(pool), key, once.Fingerprint{},
				func(ctx context.Context, otx core.Tx) (once.Result, error) {
					tx, err := pgxoutbox.FromContext(ctx)
					fixture.NoError(t, err)
					_, err = tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", id)
					fixture.NoError(t, err)
					_, err = outbox.Publish(ctx, otx, placed(id))
					fixture.NoError(t, err)
					_, _, err = queue.Enqueue(ctx, otx, command.Effect{Channel: "mail", Key: "mail/" + id})
					fixture.NoError(t, err)
					return once.Result{Data: []byte(id)}, fail
				})
			return replayed, err
		}
		_, err = place("1", fixture.ErrNoStock)
		fixture.WantError(t, err, fixture.ErrNoStock)
		for _, want := range []bool{false, true} {
			replayed, err := place("1", nil)
			fixture.NoError(t, err)
			fixture.Check(t, replayed == want, "replayed %t, want %t", replayed, want)
		}
		fixture.NoError(t, outbox.Drain(ctx))
		fixture.SameSet(t, "published", published, []string{"1"})
		fixture.SameSet(t, "mailed", mailed, []string{"mail/1"})

		// A transaction of database/sql on the same pool, tracked to its commit.
		tracked := sql.OpenDB(sqltx.Connector(stdlib.GetPoolConnector(own), ""))
		t.Cleanup(func() { _ = tracked.Close() })
		tracked.SetMaxIdleConns(0)
		tx, err := tracked.BeginTx(ctx, nil)
		fixture.NoError(t, err)
		otx, err := sqltx.TxOf(ctx, tx)
		fixture.NoError(t, err)
		fixture.Check(t, otx.Tracked(), "the transaction of the second face is not tracked")
		_, err = outbox.Publish(ctx, otx, placed("2"))
		fixture.NoError(t, err)
		fixture.NoError(t, tx.Commit())
		fixture.NoError(t, outbox.Drain(ctx))
		fixture.SameSet(t, "published", published, []string{"1", "2"})
		// Neither face keeps a connection of the pool.
		fixture.Await(t, "the connections to be given back", func() bool { return own.Stat().AcquiredConns() == 0 })
		var n int
		fixture.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, "SELECT count(*) FROM orders").Scan(&n)
		}))
		fixture.Check(t, n == 1, "%d orders", n)
	})
}

// drained makes an outbox on a pool, whose Drain appends the types of events to the result.
func drained(t *testing.T, pool *sql.DB, d core.Dialect) (*core.Outbox, *[]string) {
	t.Helper()
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: d})
	fixture.NoError(t, err)
	var types []string
	ob, err := core.New(core.Config{Repository: repo, Relay: drainRelay, Publisher: core.PublisherFunc(
		func(_ context.Context, d core.Delivery) error {
			types = append(types, d.Type)
			return nil
		})})
	fixture.NoError(t, err)
	return ob, &types
}
