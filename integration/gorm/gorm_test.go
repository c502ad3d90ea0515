package gorm_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

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

// gormEnv is a database opened with GORM and the plugin.
type gormEnv struct {
	*gorm.DB
	*fixture.FastPath
	db testdb.DB
	ob *gormoutbox.Outbox

	early    *gorm.DB // made by a test before db.Use
	resolver *dbresolver.DBResolver
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
	g := &gormEnv{db: db, FastPath: fixture.NewFastPath(t, db)}
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
	fixture.NoError(t, err)
	g.DB = gdb
	t.Cleanup(func() {
		if raw, err := gdb.DB(); err == nil {
			_ = raw.Close()
		}
	})
	fixture.NoError(t, gdb.AutoMigrate(&gOrder{}, &gLine{}, &gProduct{}, &gCoupon{}))
	if o.before != nil {
		o.before(t, g)
	}
	config := o.outbox
	if config.Outbox == nil {
		g.Watch(&config)
	}
	g.ob = gormoutbox.Plugin(config)
	fixture.NoError(t, gdb.Use(g.ob))
	g.Outbox = g.ob.Outbox()
	return g
}

// wantRows compares the types of the events in the table.
func (g *gormEnv) wantRows(t *testing.T, want ...string) {
	t.Helper()
	fixture.SameSet(t, "events in the table", g.Column(t, "event_type"), want)
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
