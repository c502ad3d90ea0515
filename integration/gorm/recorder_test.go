package gorm_test

import (
	"errors"
	"testing"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
)

// A transaction that is run again with the same object neither loses nor doubles an event.
func TestGORMRecorderRetriedClosure(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		o := newOrder("placed")
		id := o.Recorded()[0].ID
		tries := 0
		try := func() error {
			return g.Transaction(func(tx *gorm.DB) error {
				tries++
				o.ID = 0
				if err := tx.Create(o).Error; err != nil {
					return err
				}
				if tries < 3 {
					return fixture.ErrNoStock
				}
				return nil
			})
		}
		for errors.Is(try(), fixture.ErrNoStock) {
			fixture.Must(t, len(o.Recorded()) == 1, "the event is gone after a rollback")
		}
		g.wantRows(t, "placed")
		g.WantHot(t, "placed")
		fixture.Must(t, len(o.Recorded()) == 0, "the event is still recorded after the commit")
		fixture.SameSet(t, "event ids", g.Column(t, "event_id"), []string{id})
	})
}

func TestGORMRecorderSavedTwice(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		o := newOrder("placed")
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
			fixture.NoError(t, tx.Create(o).Error)
			o.Status = "paid"
			fixture.NoError(t, tx.Save(o).Error)
			fixture.Check(t, len(o.Recorded()) == 1, "cleared before the commit")
			o.Record(fixture.Happened{Name: "paid"})
			o.Status = "paid twice"
			return tx.Save(o).Error
		}))
		g.wantRows(t, "placed", "paid")
		o.Status = "shipped"
		fixture.NoError(t, g.Save(o).Error)
		g.wantRows(t, "placed", "paid")
	})
}

// An event that a rollback to a savepoint undid is recorded again for the next try in the same
// transaction.
func TestGORMRecorderSavepoint(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		o := newOrder("placed")
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
			fixture.WantError(t, tx.Transaction(func(tx *gorm.DB) error {
				fixture.NoError(t, tx.Create(o).Error)
				return fixture.ErrNoStock
			}), fixture.ErrNoStock)
			o.ID = 0
			return tx.Create(o).Error
		}))
		g.wantRows(t, "placed")
		g.WantHot(t, "placed")
		fixture.Must(t, len(o.Recorded()) == 0, "the event is still recorded after the commit")
	})
}

// Hooks of the model may record events too.
func TestGORMRecorderInHooks(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.AutoMigrate(&gHooked{}))
		fixture.NoError(t, g.Create(&gHooked{}).Error)
		g.wantRows(t, "before", "after", "said.in.hook")
		fixture.NoError(t, g.Session(&gorm.Session{SkipDefaultTransaction: true}).Create(&gHooked{}).Error)
		g.WantCount(t, "g_hooked", 2)
		g.wantRows(t, "before", "after", "said.in.hook", "before", "after", "said.in.hook")
	})
}

type gHooked struct {
	ID            int64
	core.Recorder `gorm:"-"`
}

func (gHooked) TableName() string { return "g_hooked" }

func (h *gHooked) BeforeCreate(*gorm.DB) error {
	h.Record(fixture.Happened{Name: "before"})
	return nil
}

func (h *gHooked) AfterCreate(tx *gorm.DB) error {
	h.Record(fixture.Happened{Name: "after"})
	return gormoutbox.Publish(tx.Statement.Context, tx, fixture.Event("said.in.hook"))
}

// Without db.Use, recorded events stay in the model, and only a test can notice that.
func TestGORMRecorderWithoutThePlugin(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		plain, err := gorm.Open(adapters.GORMDialector(g.db, g.Plain), &gorm.Config{Logger: logger.Discard})
		fixture.NoError(t, err)
		forgotten, taken := newOrder("placed"), newOrder("placed")
		fixture.NoError(t, plain.Transaction(func(tx *gorm.DB) error { return tx.Create(forgotten).Error }))
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error { return tx.Create(taken).Error }))
		outboxtest.RequireNothingRecorded(t, taken)
		if forgotten.ID == 0 || len(forgotten.Recorded()) != 1 {
			t.Errorf("stored as %d, recorded are %v", forgotten.ID, forgotten.Recorded())
		}
	})
}

// A rollback puts a Recorder back to what it held when the transaction, or the savepoint, began. So
// the usual loop around a transaction publishes one event for one call that lasts.
func TestGORMRecorderAfterRollback(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		taken := &gProduct{ID: 7, Name: "taken"}
		fixture.NoError(t, g.Create(taken).Error)
		for name, try := range map[string]func(tx *gorm.DB, o *gOrder, last bool) error{
			"rolled back": func(tx *gorm.DB, o *gOrder, last bool) error {
				o.Record(fixture.Happened{Name: "paid"})
				if err := tx.Save(o).Error; err != nil || last {
					return err
				}
				return boom
			},
			"several statements": func(tx *gorm.DB, o *gOrder, last bool) error {
				if err := tx.Save(o).Error; err != nil {
					return err
				}
				o.Record(fixture.Happened{Name: "paid"})
				if err := tx.Model(o).Update("status", "paid").Error; err != nil || last {
					return err
				}
				return boom
			},
			"a statement that fails": func(tx *gorm.DB, o *gOrder, last bool) error {
				o.Record(fixture.Happened{Name: "paid"})
				if last {
					return tx.Save(o).Error
				}
				return tx.Table("no_such_table").Create(o).Error
			},
			"a savepoint": func(tx *gorm.DB, o *gOrder, last bool) error {
				err := tx.Transaction(func(tx *gorm.DB) error {
					o.Record(fixture.Happened{Name: "undone"})
					return errors.Join(tx.Save(o).Error, boom)
				})
				fixture.WantError(t, err, boom)
				o.ID = 0
				o.Record(fixture.Happened{Name: "paid"})
				if err := tx.Save(o).Error; err != nil || last {
					return err
				}
				return boom
			},
		} {
			o := newOrder("before")
			id := o.Recorded()[0].ID
			for i := range 3 {
				o.ID = 0
				err := g.Transaction(func(tx *gorm.DB) error { return try(tx, o, i == 2) })
				if got := o.Recorded(); i < 2 && (err == nil || len(got) != 1 || got[0].ID != id) {
					t.Errorf("%s, try %d: %v; recorded are %v", name, i, err, got)
				}
				if i == 2 {
					fixture.NoError(t, err)
				}
			}
			fixture.SameSet(t, name, g.Column(t, "event_type"), []string{"before", "paid"})
			fixture.MustExec(t, g.Plain, "DELETE FROM outbox_event")
		}

		unseen := newOrder()
		fixture.WantError(t, g.Transaction(func(*gorm.DB) error {
			unseen.Record(fixture.Happened{Name: "seen by no statement"})
			return boom
		}), boom)
		if n := len(unseen.Recorded()); n != 1 {
			t.Errorf("%d events are recorded on a model that no statement saved, want 1", n)
		}
	})
}
