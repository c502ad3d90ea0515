package bun_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
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

// One call takes a driver's name, or its connector, and a DSN. It returns a *bun.DB that captures
// events, and an outbox that publishes committed events.
func TestBunOpen(t *testing.T) {
	t.Parallel()
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
				fixture.NoError(t, err)
				defer db.Close()
				_, err = db.NewCreateTable().Model((*bOrder)(nil)).Exec(t.Context())
				fixture.NoError(t, err)
				kept := newBOrder("kept")
				for _, o := range []*bOrder{newBOrder("lost"), kept} {
					tx, err := db.BeginTx(t.Context(), nil)
					fixture.NoError(t, err)
					_, err = tx.NewInsert().Model(o).Exec(t.Context())
					fixture.NoError(t, err)
					if o == kept {
						fixture.NoError(t, tx.Commit())
					} else {
						fixture.NoError(t, tx.Rollback())
					}
				}
				fixture.NoError(t, ob.Drain(t.Context()))
				got := published.Accepted()
				fixture.Must(t, len(got) == 1 && got[0].Type == "kept" && got[0].AggregateID == fmt.Sprint(kept.ID),
					"published: %v", got)
			})
		})
	}
}

// A database that cannot be opened is an error at once, and so is a wrong configuration.
func TestBunOpenRefuses(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	dsn := testdb.SQLite(t).DSN
	shared := fixture.NewOutbox(t, testdb.SQLite(t), core.Config{})
	for name, open := range map[string]func() (any, error){
		"no driver": func() (any, error) {
			db, _, err := bunoutbox.Open(t.Context(), "nobody", dsn, sqlitedialect.New(), bunoutbox.Config{})
			return db, nilled(db == nil, err)
		},
		"no dialect": func() (any, error) {
			db, _, err := bunoutbox.Open(t.Context(), "sqlite", dsn, nil, bunoutbox.Config{})
			return db, nilled(db == nil, err)
		},
		"no connector": func() (any, error) {
			db, _, err := bunoutbox.OpenConnector(t.Context(), nil, sqlitedialect.New(), bunoutbox.Config{})
			return db, nilled(db == nil, err)
		},
		"no database": func() (any, error) {
			db, _, err := bunoutbox.Open(ended, "mysql", "nobody@tcp(127.0.0.1:1)/x", mysqldialect.New(),
				bunoutbox.Config{})
			return db, nilled(db == nil, err)
		},
		"configuration": func() (any, error) {
			db, _, err := bunoutbox.Open(t.Context(), "sqlite", dsn, sqlitedialect.New(),
				bunoutbox.Config{Outbox: shared, AutoCreate: true})
			return db, nilled(db == nil, err)
		},
	} {
		if _, err := open(); err == nil {
			t.Errorf("%s: no error, or something besides one", name)
		}
	}
}

// nilled returns err if the call returned nothing else beside it, and nil otherwise.
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
	mustBun(err)
	defer os.RemoveAll(dir)
	dsn := "file:" + filepath.Join(dir, "example.db") +
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate"
	db, ob, err := bunoutbox.Open(ctx, "sqlite", dsn, sqlitedialect.New(), bunoutbox.Config{
		AutoCreate: true,
		Publisher: core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			fmt.Printf("%s of order %s: %s\n", d.Type, d.AggregateID, d.Payload)
			return nil
		}),
	})
	mustBun(err)
	defer db.Close()
	_, err = db.NewCreateTable().Model((*exampleBunOrder)(nil)).Exec(ctx)
	mustBun(err)
	mustBun(db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		order := &exampleBunOrder{}
		order.place()
		_, err := tx.NewInsert().Model(order).Exec(ctx)
		return err
	}))
	mustBun(ob.Drain(ctx)) // a program runs ob.Run(ctx) beside
	// Output:
	// order.placed of order 1: {"Order":{"ID":1,"Status":"placed"}}
}

func mustBun(err error) {
	if err != nil {
		panic(err)
	}
}
