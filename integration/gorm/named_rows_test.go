package gorm_test

import (
	"context"
	"fmt"
	"testing"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// mapRows makes an event of each row of a product. Its type has the stored values.
func mapRows(g *gormEnv) {
	gormoutbox.On(g.ob, func(op core.Op, p *gProduct) []core.Event {
		return []core.Event{{Type: fmt.Sprintf("%s.%d.%s", p.Name, p.Stock, op), Data: p}}
	})
}

// The function gets the rows of statements that do not name them.
func TestGORMStatementsThatNameNoRows(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		run  func(tx *gorm.DB) error
		want []string
		ids  []string
	}{
		"delete by id": {func(tx *gorm.DB) error {
			return tx.Delete(&gProduct{}, 2).Error
		}, []string{"b.1.delete"}, []string{"2"}},
		"delete by ids": {func(tx *gorm.DB) error {
			return tx.Unscoped().Delete(&gProduct{}, []int{1, 3}).Error
		}, []string{"a.1.delete", "c.1.delete"}, []string{"1", "3"}},
		"delete where": {func(tx *gorm.DB) error {
			return tx.Where("name > ?", "a").Delete(&gProduct{}).Error
		}, []string{"b.1.delete", "c.1.delete"}, []string{"2", "3"}},
		"update where": {func(tx *gorm.DB) error {
			return tx.Model(&gProduct{}).Where("name = ?", "c").Update("stock", 5).Error
		}, []string{"c.5.update"}, []string{"3"}},
		"update where or": {func(tx *gorm.DB) error {
			return tx.Model(&gProduct{}).Where("name = ?", "a").Or("name = ?", "c").Update("stock", 5).Error
		}, []string{"a.5.update", "c.5.update"}, []string{"1", "3"}},
		"update of what no longer matches": {func(tx *gorm.DB) error {
			return tx.Model(&gProduct{}).Where("stock = 1 AND name <> 'b'").Update("stock", 2).Error
		}, []string{"a.2.update", "c.2.update"}, []string{"1", "3"}},
		"a comment at the end": {func(tx *gorm.DB) error {
			return tx.Model(&gProduct{}).Where("name = 'c' -- the last").Update("stock", 5).Error
		}, []string{"c.5.update"}, []string{"3"}},
		"expression": {func(tx *gorm.DB) error {
			return tx.Model(&gProduct{ID: 2}).Update("stock", gorm.Expr("stock + 10")).Error
		}, []string{"b.11.update"}, []string{"2"}},
		"slice with a condition": {func(tx *gorm.DB) error {
			return tx.Model(&[]gProduct{{ID: 1}, {ID: 2}, {ID: 3}}).Where("name <> 'b'").Update("stock", 4).Error
		}, []string{"a.4.update", "c.4.update"}, []string{"1", "3"}},
		"slice with rows that stay the same": {func(tx *gorm.DB) error {
			return tx.Model(&[]gProduct{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}}).Update("stock", 1).Error
		}, []string{"a.1.update", "b.1.update"}, []string{"1", "2"}},
		"all rows": {func(tx *gorm.DB) error {
			return tx.Session(&gorm.Session{AllowGlobalUpdate: true}).Model(&gProduct{}).Update("stock", 0).Error
		}, []string{"a.0.update", "b.0.update", "c.0.update"}, []string{"1", "2", "3"}},
		"none": {func(tx *gorm.DB) error { return tx.Delete(&gProduct{}, 77).Error }, nil, nil},
		"a condition that is never true": {func(tx *gorm.DB) error { // MariaDB answers it without columns
			return nothing(tx.Unscoped().Where("id IN ?", []int{}).Delete(&gProduct{}))
		}, nil, nil},
		"a condition that is never true, with RETURNING": {func(tx *gorm.DB) error {
			return nothing(tx.Unscoped().Clauses(clause.Returning{}).Where("id IN ?", []int{}).Delete(&[]gProduct{}))
		}, nil, nil},
		"a condition that is never true, in a transaction": {func(tx *gorm.DB) error {
			return tx.Transaction(func(tx *gorm.DB) error {
				err := tx.Unscoped().Where("name = 'b'").Delete(&gProduct{}).Error
				if err != nil {
					return err
				}
				return nothing(tx.Unscoped().Where("name = ? AND id IN ?", "a", []int{}).Delete(&gProduct{}))
			})
		}, []string{"b.1.delete"}, []string{"2"}},
		"generics: update": {func(tx *gorm.DB) error {
			_, err := gorm.G[gProduct](tx).Where("name = ?", "b").Update(tx.Statement.Context, "stock", 6)
			return err
		}, []string{"b.6.update"}, []string{"2"}},
		"generics: updates": {func(tx *gorm.DB) error {
			_, err := gorm.G[gProduct](tx).Where("name = ?", "b").Updates(tx.Statement.Context, gProduct{Stock: 7})
			return err
		}, []string{"b.7.update"}, []string{"2"}},
		"generics: set": {func(tx *gorm.DB) error {
			_, err := gorm.G[gProduct](tx).Where("name = ?",
				"b").Set(clause.Assignment{
				Column: clause.Column{Name: "stock"},
				Value:  gorm.Expr("stock * 8"),
			}).Update(tx.Statement.Context)
			return err
		}, []string{"b.8.update"}, []string{"2"}},
		"generics: delete": {func(tx *gorm.DB) error {
			_, err := gorm.G[gProduct](tx).Where("name = ?", "b").Delete(tx.Statement.Context)
			return err
		}, []string{"b.1.delete"}, []string{"2"}},
		"by its key": {func(tx *gorm.DB) error {
			return tx.Model(&gProduct{ID: 1, Name: "in memory"}).Update("stock", 3).Error
		}, []string{"a.3.update"}, []string{"1"}},
	} {
		t.Run(name, func(t *testing.T) {
			eachGORM(t, func(t *testing.T, g *gormEnv) {
				products(t, g, "a", "b", "c")
				mapRows(g)
				fixture.NoError(t, tc.run(g.Session(&gorm.Session{})))
				g.wantRows(t, tc.want...)
				fixture.SameSet(t, "aggregate ids", g.Column(t, "aggregate_id"), tc.ids)
			})
		})
	}
}

type gKeyless struct {
	PersonID, AddressID int
	DeletedAt           gorm.DeletedAt
}

func (gKeyless) TableName() string { return "g_keyless" }

// What OnAll leaves out works as without it.
func TestGORMOnAllAndTablesWithoutAKey(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.AutoMigrate(&gKeyless{}))
		gormoutbox.OnAll(g.ob, func(context.Context, core.Op, any) ([]core.Event, error) { return nil, nil })
		fixture.NoError(t, g.Create(&[]gKeyless{{PersonID: 1, AddressID: 1}, {PersonID: 1, AddressID: 2}}).Error)
		for _, s := range []struct {
			name string
			run  func() *gorm.DB
		}{
			{"update", func() *gorm.DB { return g.Model(&gKeyless{}).Where("address_id = 1").Update("address_id", 3) }},
			{"soft delete", func() *gorm.DB { return g.Where("address_id = 3").Delete(&gKeyless{}) }},
			{"delete", func() *gorm.DB { return g.Unscoped().Where("address_id = 3").Delete(&gKeyless{}) }},
		} {
			tx := s.run()
			fixture.Check(t, tx.Error == nil && tx.RowsAffected == 1, "%s: %d rows, %v", s.name, tx.RowsAffected,
				tx.Error)
		}
		g.WantCount(t, "g_keyless", 1)
	})
}

type gOutboxEvent struct {
	ID        []byte `gorm:"primaryKey"`
	EventType string
}

func (gOutboxEvent) TableName() string { return "outbox_event" }

type gInboxSeen struct {
	ID int64
	N  int
}

func (gInboxSeen) TableName() string { return "shop_inbox_seen" }

// OnAll does not see the tables of the outbox and of the inbox. On does.
func TestGORMOnAllAndItsOwnTables(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.AutoMigrate(&gInboxSeen{}))
		gormoutbox.OnAll(g.ob, func(_ context.Context, op core.Op, model any) ([]core.Event, error) {
			return []core.Event{{Type: fmt.Sprintf("%s %T", op, model)}}, nil
		})
		fixture.NoError(t, g.Create(&gInboxSeen{}).Error)
		fixture.NoError(t, g.Model(&gInboxSeen{}).Where("id = 1").Update("n", 1).Error)
		g.wantRows(t)
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error { return publishAll(tx, "kept") }))
		tx := g.Where("event_type = 'kept'").Delete(&gOutboxEvent{})
		fixture.Check(t, tx.Error == nil && tx.RowsAffected == 1, "%d rows, %v", tx.RowsAffected, tx.Error)
		g.wantRows(t)
		tell(g, func(s *gInboxSeen) string { return "seen" })
		fixture.NoError(t, g.Delete(&gInboxSeen{ID: 1}).Error)
		g.wantRows(t, "seen.delete")
	})
}

// What GORM refuses stays refused with GORM's own error.
func TestGORMUpdateWithoutAConditionIsRefused(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		products(t, g, "a")
		mapRows(g)
		fixture.WantError(t, g.Model(&gProduct{}).Update("stock", 9).Error, gorm.ErrMissingWhereClause)
		fixture.WantError(t, g.Delete(&gProduct{}).Error, gorm.ErrMissingWhereClause)
		fixture.NoError(t, g.Model(&gProduct{}).Create(map[string]any{"name": "m"}).Error)
		fixture.SameSet(t, "events", g.Events(t), []string{"m.0.create 2"})
	})
}

// A row that begins to match just before the statement is not changed without an event.
func TestGORMRowsThatBeginToMatch(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		if g.db.Dialect != core.Postgres {
			t.Log("no other transaction can insert a row while this one is open")
			return
		}
		products(t, g, "a")
		mapRows(g)
		fixture.NoError(t, g.Callback().Update().After("outbox:enter").Before("gorm:update").Register("test:between",
			func(*gorm.DB) {
				_, err := g.Plain.ExecContext(t.Context(), "INSERT INTO g_products (name, stock) VALUES ('late', 1)")
				fixture.NoError(t, err)
			}))
		fixture.NoError(t, g.Model(&gProduct{}).Where("name = ?", "x").Or("stock = ?", 1).Update("stock", 2).Error)
		g.wantRows(t, "a.2.update", "late.2.update")
		g.WantCount(t, "g_products WHERE stock = 2", 2)
	})
}

// Recorded events of a slice are published for the rows that were changed, and stay recorded on the
// others.
func TestGORMRecordersOfASlice(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		all := []*gOrder{{Status: "new"}, {Status: "paid"}}
		fixture.NoError(t, g.Create(&all).Error)
		gormoutbox.On(g.ob, func(core.Op, *gOrder) []core.Event { return nil })
		for _, o := range all {
			o.Record(fixture.Happened{Name: o.Status + ".shipped"})
		}
		fixture.NoError(t, g.Model(&all).Where("status = ?", "paid").Update("version", 2).Error)
		g.wantRows(t, "paid.shipped")
		fixture.SameSet(t, "aggregate ids", g.Column(t, "aggregate_id"), []string{"2"})
		if len(all[0].Recorded()) != 1 || len(all[1].Recorded()) != 0 {
			t.Fatalf("%d and %d events are left, want 1 and 0", len(all[0].Recorded()), len(all[1].Recorded()))
		}
		change := newOrder("named")
		fixture.NoError(t, g.Model(&gOrder{}).Where("id = ?", 1).Updates(change).Error)
		g.wantRows(t, "paid.shipped", "named")
		fixture.SameSet(t, "aggregate ids", g.Column(t, "aggregate_id"), []string{"1", "2"})
	})
}

type gLocal struct {
	Locale string `gorm:"primaryKey;size:10"`
	ID     uint   `gorm:"primaryKey;autoIncrement"`
	Name   string `gorm:"size:50;unique"`
}

func (gLocal) TableName() string { return "g_locals" }

// One column of a composite key is generated.
func TestGORMGeneratedColumnOfAKey(t *testing.T) {
	t.Parallel()
	testdb.MariaDBAndMySQL(t, func(t *testing.T, db testdb.DB) {
		g := openGORM(t, db, gormOptions{})
		fixture.MustExec(t, g.Plain, "CREATE TABLE g_locals (id int unsigned AUTO_INCREMENT, locale varchar(10), "+
			"name varchar(50) UNIQUE, PRIMARY KEY (id, locale))")
		tell(g, func(l *gLocal) string { return l.Name })
		doNothing := clause.OnConflict{DoNothing: true}
		byName := clause.OnConflict{UpdateAll: true}
		g.steps(t, []step{
			{"one", func(db *gorm.DB) error {
				return db.Create(&gLocal{Locale: "en", Name: "a"}).Error
			}, []string{"a.create en,1"}},
			{"two", func(db *gorm.DB) error {
				return db.Create(&[]gLocal{{Locale: "en", Name: "b"}, {Locale: "de", Name: "c"}}).Error
			}, []string{"b.create en,2", "c.create de,3"}},
			{"do nothing, two", func(db *gorm.DB) error {
				two := []gLocal{{Locale: "en", Name: "d"}, {Locale: "de", Name: "e"}}
				return db.Clauses(doNothing).Create(&two).Error
			}, []string{"d.create en,4", "e.create de,5"}},
			{"do nothing, one", func(db *gorm.DB) error {
				return db.Clauses(doNothing).Create(&gLocal{Locale: "fr", Name: "f"}).Error
			}, []string{"f.create fr,6"}},
			{"upsert, one", func(db *gorm.DB) error {
				return db.Clauses(byName).Create(&gLocal{Locale: "fr", Name: "g"}).Error
			}, []string{"g.upsert fr,7"}},
			{"update", func(db *gorm.DB) error {
				return db.Model(&gLocal{Locale: "fr", ID: 7}).Update("name", "h").Error
			}, []string{"h.update fr,7"}},
		})
	})
}

// A batch that passes over rows gives some keys and leaves others to the database.
func TestGORMBatchDoNothingWithSomeKeys(t *testing.T) {
	t.Parallel()
	testdb.MariaDBAndMySQL(t, func(t *testing.T, db testdb.DB) {
		g := openGORM(t, db, gormOptions{})
		products(t, g, "a", "b", "c")
		fixture.MustExec(t, g.Plain, "DELETE FROM g_products WHERE id = 2")
		mapRows(g)
		create := func(all ...gProduct) func(*gorm.DB) error {
			return func(db *gorm.DB) error {
				return db.Clauses(clause.OnConflict{DoNothing: true}).Create(&all).Error
			}
		}
		g.steps(t, []step{
			{"one is there", create(gProduct{ID: 1, Name: "x"}, gProduct{Name: "d"}), []string{"d.0.create 4"}},
			{"none is there", create(gProduct{Name: "e"}, gProduct{ID: 2, Name: "b"}), []string{
				"b.0.create 2", "e.0.create 6",
			}},
		})
		g.forget(t)
		fixture.MustExec(t, g.Plain, "DELETE FROM g_products WHERE id = 2")
		fixture.MustExec(t, g.Plain, "CREATE UNIQUE INDEX by_name ON g_products (name(50))")
		g.steps(t, []step{
			{"another key is there", create(gProduct{Name: "e"}, gProduct{ID: 2, Name: "b"}), []string{"b.0.create 2"}},
			{"all are there", create(gProduct{Name: "e"}, gProduct{ID: 2, Name: "b"}), nil},
		})
	})
}
