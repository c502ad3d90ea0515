package gorm_test

import (
	"fmt"
	"testing"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// products stores products with these names, without events, and returns them.
func products(t *testing.T, g *gormEnv, names ...string) []gProduct {
	t.Helper()
	all := make([]gProduct, len(names))
	for i, n := range names {
		fixture.NoError(t, g.Plain.PingContext(t.Context()))
		all[i] = gProduct{ID: int64(i + 1), Name: n, Stock: 1}
		if _, err := g.Plain.ExecContext(t.Context(),
			fmt.Sprintf("INSERT INTO g_products (name, stock) VALUES ('%s', 1)", n)); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func (g *gormEnv) names(t *testing.T) (names []string) {
	t.Helper()
	fixture.NoError(t, g.Unscoped().Model(&gProduct{}).Order("id").Pluck("name", &names).Error)
	return names
}

// With DO NOTHING it is not known which models of a batch were stored. If they have recorded
// events, the statement is refused, and the events stay recorded.
func TestGORMBatchDoNothingWithRecordedEvents(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		batch := []*gOrder{newOrder("a"), newOrder("b")}
		err := g.Clauses(clause.OnConflict{DoNothing: true}).Create(&batch).Error
		if g.db.Dialect == core.MySQL { // the only unique key is generated, so every row is new
			fixture.NoError(t, err)
			g.wantRows(t, "a", "b")
			return
		}
		fixture.WantError(t, err, core.ErrNoAggregateID)
		g.WantCount(t, "g_orders", 0)
		fixture.Must(t, len(batch[0].Recorded()) == 1, "the event is gone")
		g.wantRows(t)
	})
}

// With OR, the key no longer limits the rows.
func TestGORMOrAmongConditions(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		all := products(t, g, "a", "b")
		mapProducts(g)
		fixture.WantError(t, g.Model(&all[0]).Where("name = ?", "x").Or("name = ?", "b").Update("stock", 9).Error,
			core.ErrNoAggregateID)
		g.wantRows(t)
	})
}

// In an update, GORM leaves a zero column of the key out of the conditions.
func TestGORMUpdateWithPartOfAKey(t *testing.T) {
	t.Parallel()
	type part struct {
		Shop string `gorm:"primaryKey;size:64"`
		No   int    `gorm:"primaryKey;autoIncrement:false"`
		N    int
	}
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.AutoMigrate(&part{}))
		fixture.NoError(t, g.Create(&[]part{{Shop: "paris"}, {Shop: "paris", No: 3}}).Error)
		gormoutbox.On(g.ob, func(core.Op, *part) []core.Event { return []core.Event{fixture.Event("changed")} })
		fixture.WantError(t, g.Model(&part{Shop: "paris"}).Update("n", 1).Error, core.ErrNoAggregateID)
		fixture.NoError(t, g.Model(&part{Shop: "paris", No: 3}).Update("n", 1).Error)
		fixture.SameSet(t, "aggregate ids", g.Column(t, "aggregate_id"), []string{"paris,3"})
	})
}

// MariaDB and MySQL do not count a row that had these values already. The update of one model by
// its key has its event all the same.
func TestGORMUnchangedRow(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		mapProducts(g)
		p := &products(t, g, "p")[0]
		fixture.NoError(t, g.Save(p).Error)
		fixture.NoError(t, g.Model(p).Update("stock", p.Stock).Error)
		g.wantRows(t, "product.p.update", "product.p.update")

		o := &gOrder{Status: "paid"}
		fixture.NoError(t, g.Create(o).Error)
		o.Record(fixture.Happened{Name: "paid.again"})
		res := g.Model(o).Update("status", "paid")
		fixture.NoError(t, res.Error)
		if res.RowsAffected != 1 || len(o.Recorded()) != 0 {
			t.Fatalf("%d rows affected, %d events left", res.RowsAffected, len(o.Recorded()))
		}
		o.Record(fixture.Happened{Name: "saved.again"})
		fixture.NoError(t, g.Save(o).Error)
		g.wantRows(t, "product.p.update", "product.p.update", "paid.again", "saved.again")
		gone := &gOrder{ID: 99}
		gone.Record(fixture.Happened{Name: "never"})
		fixture.NoError(t, g.Model(gone).Update("status", "paid").Error)
		fixture.Must(t, len(gone.Recorded()) == 1, "an event of a row that is not there is gone")
	})
}

// A value that the database computes is not in the model.
func TestGORMExpressions(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		p := &products(t, g, "p")[0]
		mapProducts(g)
		plus := gorm.Expr("stock + ?", 1)
		fixture.WantError(t, g.Model(p).Update("stock", plus).Error, core.ErrNoAggregateID)
		fixture.WantError(t, g.Model(p).UpdateColumns(map[string]any{"Stock": plus}).Error, core.ErrNoAggregateID)
		// GORM cannot write the new stock into a model that is passed by value.
		fixture.WantError(t, g.Model(*p).Update("stock", 5).Error, core.ErrNoAggregateID)
		fixture.WantError(t, g.Clauses(clause.OnConflict{
			Columns:   []clause.Column{{Name: "id"}},
			DoUpdates: clause.Assignments(map[string]any{"stock": gorm.Expr("g_products.stock + 1")}),
		}).
			Create(&gProduct{ID: p.ID, Name: "p"}).Error, core.ErrNoAggregateID)
		g.wantRows(t)
		o := newOrder("counted")
		fixture.NoError(t, g.Create(o).Error)
		o.Record(fixture.Happened{Name: "recorded"}) // a recorded event does not depend on the row
		fixture.NoError(t, g.Model(o).Update("version", gorm.Expr("version + 1")).Error)
		g.wantRows(t, "counted", "recorded")
		if g.db.Dialect == core.MySQL {
			return
		}
		fixture.NoError(t,
			g.Model(p).Clauses(clause.Returning{Columns: []clause.Column{{Name: "stock"}}}).Update("stock", plus).Error)
		g.wantRows(t, "counted", "recorded", "product.p.update")
		g.wantStock(t, "product.p.update", 2)
	})
}

// wantStock compares the payload of the only event of a type with the row.
func (g *gormEnv) wantStock(t *testing.T, typ string, want int) {
	t.Helper()
	var payload string
	fixture.NoError(t, g.Plain.QueryRowContext(t.Context(), "SELECT payload FROM outbox_event WHERE event_type = '"+typ+
		"'").Scan(&payload))
	wantJSON(t, payload, "Stock", float64(want))
}

// A condition of several lines stays one condition. GORM's own text would change rows of other
// keys, and report only the model's.
func TestGORMConditionOfSeveralLines(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		all := products(t, g, "a", "b", "c")
		fixture.NoError(t, g.Exec("UPDATE g_products SET stock = 90 WHERE id = 3").Error)
		mapProducts(g)
		names := 0
		for _, condition := range []string{
			"stock = 90\nOR\nstock = 1", "stock = 90\tor stock = 1 -- either",
			"stock = 90 OR\nstock = 1",
		} {
			for _, model := range []any{&gProduct{ID: 1}, &all[0]} {
				names++ // MariaDB counts only rows that had other values
				tx := g.Model(model).Where(condition).Update("name", fmt.Sprint("changed", names))
				fixture.NoError(t, tx.Error)
				fixture.Check(t, tx.RowsAffected == 1, "%q changed %d rows, want 1", condition, tx.RowsAffected)
			}
		}
		fixture.NoError(t, g.Unscoped().Where("stock = 90\nOR stock = 1").Delete(&all[1]).Error)
		fixture.SameSet(t, "products", g.names(t), []string{"changed6", "c"})
		var others int64
		fixture.NoError(t, g.Table("outbox_event").Where("aggregate_id = '3'").Count(&others).Error)
		fixture.Check(t, others == 0, "%d events of a row that nobody changed", others)
	})
}

// Updates with a model stores no zero values. With ResolveRows the function sees the stored row.
func TestGORMUpdatesLeavesZerosOut(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		products(t, g, "a")
		var seen []int64
		gormoutbox.On(g.ob, func(_ core.Op, p *gProduct) []core.Event {
			seen = append(seen, int64(p.Stock))
			return []core.Event{{Type: "product", Data: p}}
		})
		fixture.NoError(t, g.Updates(&gProduct{ID: 1, Name: "b"}).Error)
		fixture.Check(t, len(seen) == 1 && seen[0] == 1, "the function saw the stock %v, want 1", seen)
	})
}
