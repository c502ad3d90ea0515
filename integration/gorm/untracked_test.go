package gorm_test

import (
	"context"
	"strings"
	"testing"

	"gorm.io/gorm"
	"gorm.io/plugin/dbresolver"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// untracked are the ways into a transaction that the plugin cannot track.
var untracked = map[string]struct {
	before func(t *testing.T, g *gormEnv) // before db.Use
	run    func(t *testing.T, g *gormEnv, fn func(tx *gorm.DB) error) error
}{
	"a transaction in db.Connection": {
		nil, func(_ *testing.T, g *gormEnv, fn func(tx *gorm.DB) error) error {
			return g.Connection(func(db *gorm.DB) error { return db.Transaction(fn) })
		},
	},
	"a *sql.Tx in a statement": {nil, inForeignTx},
	"a session from before db.Use": {
		func(_ *testing.T, g *gormEnv) { g.early = g.WithContext(context.Background()) },
		func(_ *testing.T, g *gormEnv, fn func(tx *gorm.DB) error) error { return g.early.Transaction(fn) },
	},
	"a source of a dbresolver from before db.Use": {
		func(t *testing.T, g *gormEnv) {
			g.resolver = resolver(g.db)
			fixture.NoError(t, g.Use(g.resolver))
			t.Cleanup(func() { closeResolved(t, g.resolver) })
		},
		func(_ *testing.T, g *gormEnv, fn func(tx *gorm.DB) error) error {
			return g.Clauses(dbresolver.Write).Transaction(fn)
		},
	},
}

// inForeignTx runs fn in a transaction that was begun on the *sql.DB.
func inForeignTx(t *testing.T, g *gormEnv, fn func(tx *gorm.DB) error) error {
	t.Helper()
	pool, err := g.DB.DB()
	fixture.NoError(t, err)
	foreign, err := pool.BeginTx(t.Context(), nil)
	fixture.NoError(t, err)
	defer foreign.Rollback()
	s := g.Session(&gorm.Session{NewDB: true, Context: t.Context()})
	s.Statement.ConnPool = foreign
	if err := fn(s); err != nil {
		return err
	}
	return foreign.Commit()
}

// In such a transaction, a statement that causes events is refused before it is executed. Nothing
// could keep the row from committing without its events, or tell a Recorder that they were rolled
// back.
func TestGORMUntrackedStatementsAreRefused(t *testing.T) {
	t.Parallel()
	for kind, in := range untracked {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			eachGORM(t, func(t *testing.T, g *gormEnv) {
				if g.early != nil && g.PrepareStmt {
					t.Log("the session shares the statement cache, and so the pool of the plugin")
					return
				}
				fixture.NoError(t, g.AutoMigrate(&gHooked{}, &gStat{}))
				mapProducts(g)
				stored := &gProduct{ID: 1, Name: "stored"}
				fixture.NoError(t, g.Create(stored).Error)
				order := newOrder("kept")
				for name, do := range map[string]func(tx *gorm.DB) error{
					"On, create": func(tx *gorm.DB) error { return tx.Create(&gProduct{Name: "alone"}).Error },
					"On, update": func(tx *gorm.DB) error { return tx.Model(stored).Update("name", "alone").Error },
					"On, delete": func(tx *gorm.DB) error { return tx.Unscoped().Delete(stored).Error },
					"recorded":   func(tx *gorm.DB) error { return tx.Create(order).Error },
					"recorded on one of a slice": func(tx *gorm.DB) error {
						return tx.Create([]*gOrder{newOrder(), order}).Error
					},
					"recorded, without hooks": func(tx *gorm.DB) error {
						return tx.Session(&gorm.Session{SkipHooks: true}).Save(order).Error
					},
					"a Recorder and hooks": func(tx *gorm.DB) error { return tx.Create(&gHooked{}).Error },
				} {
					for what, ignore := range map[string]bool{"returned": false, "ignored": true} {
						err := in.run(t, g, func(tx *gorm.DB) error {
							err := do(tx)
							fixture.WantError(t, err, core.ErrUntracked)
							if ignore {
								return nil
							}
							return err
						})
						if !ignore {
							fixture.WantError(t, err, core.ErrUntracked)
						} else if err != nil {
							t.Errorf("%s, %s: the transaction: %v", name, what, err)
						}
					}
				}
				g.WantCount(t, "g_orders", 0)
				g.WantCount(t, "g_hooked", 0)
				g.WantCount(t, "g_products WHERE name = 'stored'", 1)
				g.WantCount(t, "g_products", 1)
				g.wantRows(t, "product.stored.create")

				// The event is still recorded. The retry in a tracked transaction stores it.
				fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error { return tx.Create(order).Error }))
				g.wantRows(t, "product.stored.create", "kept")
				if n := len(order.Recorded()); n != 0 {
					t.Errorf("%d events are still recorded", n)
				}
			}, func(o *gormOptions) { o.before = in.before })
		})
	}
}

// In such a transaction, Publish works, and so do statements without events.
func TestGORMUntrackedTransactionsWithoutCapturedEvents(t *testing.T) {
	t.Parallel()
	for kind, in := range untracked {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			eachGORM(t, func(t *testing.T, g *gormEnv) {
				fixture.NoError(t, g.AutoMigrate(&gStat{}))
				fixture.NoError(t, in.run(t, g, func(tx *gorm.DB) error {
					fixture.NoError(t, tx.Create(newOrder()).Error)                  // nothing is recorded
					fixture.NoError(t, tx.Create(&gStat{ID: 1, Name: "hook"}).Error) // a hook alone
					fixture.NoError(t, tx.Create(&gProduct{Name: "unmapped"}).Error)
					return publishAll(tx, "said")
				}))
				fixture.WantError(t, in.run(t, g, func(tx *gorm.DB) error {
					fixture.NoError(t, publishAll(tx, "ghost"))
					return fixture.ErrNoStock
				}), fixture.ErrNoStock)
				g.WantCount(t, "g_orders", 1)
				g.WantCount(t, "g_stats WHERE name = 'HOOK'", 1)
				g.WantCount(t, "g_products", 1)
				g.wantRows(t, "said")
			}, func(o *gormOptions) { o.before = in.before })
		})
	}
}

// gLate records an event on its order after the order was stored.
type gLate struct {
	ID      int64
	OrderID int64
	order   *gLateOrder
}

func (gLate) TableName() string { return "g_lates" }

func (l *gLate) AfterCreate(*gorm.DB) error {
	l.order.Record(fixture.Happened{Name: "late"})
	return nil
}

type gLateOrder struct {
	ID            int64
	Lates         []*gLate `gorm:"foreignKey:OrderID"`
	core.Recorder `gorm:"-"`
}

func (gLateOrder) TableName() string { return "g_late_orders" }

// An event that a child records on its stored parent comes too late to refuse the statement. The
// error says so, and the event stays recorded.
func TestGORMUntrackedLateEventIsAnError(t *testing.T) {
	t.Parallel()
	for kind, in := range untracked {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			eachGORM(t, func(t *testing.T, g *gormEnv) {
				if g.early != nil && g.PrepareStmt {
					t.Log("the session shares the statement cache, and so the pool of the plugin")
					return
				}
				fixture.NoError(t, g.AutoMigrate(&gLateOrder{}, &gLate{}))
				o := &gLateOrder{}
				o.Lates = []*gLate{{order: o}}
				fixture.WantError(t, in.run(t, g, func(tx *gorm.DB) error { return tx.Create(o).Error }),
					core.ErrUntracked)
				g.WantCount(t, "g_late_orders", 0)
				g.wantRows(t)
				if n := len(o.Recorded()); n != 1 {
					t.Errorf("%d events are recorded, want 1", n)
				}
			}, func(o *gormOptions) { o.before = in.before })
		})
	}
}

// On a pool of sqltx.Connector these transactions are tracked: they store the events, keep them
// recorded after a rollback, and do not commit a row whose event is missing.
func TestGORMConnectorTracksTheseTransactions(t *testing.T) {
	t.Parallel()
	for kind, in := range untracked {
		if strings.Contains(kind, "dbresolver") {
			continue // dbresolver opens its sources itself, without the Connector
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			eachGORM(t, func(t *testing.T, g *gormEnv) {
				gormoutbox.OnContext(g.ob, func(context.Context, core.Op, *gProduct) ([]core.Event, error) {
					return nil, fixture.ErrNoStock
				})
				o := newOrder("placed")
				fixture.WantError(t, in.run(t, g, func(tx *gorm.DB) error {
					fixture.NoError(t, tx.Create(o).Error)
					return fixture.ErrNoStock
				}), fixture.ErrNoStock)
				o.ID = 0
				fixture.NoError(t, in.run(t, g, func(tx *gorm.DB) error { return tx.Create(o).Error }))
				g.WantCount(t, "g_orders", 1)
				g.wantRows(t, "placed")

				fixture.WantError(t, in.run(t, g, func(tx *gorm.DB) error {
					fixture.WantError(t, tx.Create(&gProduct{Name: "alone"}).Error, fixture.ErrNoStock)
					return nil
				}), fixture.ErrNoStock)
				g.WantCount(t, "g_products", 0)
			}, func(o *gormOptions) { o.before, o.connector = in.before, true })
		})
	}
}
