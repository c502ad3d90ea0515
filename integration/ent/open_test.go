package ent_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"entgo.io/ent"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// One call takes a driver's name, or its connector, and a DSN. It returns a driver for Ent's
// client, and an outbox that publishes committed events.
func TestEntOpen(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"name", "connector"} {
		t.Run(by, func(t *testing.T) {
			testdb.Each(t, func(t *testing.T, database testdb.DB) {
				if database.Dialect == core.SQLite {
					database.DSN += "&_pragma=foreign_keys(1)"
				}
				published := &outboxtest.Publisher{}
				cfg := entoutbox.Config{Publisher: published, AutoCreate: true}
				name := map[core.Dialect]string{
					core.Postgres: "pgx", core.MySQL: "mysql",
					core.SQLite: "sqlite",
				}[database.Dialect]
				drv, ob, err := entoutbox.Open(t.Context(), name, database.DSN, cfg)
				if by == "connector" {
					fixture.NoError(t, err)
					fixture.NoError(t, drv.Close())
					drv, ob, err = entoutbox.OpenConnector(t.Context(), database.Connector(t), cfg)
				}
				fixture.NoError(t, err)
				client := entclient.NewClient(entclient.Driver(drv))
				defer client.Close()
				client.Use(ob.Hook(onOrders()))
				migrateEnt.Lock()
				err = client.Schema.Create(t.Context())
				migrateEnt.Unlock()
				fixture.NoError(t, err)
				for _, name := range []string{"lost", "kept"} {
					tx, err := client.Tx(t.Context())
					fixture.NoError(t, err)
					fixture.NoError(t, tx.Order.Create().SetName(name).Exec(t.Context()))
					if name == "kept" {
						fixture.NoError(t, tx.Commit())
					} else {
						fixture.NoError(t, tx.Rollback())
					}
				}
				fixture.NoError(t, ob.Drain(t.Context()))
				got := published.Accepted()
				fixture.Must(t, len(got) == 1 && got[0].Type == "create.kept", "published: %v", got)
			})
		})
	}
}

// A database that cannot be opened is an error at once, and so is a wrong configuration.
func TestEntOpenRefuses(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	dsn := testdb.SQLite(t).DSN
	for name, open := range map[string]func() (any, error){
		"no driver": func() (any, error) {
			drv, _, err := entoutbox.Open(t.Context(), "nobody", dsn, entoutbox.Config{})
			return drv, nothingOpen(drv == nil, err)
		},
		"no connector": func() (any, error) {
			drv, _, err := entoutbox.OpenConnector(t.Context(), nil, entoutbox.Config{})
			return drv, nothingOpen(drv == nil, err)
		},
		"no database": func() (any, error) {
			drv, _, err := entoutbox.Open(ended, "mysql", "nobody@tcp(127.0.0.1:1)/x",
				entoutbox.Config{AutoCreate: true})
			return drv, nothingOpen(drv == nil, err)
		},
		"configuration": func() (any, error) {
			drv, _, err := entoutbox.Open(t.Context(), "sqlite", dsn, entoutbox.Config{Prefix: "a b"})
			return drv, nothingOpen(drv == nil, err)
		},
	} {
		if _, err := open(); err == nil {
			t.Errorf("%s: no error, or something besides one", name)
		}
	}
}

// nothingOpen returns err if the call returned nothing else beside it, and nil otherwise.
func nothingOpen(nothing bool, err error) error {
	if nothing {
		return err
	}
	return nil
}

// From a DSN to the first event, with Ent.
func Example_entOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outbox")
	must(err)
	defer os.RemoveAll(dir)
	dsn := "file:" + filepath.Join(dir, "example.db") +
		"?_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)&_txlock=immediate"
	drv, ob, err := entoutbox.Open(ctx, "sqlite", dsn, entoutbox.Config{Publisher: printed, AutoCreate: true})
	must(err)
	client := entclient.NewClient(entclient.Driver(drv))
	defer client.Close()
	client.Use(ob.Hook(entoutbox.OnMutation(func(
		ctx context.Context, m *entclient.OrderMutation, _ ent.Value,
	) ([]core.Event, error) {
		name, _ := m.Name()
		return []core.Event{{Type: "order." + entoutbox.OpOf(ctx).String(), Data: name}}, nil
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
