package gorm_test

import (
	"testing"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// A statement as text has ended the transaction. A later statement that causes events is refused,
// before its row is stored outside of the transaction.
func TestGORMStatementsAfterTheEndOfTheirTransaction(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		mapProducts(g)
		err := g.Transaction(func(tx *gorm.DB) error {
			fixture.NoError(t, tx.Exec("ROLLBACK").Error)
			err := tx.Create(&gProduct{Name: "alone"}).Error
			fixture.WantError(t, err, core.ErrTxAborted)
			return err
		})
		fixture.WantError(t, err, core.ErrTxAborted)
		fixture.SameSet(t, "products", g.names(t), nil)
		g.wantRows(t)
	})
}

// The same holds if the transaction is tracked by another plugin, whose models these are not.
func TestGORMStatementsAfterTheEndOfATransactionOfTwoPlugins(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		mapProducts(g)
		err := g.Transaction(func(tx *gorm.DB) error {
			fixture.NoError(t, tx.Exec("ROLLBACK").Error)
			err := tx.Create(&gProduct{Name: "alone"}).Error
			fixture.WantError(t, err, core.ErrTxAborted)
			return err
		})
		fixture.WantError(t, err, core.ErrTxAborted)
		fixture.SameSet(t, "products", g.names(t), nil)
		g.wantRows(t)
	}, func(o *gormOptions) {
		o.before = func(t *testing.T, g *gormEnv) {
			fixture.NoError(t, g.Use(gormoutbox.NamedPlugin("first",
				gormoutbox.Config{Prefix: "first_", AutoCreate: true})))
		}
	})
}
