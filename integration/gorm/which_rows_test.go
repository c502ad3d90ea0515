package gorm_test

import (
	"fmt"
	"testing"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
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

// With OR, the key no longer limits the rows. What GORM changes then is told.
func TestGORMOrAmongConditions(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		o, other := &gOrder{Status: "new"}, &gOrder{Status: "other"}
		fixture.NoError(t, g.Create([]*gOrder{o, other}).Error)
		gormoutbox.On(g.ob, func(op core.Op, o *gOrder) []core.Event { return []core.Event{{Type: o.Status}} })
		update := func(tx *gorm.DB, o *gOrder) *gorm.DB { // WHERE status = 'other' OR status = 'x' AND id = 1
			return tx.Model(o).Where("status = ?", "other").Or("status = ?", "x").Update("version", 9)
		}
		tx := update(g.DB, o)
		fixture.NoError(t, tx.Error)
		fixture.Check(t, tx.RowsAffected == 1, "%d rows affected, want 1", tx.RowsAffected)
		fixture.SameSet(t, "events", g.Events(t), []string{"other 2"})

		other.Record(fixture.Happened{Name: "of.its.row"})
		fixture.NoError(t, update(g.DB, other).Error)
		fixture.SameSet(t, "events", g.Events(t), []string{"other 2", "other 2", "of.its.row 2"})
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
		fixture.NoError(t, g.Model(&part{Shop: "paris"}).Update("n", 1).Error)
		fixture.NoError(t, g.Model(&part{Shop: "paris", No: 3}).Update("n", 1).Error)
		fixture.SameSet(t, "aggregate ids", g.Column(t, "aggregate_id"), []string{"paris,0", "paris,3", "paris,3"})
	})
}

// A row that was found has its event on every database, although MariaDB and MySQL do not count it
// if it had these values already.
func TestGORMUnchangedRow(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		mapProducts(g)
		p := &products(t, g, "p")[0]
		fixture.NoError(t, g.Save(p).Error)
		fixture.NoError(t, g.Model(p).Update("stock", p.Stock).Error)
		want := g.again([]string{"product.p.update", "product.p.update"}, "product.p.upsert")
		g.wantRows(t, want...)

		o := &gOrder{Status: "paid"}
		fixture.NoError(t, g.Create(o).Error)
		o.Record(fixture.Happened{Name: "paid.again"})
		res := g.Model(o).Update("status", "paid")
		fixture.NoError(t, res.Error)
		found := int64(1)
		if g.db.Dialect == core.MySQL {
			found = 0
		}
		if res.RowsAffected != found || len(o.Recorded()) != 0 {
			t.Fatalf("%d rows affected, %d events left", res.RowsAffected, len(o.Recorded()))
		}
		o.Record(fixture.Happened{Name: "saved.again"})
		fixture.NoError(t, g.Save(o).Error)
		g.wantRows(t, append(want, "paid.again", "saved.again")...)
		gone := &gOrder{ID: 99}
		gone.Record(fixture.Happened{Name: "never"})
		fixture.NoError(t, g.Model(gone).Update("status", "paid").Error)
		fixture.Must(t, len(gone.Recorded()) == 1, "an event of a row that is not there is gone")
	})
}

// A value that the database computes is not in the model. The function sees the row.
func TestGORMExpressions(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		p := &products(t, g, "p")[0]
		mapRows(g)
		plus := gorm.Expr("stock + ?", 1)
		fixture.NoError(t, g.Model(p).Update("stock", plus).Error)
		fixture.NoError(t, g.Model(p).UpdateColumns(map[string]any{"Stock": plus}).Error)
		// GORM cannot write the new stock into a model that is passed by value.
		fixture.NoError(t, g.Model(*p).Update("stock", 5).Error)
		fixture.NoError(t, g.Clauses(clause.OnConflict{
			Columns:   []clause.Column{{Name: "id"}},
			DoUpdates: clause.Assignments(map[string]any{"stock": gorm.Expr("g_products.stock + 1")}),
		}).
			Create(&gProduct{ID: p.ID, Name: "p"}).Error)
		g.wantRows(t, "p.2.update", "p.3.update", "p.5.update", "p.6.upsert")
		fixture.NoError(t, g.Exec("DELETE FROM outbox_event").Error)
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
		g.wantRows(t, "counted", "recorded", "p.7.update")
		fixture.Must(t, p.Stock == 7, "RETURNING gave the stock %d, want 7", p.Stock)
	})
}

// GORM does not see the OR in a condition of several lines, and binds it as SQL does. The rows that
// it changes are told, whatever their key.
func TestGORMConditionOfSeveralLines(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		all := products(t, g, "a", "b", "c")
		fixture.NoError(t, g.Exec("UPDATE g_products SET stock = 90 WHERE id = 3").Error)
		gormoutbox.On(g.ob, func(core.Op, *gProduct) []core.Event { return []core.Event{fixture.Event("told")} })
		told := func(what string, tx *gorm.DB, rows string) {
			t.Helper()
			fixture.NoError(t, tx.Error)
			var ids []string
			fixture.NoError(t, g.Raw("SELECT id FROM g_products WHERE "+rows+" ORDER BY id").Scan(&ids).Error)
			fixture.SameSet(t, fmt.Sprintf("rows that %q changed", what), g.Column(t, "aggregate_id"), ids)
			fixture.Check(t, tx.RowsAffected == int64(len(ids)), "%d rows affected, want %d", tx.RowsAffected, len(ids))
			fixture.NoError(t, g.Exec("DELETE FROM outbox_event").Error)
		}
		names := 0
		for _, condition := range []string{
			"stock = 90\nOR\nstock = 1", "stock = 90\tor stock = 1", "stock = 90 OR\nstock = 1",
		} {
			for _, model := range []any{&gProduct{ID: 1}, &all[0]} {
				names++ // MariaDB counts only rows that had other values
				name := fmt.Sprint("changed", names)
				told(condition, g.Model(model).Where(condition).Update("name", name), "name = '"+name+"'")
			}
		}
		told("delete", g.Where("stock = 90\nOR stock = 1").Delete(&all[1]), "deleted_at IS NOT NULL")
	})
}

// Updates with a model stores no zero values. The function sees the stored row.
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

// A row that an upsert finds by another unique key than its own is told, or nothing is committed:
// MariaDB and MySQL do not say which of several keys has found it.
func TestGORMUpsertByOneOfSeveralKeys(t *testing.T) {
	t.Parallel()
	type doc struct {
		ID string  `gorm:"primaryKey;size:64"`
		A  *string `gorm:"size:64"`
		B  string  `gorm:"size:64;not null"`
		N  int
	}
	one, two, nine := "1", "2", "9"
	number, key := map[string]any{"n": 5}, map[string]any{"a": "x"}
	for name, tc := range map[string]struct {
		indexes []string
		row     doc
		set     map[string]any
		told    string
	}{
		"both find one row":              {[]string{"a", "b"}, doc{ID: "9", A: &one, B: "1"}, number, "1"},
		"only one finds a row":           {[]string{"a", "b"}, doc{ID: "9", A: &nine, B: "1"}, number, "1"},
		"NULL finds none":                {[]string{"a", "b"}, doc{ID: "9", B: "1"}, number, "1"},
		"they find two rows":             {[]string{"a", "b"}, doc{ID: "9", A: &two, B: "1"}, number, ""},
		"in the other order":             {[]string{"b", "a"}, doc{ID: "9", A: &two, B: "1"}, number, ""},
		"the one that finds is set":      {[]string{"a", "b"}, doc{ID: "9", A: &two, B: "1"}, key, ""},
		"the only one that finds is set": {[]string{"a"}, doc{ID: "9", A: &two, B: "1"}, key, ""},
	} {
		t.Run(name, func(t *testing.T) {
			testdb.MariaDBAndMySQL(t, func(t *testing.T, db testdb.DB) {
				g := openGORM(t, db, gormOptions{})
				fixture.NoError(t, g.AutoMigrate(&doc{}))
				for _, c := range tc.indexes {
					fixture.MustExec(t, g.Plain, fmt.Sprintf("CREATE UNIQUE INDEX by_%s ON docs (%[1]s)", c))
				}
				fixture.NoError(t, g.Create(&[]doc{{ID: "1", A: &one, B: "1"}, {ID: "2", A: &two, B: "2"}}).Error)
				tell(g, func(*doc) string { return "told" })
				err := g.Clauses(clause.OnConflict{DoUpdates: clause.Assignments(tc.set)}).Create(&tc.row).Error
				if tc.told == "" {
					fixture.WantError(t, err, core.ErrNoAggregateID)
					g.WantCount(t, "docs WHERE n = 5 OR a = 'x' OR id = '9'", 0)
					return
				}
				fixture.NoError(t, err)
				g.WantCount(t, "docs WHERE n = 5 AND id = '"+tc.told+"'", 1)
				fixture.SameSet(t, "aggregate ids", g.Column(t, "aggregate_id"), []string{tc.told})
			})
		})
	}
}

// Rows of a delete that go with others of them, or that IGNORE leaves, are told as they are.
func TestGORMDeleteThatIsNotCounted(t *testing.T) {
	t.Parallel()
	type node struct {
		ID     int64 `gorm:"autoIncrement:false"`
		Parent *int64
	}
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		if db.Dialect == core.SQLite {
			db.DSN += "&_pragma=foreign_keys(1)"
		}
		g := openGORM(t, db, gormOptions{})
		fixture.MustExec(t, g.Plain, "CREATE TABLE nodes (id BIGINT PRIMARY KEY, parent BIGINT, "+
			"FOREIGN KEY (parent) REFERENCES nodes (id) ON DELETE CASCADE)"+fixture.Engine(db))
		parents := []int64{1, 2}
		fixture.NoError(t, g.Create(&[]node{{ID: 1}, {ID: 2, Parent: &parents[0]}, {ID: 3, Parent: &parents[1]}}).Error)
		tell(g, func(*node) string { return "node" })
		want := []string{"node.delete 1", "node.delete 2", "node.delete 3"}
		if db.Name == "mariadb" || db.Dialect == core.SQLite { // RETURNING has no rows that a cascade has deleted
			want = want[:1]
		}
		g.steps(t, []step{{
			"cascade", func(db *gorm.DB) error { return db.Where("id < 9").Delete(&node{}).Error },
			want,
		}})
		g.WantCount(t, "nodes", 0)
		if db.Dialect != core.MySQL {
			return
		}
		fixture.MustExec(t, g.Plain, "CREATE TABLE leaves (node BIGINT, FOREIGN KEY (node) REFERENCES nodes (id))")
		fixture.NoError(t, g.Create(&[]node{{ID: 1}, {ID: 2}}).Error)
		fixture.MustExec(t, g.Plain, "INSERT INTO leaves VALUES (1)")
		g.steps(t, []step{{"IGNORE", func(db *gorm.DB) error {
			return db.Clauses(clause.Delete{Modifier: "IGNORE"}).Where("id < 9").Delete(&node{}).Error
		}, []string{"node.delete 2"}}})
	})
}
