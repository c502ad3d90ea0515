package gorm_test

import (
	"runtime"
	"testing"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// gBadKey is a key whose conversion to a text panics.
type gBadKey int64

func (gBadKey) MarshalText() ([]byte, error) { panic("reason") }

type gBad struct {
	ID   gBadKey `gorm:"primaryKey;autoIncrement:false"`
	Name string
}

func (gBad) TableName() string { return "g_bad" }

// GORM begins a transaction for a statement outside of one, and does not end that transaction after
// a panic. The plugin rolls it back if the panic comes from a function that the plugin has called.
func TestGORMPanicRollsBackTheTransactionOfItsStatement(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		pool, err := g.DB.DB()
		fixture.NoError(t, err)
		fixture.NoError(t, g.AutoMigrate(&gBad{}))
		do := func() { panic("reason") }
		gormoutbox.On(g.ob, func(core.Op, *gProduct) []core.Event { do(); return nil })
		gormoutbox.On(g.ob, func(core.Op, *gLine) []core.Event { do(); return nil })
		gormoutbox.On(g.ob, func(core.Op, *gBad) []core.Event { return nil })
		for name, statement := range map[string]func() error{
			"one":            func() error { return g.Create(&gProduct{Name: "a"}).Error },
			"a batch":        func() error { return g.Create([]*gProduct{{Name: "a"}, {Name: "b"}}).Error },
			"an association": func() error { return g.Create(&gOrder{Lines: []gLine{{SKU: "a"}}}).Error },
			"the key":        func() error { return g.Create(&gBad{ID: 1}).Error },
		} {
			for _, exits := range []bool{false, true} {
				do = func() { panic("reason") }
				if exits {
					do = runtime.Goexit
				}
				ended := make(chan any, 1)
				go func() {
					defer func() { ended <- recover() }()
					err := statement()
					t.Errorf("%s: the statement returned %v instead of the panic", name, err)
				}()
				if r := <-ended; r != "reason" && (!exits || r != nil) {
					t.Errorf("%s: recovered %v", name, r)
				}
				if n := pool.Stats().InUse; n > 0 {
					t.Fatalf("%s, exits %v: %d connections are in use", name, exits, n)
				}
			}
		}
		for _, table := range []string{"g_products", "g_orders", "g_lines", "g_bad"} {
			g.WantCount(t, table, 0)
		}
		g.wantRows(t)
		do = func() {}
		fixture.NoError(t, g.Create(&gProduct{Name: "after"}).Error)
	})
}

// gFragile panics in its hooks.
type gFragile struct {
	ID            int64
	Name          string `gorm:"size:16"`
	core.Recorder `gorm:"-" json:"-"`
}

func (gFragile) TableName() string { return "g_fragile" }

func (f *gFragile) BeforeSave(*gorm.DB) error { return f.panics("before") }
func (f *gFragile) AfterSave(*gorm.DB) error  { return f.panics("after") }

func (f *gFragile) panics(where string) error {
	if f.Name == where {
		panic(where)
	}
	return nil
}

// A panic leaves no transaction open that nobody can end, whoever has begun it for the statement.
func TestGORMPanicsLeaveNoConnection(t *testing.T) {
	t.Parallel()
	for name, skip := range map[string]bool{"GORM begins": false, "the plugin begins": true} {
		t.Run(name, func(t *testing.T) {
			eachGORM(t, func(t *testing.T, g *gormEnv) {
				fixture.NoError(t, g.AutoMigrate(&gFragile{}))
				gormoutbox.On(g.ob, func(core.Op, *gFragile) []core.Event { return nil })
				gormoutbox.On(g.ob, func(_ core.Op, f *gFragile) []core.Event {
					_ = f.panics("On")
					return nil
				})
				pool, err := g.DB.DB()
				fixture.NoError(t, err)
				for _, where := range []string{"before", "On", "after"} {
					batch := []*gFragile{{Name: "first"}, {Name: where}, {Name: "last"}}
					batch[0].Record(fixture.Happened{Name: "recorded"})
					for what, create := range map[string]func() error{
						"alone": func() error { return g.Create(&batch).Error },
						"in Transaction": func() error {
							return g.Transaction(func(tx *gorm.DB) error { return tx.Create(&batch).Error })
						},
					} {
						func() {
							defer func() { fixture.Check(t, recover() == where, "%s, %s: no panic", where, what) }()
							_ = create()
						}()
						fixture.Check(t, pool.Stats().InUse == 0, "%s, %s: a connection is in use", where, what)
						fixture.Check(t, len(batch[0].Recorded()) == 1, "%s, %s: the event is gone", where, what)
						g.WantCount(t, "g_fragile", 0)
						for _, f := range batch {
							f.ID = 0
						}
					}
				}
				g.wantRows(t)
			}, func(o *gormOptions) {
				o.gorm.SkipDefaultTransaction = skip
				o.outbox.Wake.Disable = true // a wake-up has a connection of its own
			})
		})
	}
}
