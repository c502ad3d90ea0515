package pgxoutbox_test

import (
	"context"
	"database/sql"
	"net"
	"sync/atomic"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// thing is a model of Bun and of GORM, whose creation causes an event.
type thing struct {
	bun.BaseModel `bun:"table:thing" gorm:"-"`

	ID   int64 `bun:",pk,autoincrement" gorm:"primaryKey"`
	Name string
}

// TableName is for GORM.
func (thing) TableName() string { return "thing" }

func created(core.Op, *thing) []core.Event {
	return []core.Event{{Type: "thing.created", Topic: "t", Key: "k", Data: 1}}
}

// producers are ways to change a row and to publish an event with it. Each opens a client on a pool
// and returns the change.
var producers = map[string]func(t *testing.T, f *flights, pool *sql.DB) func(ctx context.Context) error{
	"a transaction": func(t *testing.T, f *flights, pool *sql.DB) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			_, _, err := f.commit(ctx, pool, "k", true, func() {})
			return err
		}
	},
	"Bun, without a transaction": func(t *testing.T, f *flights, pool *sql.DB) func(ctx context.Context) error {
		ob, err := bunoutbox.New(bun.NewDB(pool, pgdialect.New()), bunoutbox.Config{Outbox: f.ob})
		fixture.NoError(t, err)
		bunoutbox.On(ob, created)
		return func(ctx context.Context) error {
			_, err := ob.DB().NewInsert().Model(&thing{Name: "a"}).Exec(ctx)
			return err
		}
	},
	"Ent, without a transaction": func(t *testing.T, f *flights, pool *sql.DB) func(ctx context.Context) error {
		ob, err := entoutbox.New(entsql.OpenDB(dialect.Postgres, pool), entoutbox.Config{Outbox: f.ob})
		fixture.NoError(t, err)
		entoutbox.On(ob, func(_ core.Op, o *entclient.Order) []core.Event {
			return []core.Event{{Type: "order.created", Topic: "t", Key: "k", Data: 1}}
		})
		client := entclient.NewClient(entclient.Driver(ob.Driver()))
		fixture.NoError(t, client.Schema.Create(t.Context()))
		client.Use(ob.Hook())
		return func(ctx context.Context) error { return client.Order.Create().SetName(core.NewEventID()).Exec(ctx) }
	},
	"GORM, without a transaction": func(t *testing.T, f *flights, pool *sql.DB) func(ctx context.Context) error {
		db, err := gorm.Open(adapters.GORMDialector(f.db, pool), &gorm.Config{Logger: logger.Discard})
		fixture.NoError(t, err)
		plugin := gormoutbox.Plugin(gormoutbox.Config{Outbox: f.ob})
		fixture.NoError(t, db.Use(plugin))
		gormoutbox.On(plugin, created)
		return func(ctx context.Context) error { return db.WithContext(ctx).Create(&thing{Name: "a"}).Error }
	},
}

// A changed row and its event cost two round trips: BEGIN goes with the statement, and the event
// with COMMIT. That holds for a transaction, and for a statement without one that causes an event.
func TestRoundTripsOfProducers(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flights) {
		fixture.MustExec(t, f.direct, "CREATE TABLE thing (id BIGSERIAL PRIMARY KEY, name TEXT)")
		f.ob = fixture.NewOutbox(t, f.db, core.Config{Wake: core.WakePolicy{Disable: true}}) // a NOTIFY is a trip
		for name, open := range producers {
			if f.native && name != "a transaction" {
				continue
			}
			cfg, err := pgx.ParseConfig(f.db.DSN)
			fixture.NoError(t, err)
			var n atomic.Int64
			var writing atomic.Bool
			dial := cfg.DialFunc
			cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				return trips{conn, &n, &writing}, err
			}
			pool := f.connect(pgxoutbox.Config{Conn: *cfg}, 1)
			defer pool.Close()
			pool.SetMaxOpenConns(1)
			change := open(t, f, pool)
			least := int64(0) // the first changes prepare statements, and an idle connection may be pinged
			for range 5 {
				before := n.Load()
				fixture.NoError(t, change(t.Context()))
				if took := n.Load() - before; least == 0 || took < least {
					least = took
				}
			}
			f.wantEvents(5)
			fixture.MustExec(t, f.direct, "TRUNCATE outbox_event, outbox_key")
			fixture.Check(t, least == 2, "%s: %d round trips, want 2", name, least)
		}
	})
}
