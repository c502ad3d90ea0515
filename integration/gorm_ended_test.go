package integration

import (
	"testing"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

// A text has ended the transaction: a statement that causes events is refused before it is stored by itself.
func TestGORMStatementsAfterTheEndOfTheirTransaction(t *testing.T) {
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		mapProducts(g)
		err := g.Transaction(func(tx *gorm.DB) error {
			noError(t, tx.Exec("ROLLBACK").Error)
			err := tx.Create(&gProduct{Name: "alone"}).Error
			wantError(t, err, gormoutbox.ErrTxAborted)
			return err
		})
		wantError(t, err, gormoutbox.ErrTxAborted)
		gormCompare(t, "products", g.names(t), nil)
		g.wantRows(t)
	})
}
