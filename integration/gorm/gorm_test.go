package gorm_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/plugin/dbresolver"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// gormEnv is a database opened with GORM and the plugin, and a record of the plugin's publishes.
// Its relay has one worker, so that events on the fast path are published in the order of their
// commits.
type gormEnv struct {
	*gorm.DB
	db    testdb.DB
	ob    *gormoutbox.Outbox
	plain *sql.DB // for looking at the tables from outside

	early    *gorm.DB // made by a test before db.Use
	resolver *dbresolver.DBResolver

	mu        sync.Mutex
	published []string // types of the events that took the fast path
	warm      bool
	untracked int
}

type gormOptions struct {
	prepare   bool
	connector bool // the pool is opened with sqltx.Connector
	gorm      gorm.Config
	outbox    gormoutbox.Config
	before    func(t *testing.T, g *gormEnv) // before db.Use
}

// eachGORM runs fn on each database, with and without prepared statements.
func eachGORM(t *testing.T, fn func(t *testing.T, g *gormEnv), options ...func(*gormOptions)) {
	t.Helper()
	testdb.EachWay(t, []testdb.Way[bool]{{Name: "plain"}, {Name: "prepared", Of: true}},
		func(t *testing.T, db testdb.DB, prepare bool) {
			o := gormOptions{prepare: prepare}
			for _, set := range options {
				set(&o)
			}
			fn(t, openGORM(t, db, o))
		})
}

func openGORM(t *testing.T, db testdb.DB, o gormOptions) *gormEnv {
	t.Helper()
	g := &gormEnv{db: db, plain: db.Open(t)}
	var pool gorm.ConnPool
	if o.connector {
		pool = sql.OpenDB(sqltx.Connector(db.Connector(t), db.Dialect))
	}
	cfg := o.gorm
	cfg.PrepareStmt = o.prepare
	if cfg.Logger == nil {
		cfg.Logger = logger.Discard
	}
	gdb, err := gorm.Open(adapters.GORMDialector(db, pool), &cfg)
	if err != nil {
		t.Fatal(err)
	}
	g.DB = gdb
	t.Cleanup(func() {
		if raw, err := gdb.DB(); err == nil {
			_ = raw.Close()
		}
	})
	if err := gdb.AutoMigrate(&gOrder{}, &gLine{}, &gProduct{}, &gCoupon{}); err != nil {
		t.Fatal(err)
	}
	if o.before != nil {
		o.before(t, g)
	}
	config := o.outbox
	if config.Outbox == nil {
		config.AutoCreate = true
		config.Publisher = core.PublisherFunc(func(context.Context, core.Delivery) error { return nil })
		config.Observer = &core.Observer{
			Published: func(info core.PublishInfo) {
				if info.Path == core.PathHot {
					g.note(func() { g.published = append(g.published, info.Type) })
				}
			},
			Inserted:  func(_ string, hot bool) { g.note(func() { g.warm = g.warm || hot }) },
			Untracked: func(rows int) { g.note(func() { g.untracked += rows }) },
		}
		config.Workers = 1
		config.PollInterval, config.MaxPollInterval = time.Hour, time.Hour
		config.HotLease = time.Minute
	}
	g.ob = gormoutbox.Plugin(config)
	if err := gdb.Use(g.ob); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *gormEnv) note(fn func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fn()
}

// run starts the relay and returns when its fast path is open.
func (g *gormEnv) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.ob.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	fixture.Await(t, "the fast path to open", func() bool {
		g.sentinel(t)
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.warm
	})
}

// sentinel commits an event that takes the fast path.
func (g *gormEnv) sentinel(t *testing.T) {
	t.Helper()
	tx, err := sqltx.Begin(t.Context(), g.plain, nil, g.db.Dialect)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := g.ob.Outbox().Publish(t.Context(), tx, core.Event{Type: fixture.SentinelType}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// wantHot waits until everything that is on the fast path has been published and compares it.
func (g *gormEnv) wantHot(t *testing.T, want ...string) {
	t.Helper()
	seen := func() (all []string, sentinels int) {
		g.note(func() {
			for _, typ := range g.published {
				if typ == fixture.SentinelType {
					sentinels++
				} else {
					all = append(all, typ)
				}
			}
		})
		return all, sentinels
	}
	// Workers publish at the same time: the sentinel may overtake events of other keys.
	fixture.Await(t, "events on the fast path", func() bool { all, _ := seen(); return len(all) >= len(want) })
	_, before := seen()
	g.sentinel(t)
	fixture.Await(t, "the sentinel to be published", func() bool { _, n := seen(); return n > before })
	got, _ := seen()
	fixture.SameSet(t, "published on the fast path", got, want)
}

// wantRows compares the types of the events in the table.
func (g *gormEnv) wantRows(t *testing.T, want ...string) {
	t.Helper()
	fixture.SameSet(t, "events in the table", g.column(t, "event_type"), want)
}

// column returns a column of the table, except for sentinels, in the order of types.
func (g *gormEnv) column(t *testing.T, name string) []string {
	t.Helper()
	rows, err := g.plain.QueryContext(t.Context(), "SELECT "+name+" FROM outbox_event WHERE event_type <> '"+
		fixture.SentinelType+"' ORDER BY event_type")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var s sql.NullString
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		got = append(got, s.String)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return got
}

// wantCount compares the number of rows of one of the business tables.
func (g *gormEnv) wantCount(t *testing.T, table string, want int) {
	t.Helper()
	var n int
	if err := g.plain.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	if n != want {
		t.Fatalf("%d rows in %s, want %d", n, table, want)
	}
}

// gOrder records its events.
type gOrder struct {
	ID            int64
	Status        string
	Version       int
	Lines         []gLine `gorm:"foreignKey:OrderID"`
	core.Recorder `gorm:"-" json:"-"`
}

func (gOrder) TableName() string { return "g_orders" }

type gLine struct {
	ID            int64
	OrderID       int64
	SKU           string
	core.Recorder `gorm:"-" json:"-"`
}

func (gLine) TableName() string { return "g_lines" }

// gProduct is mapped by On functions.
type gProduct struct {
	ID        int64
	Name      string
	Stock     int
	DeletedAt gorm.DeletedAt
}

func (gProduct) TableName() string { return "g_products" }

// gCoupon has a key that the program sets.
type gCoupon struct {
	Code          string `gorm:"primaryKey;size:64"`
	Percent       int
	core.Recorder `gorm:"-" json:"-"`
}

func (gCoupon) TableName() string { return "g_coupons" }

func (gCoupon) AggregateType() string { return "coupon" }

// newOrder returns an order with one recorded event for each name.
func newOrder(names ...string) *gOrder {
	o := &gOrder{Status: "placed"}
	for _, n := range names {
		o.Record(fixture.Happened{Name: n, Of: o})
	}
	return o
}

func publishAll(tx *gorm.DB, types ...string) error {
	for _, typ := range types {
		if err := gormoutbox.Publish(tx.Statement.Context, tx, fixture.Event(typ)); err != nil {
			return err
		}
	}
	return nil
}

func mapProducts(g *gormEnv) {
	gormoutbox.On(g.ob, func(op core.Op, p *gProduct) []core.Event {
		return []core.Event{{Type: fmt.Sprintf("product.%s.%s", strings.ReplaceAll(p.Name, " ", "_"), op), Data: p}}
	})
}
