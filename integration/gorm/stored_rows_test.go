package gorm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/plugin/optimisticlock"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// tell makes an event of each row of a type. text describes the row.
func tell[T any](g *gormEnv, text func(*T) string) {
	gormoutbox.On(g.ob, func(op core.Op, m *T) []core.Event {
		return []core.Event{{Type: text(m) + "." + op.String()}}
	})
}

// step is a statement and the events that it causes, each as its type and its aggregate id.
type step struct {
	name string
	run  func(db *gorm.DB) error
	want []string
}

// steps runs statements one after another, and compares the events of each.
func (g *gormEnv) steps(t *testing.T, steps []step) {
	t.Helper()
	for _, s := range steps {
		g.forget(t)
		if err := s.run(g.Session(&gorm.Session{NewDB: true})); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		fixture.SameSet(t, s.name, g.Events(t), s.want)
	}
}

// forget removes the events from the table.
func (g *gormEnv) forget(t *testing.T) {
	t.Helper()
	fixture.MustExec(t, g.Plain, "DELETE FROM outbox_event")
}

// nothing is the outcome of a statement that changed no row.
func nothing(tx *gorm.DB) error {
	if tx.Error == nil && tx.RowsAffected != 0 {
		return fmt.Errorf("%d rows affected, want none", tx.RowsAffected)
	}
	return tx.Error
}

type gLocked struct {
	ID            int64
	Qty           int
	Version       optimisticlock.Version
	core.Recorder `gorm:"-" json:"-"`
}

func (gLocked) TableName() string { return "g_locked" }

// The condition of an optimistic lock comes into the statement after all callbacks before it.
func TestGORMOptimisticLock(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.AutoMigrate(&gLocked{}))
		fixture.NoError(t, g.Create(&gLocked{Qty: 1}).Error)
		tell(g, func(l *gLocked) string { return fmt.Sprintf("%d.v%d", l.Qty, l.Version.Int64) })
		var first, stale gLocked
		fixture.NoError(t, g.First(&first, 1).Error)
		fixture.NoError(t, g.First(&stale, 1).Error)
		record := func(l *gLocked) *gLocked {
			l.Record(fixture.Happened{Name: "recorded"})
			return l
		}
		g.steps(t, []step{
			{"current", func(db *gorm.DB) error {
				return db.Model(record(&first)).Update("qty", 2).Error
			}, []string{"2.v2.update 1", "recorded 1"}},
			{"stale", func(db *gorm.DB) error {
				return nothing(db.Model(record(&stale)).Update("qty", 3))
			}, nil},
			{"stale, a struct", func(db *gorm.DB) error {
				return nothing(db.Model(&stale).Updates(&gLocked{Qty: 3}))
			}, nil},
			{"stale, an expression", func(db *gorm.DB) error {
				return nothing(db.Model(&stale).Update("qty", gorm.Expr("qty + 1")))
			}, nil},
			{"stale, the value that is stored", func(db *gorm.DB) error {
				return nothing(db.Model(&stale).Update("qty", 2))
			}, nil},
			{"without the lock", func(db *gorm.DB) error {
				return db.Unscoped().Model(&stale).Update("qty", 4).Error
			}, []string{"4.v3.update 1", "recorded 1"}},
		})
		fixture.Must(t, len(stale.Recorded()) == 0, "the event is still recorded after its row was changed")
		g.WantCount(t, "g_locked WHERE qty = 4", 1)
	})
}

type gTenant struct {
	ID     int64
	Tenant string `gorm:"size:16"`
	Qty    int
}

func (gTenant) TableName() string { return "g_tenants" }

// tenancy adds a condition to each update and delete, as plugins for tenants do.
type tenancy struct{}

func (tenancy) Name() string { return "test:tenancy" }

func (tenancy) Initialize(db *gorm.DB) error {
	only := func(db *gorm.DB) {
		if db.Statement.Schema != nil && db.Statement.Schema.Table == "g_tenants" {
			db.Statement.AddClause(clause.Where{Exprs: []clause.Expression{clause.Eq{Column: "tenant", Value: "mine"}}})
		}
	}
	return errors.Join(
		db.Callback().Update().Before("gorm:update").Register("test:tenancy", only),
		db.Callback().Delete().Before("gorm:delete").Register("test:tenancy", only))
}

// A condition of another plugin counts, whichever plugin was used first.
func TestGORMConditionsOfOtherPlugins(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachGORM(t, func(t *testing.T, g *gormEnv) {
				if !before {
					fixture.NoError(t, g.Use(tenancy{}))
				}
				fixture.NoError(t, g.AutoMigrate(&gTenant{}))
				fixture.NoError(t, g.Create(&[]gTenant{{Tenant: "mine", Qty: 1}, {Tenant: "other", Qty: 1}}).Error)
				tell(g, func(m *gTenant) string { return fmt.Sprintf("%s.%d", m.Tenant, m.Qty) })
				g.steps(t, []step{
					{"a row of the other by its key", func(db *gorm.DB) error {
						return nothing(db.Model(&gTenant{ID: 2}).Update("qty", 5))
					}, nil},
					{"a condition of both", func(db *gorm.DB) error {
						return db.Model(&gTenant{}).Where("qty = 1").Update("qty", 6).Error
					}, []string{"mine.6.update 1"}},
					{"delete", func(db *gorm.DB) error {
						return db.Delete(&[]gTenant{{ID: 1}, {ID: 2}}).Error
					}, []string{"mine.6.delete 1"}},
				})
				g.WantCount(t, "g_tenants WHERE tenant = 'other' AND qty = 1", 1)
			}, func(o *gormOptions) {
				if before {
					o.before = func(t *testing.T, g *gormEnv) { fixture.NoError(t, g.Use(tenancy{})) }
				}
			})
		})
	}
}

// GORM sends no statement for an update with nothing to set.
func TestGORMUpdateWithNothingToSet(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		products(t, g, "a")
		mapRows(g)
		fixture.NoError(t, g.Create(&gCoupon{Code: "K0", Percent: 1}).Error)
		tell(g, func(c *gCoupon) string { return fmt.Sprintf("%s.%d", c.Code, c.Percent) })
		o := &gOrder{Status: "new"}
		fixture.NoError(t, g.Create(o).Error)
		o.Record(fixture.Happened{Name: "kept"})
		g.steps(t, []step{
			{"a struct", func(db *gorm.DB) error {
				return nothing(db.Model(&gProduct{ID: 1}).Updates(gProduct{}))
			}, nil},
			{"a map", func(db *gorm.DB) error {
				return nothing(db.Model(&gProduct{ID: 1}).Updates(map[string]any{}))
			}, nil},
			{"columns of zeros", func(db *gorm.DB) error {
				return nothing(db.Model(&gProduct{ID: 1}).UpdateColumns(gProduct{Stock: 0}))
			}, nil},
			{"a condition", func(db *gorm.DB) error {
				return nothing(db.Model(&gProduct{}).Where("id = 1").Updates(gProduct{}))
			}, nil},
			{"recorded", func(db *gorm.DB) error { return nothing(db.Model(o).Updates(gOrder{})) }, nil},
			{"the key of a row that is there, in the values for one that is not", func(db *gorm.DB) error {
				return nothing(db.Model(&gCoupon{Code: "K9"}).Updates(gCoupon{Code: "K0", Percent: 2}))
			}, nil},
			{"another key", func(db *gorm.DB) error {
				return db.Model(&gCoupon{Code: "K0"}).Updates(gCoupon{Code: "K1", Percent: 2}).Error
			}, []string{"K1.2.update K1"}},
		})
		fixture.Must(t, len(o.Recorded()) == 1, "the recorder lost its event")
	})
}

// The function gets the whole row, whatever the model in memory has.
func TestGORMFunctionsSeeTheStoredRow(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		products(t, g, "a", "b")
		mapRows(g)
		g.steps(t, []step{
			{"update", func(db *gorm.DB) error {
				return db.Model(&gProduct{ID: 1}).Update("stock", 8).Error
			}, []string{"a.8.update 1"}},
			{"update column", func(db *gorm.DB) error {
				return db.Model(&gProduct{ID: 1, Name: "memory"}).UpdateColumn("stock", 9).Error
			}, []string{"a.9.update 1"}},
			{"updates, a map", func(db *gorm.DB) error {
				return db.Model(&gProduct{ID: 1}).Updates(map[string]any{"name": "c"}).Error
			}, []string{"c.9.update 1"}},
			{"updates, a struct", func(db *gorm.DB) error {
				return db.Model(&gProduct{ID: 1}).Updates(gProduct{Name: "d"}).Error
			}, []string{"d.9.update 1"}},
			{"selected", func(db *gorm.DB) error {
				return db.Select("stock").Updates(&gProduct{ID: 1, Name: "memory"}).Error
			}, []string{"d.0.update 1"}},
			{"omitted", func(db *gorm.DB) error {
				return db.Omit("name").Save(&gProduct{ID: 1, Name: "memory", Stock: 3}).Error
			}, []string{"d.3.update 1"}},
			{"an upsert of one column", func(db *gorm.DB) error {
				return db.Clauses(clause.OnConflict{
					Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"stock"}),
				}).Create(&gProduct{ID: 1, Name: "memory", Stock: 4}).Error
			}, []string{"d.4.upsert 1"}},
			{"a soft delete", func(db *gorm.DB) error {
				return db.Delete(&gProduct{ID: 1}).Error
			}, []string{"d.4.delete 1"}},
			{"a delete", func(db *gorm.DB) error {
				return db.Unscoped().Delete(&gProduct{ID: 1, Name: "memory"}).Error
			}, []string{"d.4.delete 1"}},
			{"another key", func(db *gorm.DB) error {
				return db.Model(&gProduct{ID: 2, Stock: 7}).Update("id", 5).Error
			}, []string{"b.1.update 5"}},
		})
	})
}

// A child that is attached to a parent is told with the values that are stored. GORM stores only
// its foreign key.
func TestGORMAttachedChildren(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.Create(&gOrder{Lines: []gLine{{SKU: "a"}, {SKU: "b"}}}).Error)
		fixture.NoError(t, g.Create(&gOrder{}).Error)
		tell(g, func(l *gLine) string { return fmt.Sprintf("%s.of%d", l.SKU, l.OrderID) })
		lines := func(db *gorm.DB, order int64) *gorm.Association {
			return db.Model(&gOrder{ID: order}).Association("Lines")
		}
		g.steps(t, []step{
			{"append", func(db *gorm.DB) error {
				return lines(db, 2).Append(&gLine{ID: 1, SKU: "memory"})
			}, []string{"a.of2.upsert 1"}},
			{"replace", func(db *gorm.DB) error {
				return lines(db, 2).Replace(&gLine{ID: 2, SKU: "memory"}, &gLine{SKU: "c"})
			}, []string{"b.of2.upsert 2", "c.of2.upsert 3", "a.of0.update 1"}},
			{"delete", func(db *gorm.DB) error {
				return lines(db, 2).Delete(&gLine{ID: 3})
			}, []string{"c.of0.update 3"}},
			{"clear", func(db *gorm.DB) error { return lines(db, 2).Clear() }, []string{"b.of0.update 2"}},
		})
		if g.db.Dialect != core.Postgres {
			return // another database generates no key that is there
		}
		g.steps(t, []step{{"append, and the sequence is behind", func(db *gorm.DB) error {
			if err := db.Exec("SELECT setval('g_lines_id_seq', 1, false)").Error; err != nil {
				return err
			}
			return lines(db, 2).Append(&gLine{SKU: "new"})
		}, []string{"a.of2.upsert 1"}}})
	})
}

// The database compares keys. A row has one AggregateID, however the program writes its key.
func TestGORMKeysWithSeveralTexts(t *testing.T) {
	t.Parallel()
	type device struct {
		ID            string `gorm:"primaryKey;size:36"`
		N             int
		core.Recorder `gorm:"-" json:"-"`
	}
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		typ := map[core.Dialect]string{
			core.Postgres: "uuid", core.SQLite: "VARCHAR(36) COLLATE NOCASE", core.MySQL: "VARCHAR(36)",
		}[g.db.Dialect]
		fixture.MustExec(t, g.Plain, "CREATE TABLE devices (id "+typ+" PRIMARY KEY, n BIGINT)"+fixture.Engine(g.db))
		const lower = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
		upper := strings.ToUpper(lower)
		tell(g, func(d *device) string { return fmt.Sprint(d.N) })
		recorded := func() *device {
			d := &device{ID: upper}
			d.Record(fixture.Happened{Name: "recorded"})
			return d
		}
		g.steps(t, []step{
			{"create", func(db *gorm.DB) error {
				return db.Create(&device{ID: lower, N: 1}).Error
			}, []string{"1.create " + lower}},
			{"update", func(db *gorm.DB) error {
				return db.Model(recorded()).Update("n", 2).Error
			}, []string{"2.update " + lower, "recorded " + lower}},
			{"expression", func(db *gorm.DB) error {
				return db.Model(recorded()).Update("n", gorm.Expr("n + 1")).Error
			}, []string{"3.update " + lower, "recorded " + lower}},
			{"slice with a condition", func(db *gorm.DB) error {
				other := &device{ID: "b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}
				return db.Model(&[]*device{other, recorded()}).Where("n = 3").Update("n", 4).Error
			}, []string{"4.update " + lower, "recorded " + lower}},
			{"upsert", func(db *gorm.DB) error {
				d := recorded()
				d.N = 5
				return db.Clauses(clause.OnConflict{
					Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"n"}),
				}).Create(d).Error
			}, []string{"5.upsert " + lower, "recorded " + lower}},
			{"delete", func(db *gorm.DB) error {
				return db.Delete(recorded()).Error
			}, []string{"5.delete " + lower, "recorded " + lower}},
		})
	})
}

// A time in a key has one text, whatever its zone and more digits than the column has.
func TestGORMTimesInKeys(t *testing.T) {
	t.Parallel()
	type sample struct {
		Series        string    `gorm:"primaryKey;size:16"`
		At            time.Time `gorm:"primaryKey"`
		N             int
		core.Recorder `gorm:"-" json:"-"`
	}
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.AutoMigrate(&sample{}))
		tell(g, func(s *sample) string { return fmt.Sprint(s.N) })
		nanos, text := 123456789, "2026-03-01T10:00:05.123456789Z"
		switch g.db.Dialect {
		case core.Postgres:
			text = "2026-03-01T10:00:05.123456Z"
		case core.MySQL: // a key that the column rounds is refused
			nanos, text = 123000000, "2026-03-01T10:00:05.123Z"
		}
		at := time.Date(2026, 3, 1, 12, 0, 5, nanos, time.FixedZone("CEST", 2*60*60))
		s := &sample{Series: "a", At: at, N: 1}
		g.steps(t, []step{
			{"create", func(db *gorm.DB) error { return db.Create(s).Error }, []string{"1.create a," + text}},
			{"update", func(db *gorm.DB) error {
				s.Record(fixture.Happened{Name: "recorded"})
				return db.Model(&sample{Series: "a", At: at}).Updates(s).Error
			}, []string{"1.update a," + text, "recorded a," + text}},
			{"save", func(db *gorm.DB) error {
				s.N = 2
				s.Record(fixture.Happened{Name: "recorded"})
				return db.Save(s).Error
			}, []string{"2.update a," + text, "recorded a," + text}},
		})
	})
}

// Two composite keys whose texts differ only in the place of a comma are two.
func TestGORMCommasInKeys(t *testing.T) {
	t.Parallel()
	type pair struct {
		A string `gorm:"primaryKey;size:16"`
		B string `gorm:"primaryKey;size:16"`
		N int
	}
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.AutoMigrate(&pair{}))
		tell(g, func(p *pair) string { return fmt.Sprint(p.N) })
		two := []pair{{A: "a,b", B: "c", N: 1}, {A: "a", B: "b,c", N: 2}, {A: `a\`, B: "c", N: 3}}
		ids := []string{`a\,b,c`, `a,b\,c`, `a\\,c`}
		events := func(op string) (all []string) {
			for i := range two {
				all = append(all, fmt.Sprintf("%d.%s %s", two[i].N, op, ids[i]))
			}
			return all
		}
		g.steps(t, []step{
			{"create", func(db *gorm.DB) error { return db.Create(&two).Error }, events("create")},
			{"save", func(db *gorm.DB) error { return db.Save(&two).Error }, events("upsert")},
			{"delete", func(db *gorm.DB) error { return db.Delete(&two).Error }, events("delete")},
		})
	})
}

// A delete of loaded models tells the rows that went. The events of the others stay recorded.
func TestGORMDeleteOfASlicePartlyGone(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		all := []*gOrder{{Status: "a"}, {Status: "b"}, {Status: "c"}}
		fixture.NoError(t, g.Create(&all).Error)
		fixture.MustExec(t, g.Plain, "DELETE FROM g_orders WHERE id = 2")
		tell(g, func(o *gOrder) string { return o.Status })
		for _, o := range all {
			o.Record(fixture.Happened{Name: "gone." + o.Status})
		}
		g.steps(t, []step{{"delete", func(db *gorm.DB) error {
			tx := db.Delete(&all)
			fixture.Check(t, tx.RowsAffected == 2, "%d rows affected, want 2", tx.RowsAffected)
			return tx.Error
		}, []string{"a.delete 1", "c.delete 3", "gone.a 1", "gone.c 3"}}})
		fixture.Must(t, len(all[1].Recorded()) == 1, "the event of the row that was not there is gone")
	})
}

// gRefusing publishes in its hook an event that is refused.
type gRefusing struct {
	ID   int64
	Fine bool `gorm:"-"`
}

func (gRefusing) TableName() string { return "g_refusing" }

func (r *gRefusing) AfterCreate(tx *gorm.DB) error {
	e := core.Event{}
	if r.Fine {
		e.Type = "fine"
	}
	return gormoutbox.Publish(tx.Statement.Context, tx, e)
}

// The error of a hook rolls its row back, where GORM begins no transaction too.
func TestGORMErrorOfAHookWithoutTransaction(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.AutoMigrate(&gRefusing{}))
		s := g.Session(&gorm.Session{SkipDefaultTransaction: true})
		fixture.WantError(t, s.Create(&gRefusing{}).Error, core.ErrInvalidEvent)
		g.WantCount(t, "g_refusing", 0)
		fixture.NoError(t, s.Create(&gRefusing{Fine: true}).Error)
		g.WantCount(t, "g_refusing", 1)
		g.wantRows(t, "fine")
	})
}

// gSteps updates its own row after it was created.
type gSteps struct {
	ID            int64
	State         string `gorm:"size:16"`
	core.Recorder `gorm:"-" json:"-"`
}

func (gSteps) TableName() string { return "g_steps" }

func (s *gSteps) AfterCreate(tx *gorm.DB) error {
	s.Record(fixture.Happened{Name: "by.hook"})
	return tx.Model(s).Update("state", "ready").Error
}

// The events of a row are in the order of its changes, those of hooks too.
func TestGORMOrderOfHooks(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.AutoMigrate(&gSteps{}))
		tell(g, func(s *gSteps) string { return s.State })
		s := &gSteps{State: "new"}
		s.Record(fixture.Happened{Name: "before"})
		fixture.NoError(t, g.Create(s).Error)
		var types []string // in the order in which they are published
		fixture.NoError(t, g.Table("outbox_event").Order("key_seq, id").Pluck("event_type", &types).Error)
		g.wantRows(t, "new.create", "before", "ready.update", "by.hook")
		at := func(typ string) int { return slices.Index(types, typ) }
		fixture.Check(t, at("new.create") < at("ready.update"), "the update is before the create: %q", types)
		fixture.Check(t, at("before") < at("by.hook"), "the recorded events are out of order: %q", types)
	})
}

// The function sees what is stored.
func TestGORMSerializedValue(t *testing.T) {
	t.Parallel()
	type tagged struct {
		ID   int64
		Tags []string `gorm:"serializer:json;size:64"`
	}
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.AutoMigrate(&tagged{}))
		tell(g, func(m *tagged) string { return strings.Join(m.Tags, "+") })
		g.steps(t, []step{
			{"create", func(db *gorm.DB) error {
				return db.Create(&tagged{Tags: []string{"x", "y"}}).Error
			}, []string{"x+y.create 1"}},
			{"a struct", func(db *gorm.DB) error {
				return db.Model(&tagged{ID: 1}).Updates(tagged{Tags: []string{"z"}}).Error
			}, []string{"z.update 1"}},
			{"a map, as it is stored", func(db *gorm.DB) error {
				return db.Model(&tagged{ID: 1}).Updates(map[string]any{"tags": `["v","w"]`}).Error
			}, []string{"v+w.update 1"}},
		})
	})
}

// A hook that publishes runs in a dry run too.
func TestGORMDryRunPublishesNothing(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.AutoMigrate(&gNoticed{}, &gHooked{}))
		noticed := 0
		create := func(db *gorm.DB) error {
			return errors.Join(db.Create(&gNoticed{notice: func() { noticed++ }}).Error, db.Create(&gHooked{}).Error)
		}
		dry := &gorm.Session{DryRun: true}
		fixture.NoError(t, create(g.Session(dry)))
		g.ToSQL(func(db *gorm.DB) *gorm.DB {
			fixture.NoError(t, create(db.Session(&gorm.Session{NewDB: true})))
			return db
		})
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
			fixture.NoError(t, create(tx.Session(dry)))
			tx.ToSQL(func(db *gorm.DB) *gorm.DB {
				fixture.NoError(t, create(db.Session(&gorm.Session{NewDB: true})))
				return db
			})
			ctx, db := t.Context(), tx.Session(dry)
			fixture.NoError(t, gormoutbox.Publish(ctx, db, fixture.Event("ghost")))
			fixture.NoError(t, g.ob.Publish(ctx, db, fixture.Event("ghost")))
			fixture.NoError(t, gormoutbox.AfterCommit(ctx, db, func() { noticed++ }))
			fixture.Check(t, gormoutbox.Context(ctx, db) == ctx, "Context gave the transaction of a dry run")
			_, err := gormoutbox.TxOf(ctx, db)
			fixture.WantError(t, err, core.ErrNoTransaction)
			fixture.WantError(t, gormoutbox.Transactor(db).RunInTx(gormoutbox.Context(ctx, tx), never(t)),
				core.ErrNoTransaction)
			return publishAll(tx, "said")
		}))
		fixture.WantError(t, gormoutbox.Transactor(g.Session(dry)).RunInTx(t.Context(), never(t)),
			core.ErrNoTransaction)
		g.wantRows(t, "said")
		g.WantCount(t, "g_noticed", 0)
		fixture.Must(t, noticed == 0, "%d functions ran after the commit, want none", noticed)
	})
}

func never(t *testing.T) func(context.Context, core.Tx) error {
	t.Helper()
	return func(context.Context, core.Tx) error {
		t.Error("the function ran")
		return nil
	}
}

// gPanics panics in its hook.
type gPanics struct {
	ID            int64
	After         bool `gorm:"-"`
	core.Recorder `gorm:"-" json:"-"`
}

func (gPanics) TableName() string { return "g_panics" }

func (p *gPanics) AfterSave(*gorm.DB) error {
	if p.After {
		panic("reason")
	}
	return nil
}

// If something panics after a statement and the program goes on with the transaction, the row has
// its events. Otherwise the transaction does not commit.
func TestGORMPanicAfterTheStatement(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.AutoMigrate(&gPanics{}))
		at := ""
		panics := func(place string) func(*gorm.DB) {
			return func(*gorm.DB) {
				if at == place {
					panic("reason")
				}
			}
		}
		after := []string{"after create", "after all"}
		fixture.NoError(t, errors.Join(
			g.Callback().Create().Before("gorm:create").Register("test:before", panics("before create")),
			g.Callback().Create().After("gorm:create").Register("test:after", panics(after[0])),
			g.Callback().Create().After("*").Register("test:last", panics(after[1]))))
		gormoutbox.On(g.ob, func(core.Op, *gPanics) []core.Event {
			panics("On")(nil)
			return []core.Event{fixture.Event("told")}
		})
		create := func(p *gPanics) error {
			p.Record(fixture.Happened{Name: "recorded"})
			return g.Transaction(func(tx *gorm.DB) error {
				defer func() { fixture.Check(t, recover() == "reason", "%s: no panic", at) }()
				return tx.Create(p).Error
			})
		}
		for _, at = range after {
			fixture.NoError(t, create(&gPanics{}))
		}
		at = ""
		fixture.NoError(t, create(&gPanics{After: true}))
		g.WantCount(t, "g_panics", 3)
		g.wantRows(t, "told", "recorded", "told", "recorded", "told", "recorded")

		g.forget(t)
		at = "before create"
		fixture.NoError(t, create(&gPanics{}))
		at = "On"
		p := &gPanics{}
		fixture.Check(t, create(p) != nil, "a row was committed without its events")
		fixture.Check(t, len(p.Recorded()) == 1, "the recorder lost its event")
		g.WantCount(t, "g_panics", 3)
		g.wantRows(t)
	})
}

// Rows that another plugin changed past the door are not committed without their events.
func TestGORMReplacedCallback(t *testing.T) {
	t.Parallel()
	own := func(db *gorm.DB) {
		tx := db.Session(&gorm.Session{NewDB: true}).Exec("INSERT INTO g_products (name) VALUES ('past')")
		db.RowsAffected = tx.RowsAffected
	}
	replace := func(t *testing.T, db *gorm.DB) {
		t.Helper()
		fixture.NoError(t, db.Callback().Create().Replace("gorm:create", own))
	}
	for name, before := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachGORM(t, func(t *testing.T, g *gormEnv) {
				if !before {
					replace(t, g.DB)
				}
				fixture.NoError(t, g.Create(&gProduct{Name: "without a function"}).Error)
				mapRows(g)
				create := func(tx *gorm.DB) error { return tx.Create(&gProduct{Name: "past"}).Error }
				err := create(g.DB)
				fixture.Must(t, err != nil && strings.Contains(err.Error(), "another plugin"), "error %v", err)
				err = g.Transaction(func(tx *gorm.DB) error {
					_ = create(tx)
					return nil
				})
				fixture.Must(t, err != nil, "the transaction has committed")
				g.WantCount(t, "g_products", 1)
			}, func(o *gormOptions) {
				if before {
					o.before = func(t *testing.T, g *gormEnv) { replace(t, g.DB) }
				}
			})
		})
	}
}
