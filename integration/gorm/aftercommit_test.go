package gorm_test

import (
	"testing"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// gNoticed calls notice after the commit of the transaction that stored it.
type gNoticed struct {
	ID     int64
	notice func() `gorm:"-"`
}

func (gNoticed) TableName() string { return "g_noticed" }

func (n *gNoticed) AfterCreate(tx *gorm.DB) error {
	if err := gormoutbox.AfterCommit(tx.Statement.Context, tx, n.notice); err != nil {
		return err
	}
	return gormoutbox.Publish(tx.Statement.Context, tx, fixture.Event("noticed"))
}

// In a hook, tx is the transaction of the statement, whether GORM began it or the program.
func TestGORMAfterCommit(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.AutoMigrate(&gNoticed{}))
		n := 0
		notice := func() { n++ }
		fixture.NoError(t, g.Create(&gNoticed{notice: notice}).Error)
		fixture.Must(t, n == 1, "ran %d times after a statement of its own, want 1", n)
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
			fixture.NoError(t, tx.Create(&gNoticed{notice: notice}).Error)
			fixture.WantError(t, tx.Transaction(func(tx *gorm.DB) error {
				fixture.NoError(t, tx.Create(&gNoticed{notice: notice}).Error)
				return fixture.ErrNoStock
			}), fixture.ErrNoStock)
			fixture.NoError(t, tx.SavePoint("s").Error)
			fixture.NoError(t, tx.Create(&gNoticed{notice: notice}).Error)
			fixture.NoError(t, tx.RollbackTo("s").Error)
			fixture.Check(t, n == 1, "ran before the commit")
			return nil
		}))
		fixture.Must(t, n == 2, "ran %d times, want 2", n)
		tx := g.Begin()
		fixture.NoError(t, tx.Create(&gNoticed{notice: notice}).Error)
		fixture.NoError(t, tx.Rollback().Error)
		g.wantRows(t, "noticed", "noticed")
		fixture.Must(t, n == 2, "ran %d times after a rollback, want 2", n)
		fixture.WantError(t, gormoutbox.AfterCommit(t.Context(), g.DB, notice), core.ErrNoTransaction)
		fixture.WantError(t, gormoutbox.AfterCommit(t.Context(), nil, notice), core.ErrNoTransaction)
		fixture.NoError(t, g.Connection(func(db *gorm.DB) error {
			return db.Transaction(func(tx *gorm.DB) error {
				fixture.WantError(t, gormoutbox.AfterCommit(tx.Statement.Context, tx, notice), core.ErrUntracked)
				return nil
			})
		}))
	})
}
