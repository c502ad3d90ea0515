package gorm_test

import (
	"context"
	"encoding/json"
	"testing"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

func TestGORMCaptureBatch(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		mapProducts(g)
		fixture.NoError(t, g.Create(&[]gProduct{{Name: "a"}, {Name: "b"}}).Error)
		fixture.NoError(t, g.CreateInBatches([]*gProduct{{Name: "c"}, {Name: "d"}, {Name: "e"}}, 2).Error)
		fixture.NoError(t, g.CreateInBatches([]*gOrder{newOrder("r1"), newOrder("r2"), newOrder("r3")}, 2).Error)
		g.wantRows(t, "product.a.create", "product.b.create", "product.c.create", "product.d.create",
			"product.e.create", "r1", "r2", "r3")
		fixture.SameSet(t, "aggregate ids", g.Column(t, "aggregate_id"),
			[]string{"1", "2", "3", "4", "5", "1", "2", "3"})
	})
}

// Data is encoded after the statement, so a payload that refers to the model has the generated key.
func TestGORMCaptureSeesGeneratedKeys(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.Create(newOrder("placed")).Error)
		var payload struct{ Of struct{ ID int64 } }
		fixture.NoError(t, json.Unmarshal([]byte(g.Column(t, "payload")[0]), &payload))
		fixture.Must(t, payload.Of.ID == 1, "the payload has id %d", payload.Of.ID)
	})
}

func TestGORMCaptureKeyOfModel(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		c := &gCoupon{Code: "SUMMER", Percent: 5}
		c.Record(fixture.Happened{Name: "made"}, core.Event{Type: "own", AggregateID: "mine", AggregateType: "x"})
		fixture.NoError(t, g.Create(c).Error)
		fixture.SameSet(t, "aggregate ids", g.Column(t, "aggregate_id"), []string{"SUMMER", "mine"})
		fixture.SameSet(t, "aggregate types", g.Column(t, "aggregate_type"), []string{"coupon", "x"})
		fixture.SameSet(t, "keys", g.Column(t, "partition_key"), []string{"coupon/SUMMER", "x/mine"})
		fixture.SameSet(t, "topics", g.Column(t, "topic"), []string{"coupon", "x"})
	})
}

func TestGORMCaptureAssociations(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		o := newOrder("placed")
		o.Lines = []gLine{{SKU: "a"}, {SKU: "b"}}
		for i := range o.Lines {
			o.Lines[i].Record(fixture.Happened{Name: "line." + o.Lines[i].SKU})
		}
		var ops []string
		gormoutbox.On(g.ob, func(op core.Op, l *gLine) []core.Event {
			ops = append(ops, l.SKU+" "+op.String())
			return nil
		})
		fixture.NoError(t, g.Create(o).Error)
		g.wantRows(t, "placed", "line.a", "line.b")
		fixture.NoError(t, g.Session(&gorm.Session{FullSaveAssociations: true}).Save(o).Error)
		g.wantRows(t, "placed", "line.a", "line.b") // no new event was recorded
		// GORM stores the lines of an order by an upsert.
		want := []string{"a upsert", "b upsert", "a upsert", "b upsert"}
		fixture.SameSet(t, "On saw", ops, g.again(want, "a upsert", "b upsert"))
	})
}

// again adds to want what MariaDB and MySQL say once more of a Save that changes nothing: they count
// no row, so GORM stores everything a second time.
func (g *gormEnv) again(want []string, more ...string) []string {
	if g.db.Dialect != core.MySQL {
		return want
	}
	return append(want, more...)
}

func TestGORMCaptureSave(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		mapProducts(g)
		p := &gProduct{Name: "generated"}
		fixture.NoError(t, g.Save(p).Error) // without a key, Save is an insert
		p.Name = "changed"
		fixture.NoError(t, g.Save(p).Error) // an update
		// an update of no row, then an insert that skips hooks
		fixture.NoError(t, g.Save(&gProduct{ID: 99, Name: "unknown"}).Error)
		fixture.NoError(t, g.Save(&[]gProduct{{ID: 100, Name: "slice"}}).Error) // an upsert
		c := &gCoupon{Code: "UNKNOWN", Percent: 1}
		c.Record(fixture.Happened{Name: "coupon.made"})
		fixture.NoError(t, g.Save(c).Error)
		g.wantRows(t, "product.generated.create", "product.changed.update", "product.unknown.upsert",
			"product.slice.upsert", "coupon.made")
	})
}

func TestGORMCaptureUpdates(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		mapProducts(g)
		p := &gProduct{Name: "p"}
		fixture.NoError(t, g.Create(p).Error)
		fixture.NoError(t, g.Model(p).Update("stock", 1).Error)
		fixture.NoError(t, g.Model(p).Updates(map[string]any{"stock": 2}).Error)
		fixture.NoError(t, g.Model(p).UpdateColumn("stock", 3).Error)
		fixture.NoError(t, g.Model(p).Updates(gProduct{Stock: 4}).Error)
		fixture.NoError(t, g.Updates(&gProduct{ID: p.ID, Name: "p", Stock: 5}).Error)
		fixture.NoError(t, g.Session(&gorm.Session{SkipHooks: true}).Model(p).Update("stock", 6).Error)
		g.wantRows(t, "product.p.create", "product.p.update", "product.p.update", "product.p.update",
			"product.p.update",
			"product.p.update", "product.p.update")
		for _, id := range g.Column(t, "aggregate_id") {
			fixture.Must(t, id == "1", "aggregate id %q", id)
		}
	})
}

// The update carries the events of the model that holds the changes.
func TestGORMCaptureUpdatesFromAnotherModel(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.Create(&gOrder{Status: "new"}).Error)
		changes := newOrder("paid")
		fixture.NoError(t, g.Model(&gOrder{ID: 1}).Updates(changes).Error)
		g.wantRows(t, "paid")
		fixture.SameSet(t, "aggregate ids", g.Column(t, "aggregate_id"), []string{"1"})
	})
}

func TestGORMCaptureUpdateOfNothing(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		mapProducts(g)
		fixture.NoError(t, g.Model(&gProduct{ID: 42}).Update("stock", 1).Error)
		o := newOrder("paid")
		o.ID = 42
		// an optimistic lock that fails
		fixture.NoError(t, g.Model(o).Where("version = ?", 1).Update("status", "paid").Error)
		g.wantRows(t)
		fixture.Must(t, len(o.Recorded()) == 1, "the recorder lost its event")
		p := &gProduct{Name: "same", Stock: 1}
		fixture.NoError(t, g.Create(p).Error)
		fixture.NoError(t, g.Model(p).UpdateColumn("stock", 1).Error) // the row is found, and has this value already
		g.wantRows(t, "product.same.create", "product.same.update")
	})
}

func TestGORMCaptureDelete(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		mapProducts(g)
		fixture.NoError(t, g.Create(&[]gProduct{{Name: "a"}, {Name: "b"}}).Error)
		fixture.NoError(t, g.Delete(&gProduct{ID: 1, Name: "a"}).Error)            // soft
		fixture.NoError(t, g.Unscoped().Delete(&gProduct{ID: 2, Name: "b"}).Error) // hard
		o := newOrder("placed")
		fixture.NoError(t, g.Create(o).Error)
		o.Record(fixture.Happened{Name: "removed"})
		fixture.NoError(t, g.Delete(o).Error)
		g.wantRows(t, "product.a.create", "product.b.create", "product.a.delete", "product.b.delete", "placed",
			"removed")
	})
}

// The function gets the rows of statements on a model without a key.
func TestGORMCaptureStatementsWithoutKey(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		mapRows(g)
		for _, tc := range []struct {
			run  func(tx *gorm.DB) *gorm.DB
			want string // "" if the database cannot run it
		}{
			{func(tx *gorm.DB) *gorm.DB { return tx.Create(&gProduct{Name: "p", Stock: 1}) }, "p.1.create 1"},
			{func(tx *gorm.DB) *gorm.DB {
				return tx.Model(&gProduct{}).Where("name = ?", "p").Update("stock", 9)
			}, "p.9.update 1"},
			{func(tx *gorm.DB) *gorm.DB {
				return tx.Model(&gProduct{}).Create(map[string]any{"name": "m"})
			}, "m.0.create 2"},
			{func(tx *gorm.DB) *gorm.DB {
				if g.db.Dialect == core.MySQL {
					return tx // MariaDB has no UPDATE ... RETURNING
				}
				var changed []gProduct
				tx = tx.Model(&changed).Clauses(clause.Returning{}).Where("name = ?", "m").Update("stock", 8)
				fixture.Check(t, len(changed) == 1 && changed[0].ID == 2, "RETURNING gave %+v", changed)
				return tx
			}, "m.8.update 2"},
			{func(tx *gorm.DB) *gorm.DB { return tx.Where("name = ?", "p").Delete(&gProduct{}) }, "p.9.delete 1"},
			{func(tx *gorm.DB) *gorm.DB { return tx.Unscoped().Delete(&gProduct{}, 1) }, "p.9.delete 1"},
		} {
			fixture.NoError(t, g.Exec("DELETE FROM outbox_event").Error)
			tx := tc.run(g.Session(&gorm.Session{}))
			fixture.NoError(t, tx.Error)
			if tx.RowsAffected == 0 {
				continue
			}
			fixture.SameSet(t, "events", g.Events(t), []string{tc.want})
		}
	})
}

// The events of a model without a key belong to the changed row if there is only one.
func TestGORMCaptureRecordedWithoutKey(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.Create(&[]gOrder{{Status: "new"}, {Status: "new"}, {Status: "old"}}).Error)
		one, both := newOrder("one.paid"), newOrder("both.paid")
		fixture.NoError(t, g.Model(one).Where("status = ?", "old").Update("status", "paid").Error)
		fixture.SameSet(t, "events", g.Events(t), []string{"one.paid 3"})
		fixture.WantError(t, g.Transaction(func(tx *gorm.DB) error {
			err := tx.Model(both).Where("status = ?", "new").Update("status", "paid").Error
			fixture.WantError(t, err, core.ErrNoAggregateID)
			return nil
		}), core.ErrNoAggregateID)
		fixture.Must(t, len(both.Recorded()) == 1, "the recorder lost its event")
		g.WantCount(t, "g_orders WHERE status = 'new'", 2)
		named := &gOrder{}
		named.Record(core.Event{Type: "all.paid", AggregateID: "all"})
		fixture.NoError(t, g.Model(named).Where("status = ?", "new").Update("status", "paid").Error)
		fixture.SameSet(t, "events", g.Events(t), []string{"one.paid 3", "all.paid all"})
	})
}

func TestGORMCaptureDryRun(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		mapProducts(g)
		o := newOrder("placed")
		g.ToSQL(func(tx *gorm.DB) *gorm.DB { return tx.Create(o) })
		fixture.NoError(t, g.Session(&gorm.Session{DryRun: true}).Create(&gProduct{Name: "p"}).Error)
		g.wantRows(t)
		fixture.Must(t, len(g.handOver(o)) == 1, "a dry run took the event")
	})
}

// Where GORM begins no transaction, the plugin begins one for a statement that causes events.
func TestGORMSkipDefaultTransaction(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		mapProducts(g)
		g.RunRelay(t)
		o := newOrder("placed")
		fixture.NoError(t, g.Create(o).Error)
		fixture.NoError(t, g.Create(&gProduct{Name: "p"}).Error)
		fixture.NoError(t, g.Model(&gProduct{ID: 1}).Update("stock", 1).Error)
		fixture.NoError(t, g.Delete(&gProduct{ID: 1}).Error)
		fixture.Must(t, len(o.Recorded()) == 0, "the event is still recorded after the commit")
		fixture.WantError(t, gormoutbox.Publish(t.Context(), g.DB, fixture.Event("said")), core.ErrNoTransaction)
		fixture.NoError(t, g.Create(&gOrder{Status: "silent"}).Error) // records no event
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error { return tx.Create(newOrder("explicit")).Error }))
		want := []string{"placed", "product.p.create", "product.p.update", "product.p.delete", "explicit"}
		g.wantRows(t, want...)
		g.WantHot(t, want...)
	}, func(o *gormOptions) { o.gorm.SkipDefaultTransaction = true })
}

func TestGORMSkipDefaultTransactionOfSession(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		s := g.Session(&gorm.Session{SkipDefaultTransaction: true})
		fixture.NoError(t, s.Create(newOrder("placed")).Error)
		fixture.NoError(t, g.Create(newOrder("as.usual")).Error)
		invalid := newOrder("never")
		invalid.Record(42) // has no type
		fixture.WantError(t, s.Create(invalid).Error, core.ErrInvalidEvent)
		g.WantCount(t, "g_orders", 2)
		g.wantRows(t, "placed", "as.usual")
		pool, err := g.DB.DB()
		fixture.NoError(t, err)
		fixture.Await(t, "the connections are free", func() bool { return pool.Stats().InUse == 0 })
	})
}

// If an On function returns an error, the statement fails.
func TestGORMOnContextError(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		gormoutbox.OnContext(g.ob, func(ctx context.Context, op core.Op, p *gProduct) ([]core.Event, error) {
			tx, err := gormoutbox.FromContext(ctx)
			if err != nil {
				return nil, err
			}
			var n int64 // sees the rows of the transaction
			if err := tx.Model(&gProduct{}).Count(&n).Error; err != nil {
				return nil, err
			}
			if n > 1 {
				return nil, fixture.ErrNoStock
			}
			return []core.Event{{Type: "first"}}, nil
		})
		fixture.NoError(t, g.Create(&gProduct{Name: "a"}).Error)
		fixture.WantError(t, g.Create(&gProduct{Name: "b"}).Error, fixture.ErrNoStock)
		g.wantRows(t, "first")
		g.WantCount(t, "g_products", 1)
	})
}

// If the event is refused, the row is rolled back.
func TestGORMInvalidEventFailsTheStatement(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		o := &gOrder{}
		o.Record(42) // has no type
		fixture.WantError(t, g.Create(o).Error, core.ErrInvalidEvent)
		fixture.Must(t, len(o.Recorded()) == 1, "the recorder lost its event")
		g.WantCount(t, "g_orders", 0)
		fixture.WantError(t,
			g.Transaction(func(tx *gorm.DB) error {
				return gormoutbox.Publish(tx.Statement.Context, tx, core.Event{})
			}),
			core.ErrInvalidEvent)
	})
}
