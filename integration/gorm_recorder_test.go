package integration

import (
	"errors"
	"testing"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

// A transaction that is run again with the same object loses nothing and doubles nothing.
func TestGORMRecorderRetriedClosure(t *testing.T) {
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.run(t)
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
					return errNoStock
				}
				return nil
			})
		}
		for errors.Is(try(), errNoStock) {
			if len(o.Recorded()) != 1 {
				t.Fatal("the event is gone after a rollback")
			}
		}
		g.wantRows(t, "placed")
		g.wantHot(t, "placed")
		if len(o.Recorded()) != 0 {
			t.Fatal("the event is still recorded after the commit")
		}
		gormCompare(t, "event ids", g.column(t, "event_id"), []string{id})
	})
}

func TestGORMRecorderSavedTwice(t *testing.T) {
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		o := newOrder("placed")
		noError(t, g.Transaction(func(tx *gorm.DB) error {
			noError(t, tx.Create(o).Error)
			o.Status = "paid"
			noError(t, tx.Save(o).Error)
			if len(o.Recorded()) != 1 {
				t.Error("cleared before the commit")
			}
			o.Record(happened{Name: "paid"})
			o.Status = "paid twice"
			return tx.Save(o).Error
		}))
		g.wantRows(t, "placed", "paid")
		o.Status = "shipped"
		noError(t, g.Save(o).Error)
		g.wantRows(t, "placed", "paid")
	})
}

// What a savepoint undid is there again for the next try in the same transaction.
func TestGORMRecorderSavepoint(t *testing.T) {
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.run(t)
		o := newOrder("placed")
		noError(t, g.Transaction(func(tx *gorm.DB) error {
			wantError(t, tx.Transaction(func(tx *gorm.DB) error {
				noError(t, tx.Create(o).Error)
				return errNoStock
			}), errNoStock)
			o.ID = 0
			return tx.Create(o).Error
		}))
		g.wantRows(t, "placed")
		g.wantHot(t, "placed")
		if len(o.Recorded()) != 0 {
			t.Fatal("the event is still recorded after the commit")
		}
	})
}

// In an untracked transaction the event counts as handed over when it is written.
func TestGORMRecorderUntracked(t *testing.T) {
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		o := newOrder("placed")
		noError(t, g.Connection(func(db *gorm.DB) error {
			return db.Transaction(func(tx *gorm.DB) error {
				noError(t, tx.Create(o).Error)
				if len(o.Recorded()) != 0 {
					t.Error("still recorded")
				}
				o.Status = "paid"
				return tx.Save(o).Error
			})
		}))
		g.wantRows(t, "placed")
		if g.untracked != 1 {
			t.Errorf("%d untracked rows", g.untracked)
		}
	})
}

// Hooks of the model may record too.
func TestGORMRecorderInHooks(t *testing.T) {
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		noError(t, g.AutoMigrate(&gHooked{}))
		noError(t, g.Create(&gHooked{}).Error)
		g.wantRows(t, "before", "after", "said.in.hook")
		wantError(t, g.Session(&gorm.Session{SkipDefaultTransaction: true}).Create(&gHooked{}).Error, gormoutbox.ErrNoTransaction)
		g.wantCount(t, "g_hooked", 1)
	})
}

type gHooked struct {
	ID                  int64
	gormoutbox.Recorder `gorm:"-"`
}

func (gHooked) TableName() string { return "g_hooked" }

func (h *gHooked) BeforeCreate(*gorm.DB) error {
	h.Record(happened{Name: "before"})
	return nil
}

func (h *gHooked) AfterCreate(tx *gorm.DB) error {
	h.Record(happened{Name: "after"})
	return gormoutbox.Publish(tx, ev("said.in.hook"))
}
