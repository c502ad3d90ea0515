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
