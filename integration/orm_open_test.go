package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"entgo.io/ent"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

func driverOf(db testdb.DB) (name string, dialect schema.Dialect) {
	switch db.Dialect {
	case core.Postgres:
		return "pgx", pgdialect.New()
	case core.MySQL:
		return "mysql", mysqldialect.New()
	default:
		return "sqlite", sqlitedialect.New()
	}
}

// One call from a driver's name, or its connector, and a DSN to a *bun.DB that captures, and an outbox that publishes what commits.
func TestBunOpen(t *testing.T) {
	for _, by := range []string{"name", "connector"} {
		t.Run(by, func(t *testing.T) {
			testdb.Each(t, func(t *testing.T, database testdb.DB) {
				published := &outboxtest.Publisher{}
				cfg := bunoutbox.Config{Publisher: published, AutoCreate: true, RejectUntracked: true}
				name, dialect := driverOf(database)
				var db *bun.DB
				var ob *bunoutbox.Outbox
				var err error
				if by == "name" {
					db, ob, err = bunoutbox.Open(t.Context(), name, database.DSN, dialect, cfg)
				} else {
					db, ob, err = bunoutbox.OpenConnector(t.Context(), database.Connector(t), dialect, cfg)
				}
				noError(t, err)
				defer db.Close()
				_, err = db.NewCreateTable().Model((*bOrder)(nil)).Exec(t.Context())
				noError(t, err)
				kept := newBOrder("kept")
				for _, o := range []*bOrder{newBOrder("lost"), kept} {
					tx, err := db.BeginTx(t.Context(), nil)
					noError(t, err)
					_, err = tx.NewInsert().Model(o).Exec(t.Context())
					noError(t, err)
					if o == kept {
						noError(t, tx.Commit())
					} else {
						noError(t, tx.Rollback())
					}
				}
				noError(t, ob.Drain(t.Context()))
				got := published.Accepted()
				if len(got) != 1 || got[0].Type != "kept" || got[0].AggregateID != fmt.Sprint(kept.ID) {
					t.Fatalf("published: %v", got)
				}
			})
		})
	}
}

// The same for Ent.
func TestEntOpen(t *testing.T) {
	for _, by := range []string{"name", "connector"} {
		t.Run(by, func(t *testing.T) {
			testdb.Each(t, func(t *testing.T, database testdb.DB) {
				if database.Dialect == core.SQLite {
					database.DSN += "&_pragma=foreign_keys(1)"
				}
				published := &outboxtest.Publisher{}
				cfg := entoutbox.Config{Publisher: published, AutoCreate: true}
				name, _ := driverOf(database)
				drv, ob, err := entoutbox.Open(t.Context(), name, database.DSN, cfg)
				if by == "connector" {
					noError(t, err)
					noError(t, drv.Close())
					drv, ob, err = entoutbox.OpenConnector(t.Context(), database.Connector(t), cfg)
				}
				noError(t, err)
				client := entclient.NewClient(entclient.Driver(drv))
				defer client.Close()
				client.Use(ob.Hook(onOrders()))
				migrateEnt.Lock()
				err = client.Schema.Create(t.Context())
				migrateEnt.Unlock()
				noError(t, err)
				for _, name := range []string{"lost", "kept"} {
					tx, err := client.Tx(t.Context())
					noError(t, err)
					noError(t, tx.Order.Create().SetName(name).Exec(t.Context()))
					if name == "kept" {
						noError(t, tx.Commit())
					} else {
						noError(t, tx.Rollback())
					}
				}
				noError(t, ob.Drain(t.Context()))
				got := published.Accepted()
				if len(got) != 1 || got[0].Type != "create.kept" {
					t.Fatalf("published: %v", got)
				}
			})
		})
	}
}

// What cannot be opened is an error, at once, and so is a wrong configuration.
func TestORMOpenRefuses(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	dsn := testdb.SQLite(t).DSN
	shared := newOutbox(t, testdb.SQLite(t), core.Config{})
	for name, open := range map[string]func() (any, error){
		"Bun, no driver": func() (any, error) {
			db, _, err := bunoutbox.Open(t.Context(), "nobody", dsn, sqlitedialect.New(), bunoutbox.Config{})
			return db, nilled(db == nil, err)
		},
		"Bun, no dialect": func() (any, error) {
			db, _, err := bunoutbox.Open(t.Context(), "sqlite", dsn, nil, bunoutbox.Config{})
			return db, nilled(db == nil, err)
		},
		"Bun, no connector": func() (any, error) {
			db, _, err := bunoutbox.OpenConnector(t.Context(), nil, sqlitedialect.New(), bunoutbox.Config{})
			return db, nilled(db == nil, err)
		},
		"Bun, no database": func() (any, error) {
			db, _, err := bunoutbox.Open(ended, "mysql", "nobody@tcp(127.0.0.1:1)/x", mysqldialect.New(), bunoutbox.Config{})
			return db, nilled(db == nil, err)
		},
		"Bun, configuration": func() (any, error) {
			db, _, err := bunoutbox.Open(t.Context(), "sqlite", dsn, sqlitedialect.New(), bunoutbox.Config{Outbox: shared, AutoCreate: true})
			return db, nilled(db == nil, err)
		},
		"Ent, no driver": func() (any, error) {
			drv, _, err := entoutbox.Open(t.Context(), "nobody", dsn, entoutbox.Config{})
			return drv, nilled(drv == nil, err)
		},
		"Ent, no connector": func() (any, error) {
			drv, _, err := entoutbox.OpenConnector(t.Context(), nil, entoutbox.Config{})
			return drv, nilled(drv == nil, err)
		},
		"Ent, no database": func() (any, error) {
			drv, _, err := entoutbox.Open(ended, "mysql", "nobody@tcp(127.0.0.1:1)/x", entoutbox.Config{AutoCreate: true})
			return drv, nilled(drv == nil, err)
		},
		"Ent, configuration": func() (any, error) {
			drv, _, err := entoutbox.Open(t.Context(), "sqlite", dsn, entoutbox.Config{MaxResolvedRows: -1})
			return drv, nilled(drv == nil, err)
		},
	} {
		if _, err := open(); err == nil {
			t.Errorf("%s: no error, or something besides one", name)
		}
	}
}

// nilled lets err pass only when nothing was returned besides.
func nilled(nothing bool, err error) error {
	if nothing {
		return err
	}
	return nil
}

// From a DSN to the first event, with Bun.
func Example_bunOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outbox")
	must(err)
	defer os.RemoveAll(dir)
	dsn := "file:" + filepath.Join(dir, "example.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate"
	db, ob, err := bunoutbox.Open(ctx, "sqlite", dsn, sqlitedialect.New(), bunoutbox.Config{
		AutoCreate: true,
		Publisher: bunoutbox.PublisherFunc(func(_ context.Context, d bunoutbox.Delivery) error {
			fmt.Printf("%s of order %s: %s\n", d.Type, d.AggregateID, d.Payload)
			return nil
		}),
	})
	must(err)
	defer db.Close()
	_, err = db.NewCreateTable().Model((*exampleBunOrder)(nil)).Exec(ctx)
	must(err)
	must(db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		order := &exampleBunOrder{}
		order.place()
		_, err := tx.NewInsert().Model(order).Exec(ctx)
		return err
	}))
	must(ob.Drain(ctx)) // a program runs ob.Run(ctx) beside
	// Output:
	// order.placed of order 1: {"Order":{"ID":1,"Status":"placed"}}
}

// From a DSN to the first event, with Ent.
func Example_entOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outbox")
	must(err)
	defer os.RemoveAll(dir)
	dsn := "file:" + filepath.Join(dir, "example.db") + "?_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)&_txlock=immediate"
	drv, ob, err := entoutbox.Open(ctx, "sqlite", dsn, entoutbox.Config{Publisher: printed, AutoCreate: true})
	must(err)
	client := entclient.NewClient(entclient.Driver(drv))
	defer client.Close()
	client.Use(ob.Hook(entoutbox.On(func(ctx context.Context, m *entclient.OrderMutation, _ ent.Value) ([]entoutbox.Event, error) {
		name, _ := m.Name()
		return []entoutbox.Event{{Type: "order." + entoutbox.OpOf(ctx).String(), Data: name}}, nil
	})))
	migrateEnt.Lock()
	err = client.Schema.Create(ctx)
	migrateEnt.Unlock()
	must(err)
	must(entoutbox.WithTx(ctx, client.Tx, func(ctx context.Context, tx *entclient.Tx) error {
		return tx.Order.Create().SetName("books").Exec(ctx)
	}))
	must(ob.Drain(ctx)) // a program runs ob.Run(ctx) beside
	// Output:
	// published order.create 1 "books"
}
