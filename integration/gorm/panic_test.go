package gorm_test

import (
	"runtime"
	"testing"

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
