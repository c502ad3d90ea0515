package gorm_test

import (
	"database/sql"
	"errors"
	"testing"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// SQLite lets a transaction run statements while rows of it are read. The search for errors of the
// rows must not race with the reader of the rows.
func TestGORMRowsReadOnAnotherGoroutine(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		if g.db.Dialect != core.SQLite {
			t.Log("the connection is busy until the rows are read")
			return
		}
		products := make([]gProduct, 200)
		fixture.NoError(t, g.Create(&products).Error)
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
			rows, err := tx.Model(&gProduct{}).Rows() //nolint:rowserrcheck // readAll checks rows.Err
			if err != nil {
				return err
			}
			read := make(chan error, 1)
			go func() { read <- readAll(rows, len(products)) }()
			for range 50 {
				fixture.NoError(t, publishAll(tx, "said"))
			}
			return <-read
		}))
	})
}

func readAll(rows *sql.Rows, want int) error {
	n := 0
	for rows.Next() {
		n++
	}
	if n != want {
		return errors.Join(errors.New("not all rows were read"), rows.Err())
	}
	return errors.Join(rows.Err(), rows.Close())
}
