package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/XSAM/otelsql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The server refuses COMMIT or ROLLBACK, as a node does that its Galera cluster has cut off. The
// transaction is still open, and the next BEGIN on the connection would commit it.
func TestRefusedEnd(t *testing.T) {
	t.Parallel()
	testdb.MariaDBAndMySQL(t, func(t *testing.T, db testdb.DB) {
		for text, fail := range map[string]error{"COMMIT": nil, "ROLLBACK": errUndo} {
			refuses := fixture.Rewrite(t, db, text, "REFUSE")
			for kind, pool := range map[string]*sql.DB{
				"plain":   refuses.Open(t),
				"traced":  otelsql.OpenDB(refuses.Connector(t)),
				"tracked": sql.OpenDB(sqltx.Connector(refuses.Connector(t), core.MySQL)),
			} {
				t.Cleanup(func() { _ = pool.Close() })
				pool.SetMaxOpenConns(1)
				all := transactors(t, refuses, pool)
				gdb, err := gorm.Open(adapters.GORMDialector(refuses, pool), &gorm.Config{Logger: logger.Discard})
				fixture.NoError(t, err)
				_, err = gormoutbox.New(gdb, gormoutbox.Config{})
				fixture.NoError(t, err)
				all["sqltx"] = sqltx.NewTransactor(pool, core.MySQL)
				all["gormoutbox, plugin"] = gormoutbox.Transactor(gdb)
				for name, transactor := range all {
					var before int64
					err := transactor.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
						rows, err := tx.Query(ctx, "SELECT CONNECTION_ID()")
						if err != nil {
							return err
						}
						defer rows.Close()
						for rows.Next() {
							fixture.NoError(t, rows.Scan(&before))
						}
						return errors.Join(rows.Err(), fail)
					})
					after := fixture.Count(t, pool, "SELECT CONNECTION_ID()")
					fixture.Check(t, err != nil && before != 0 && after != before,
						"%s of %s, %s pool: connection %d, then %d; error %v",
						text, name, kind, before, after, err)
				}
			}
		}
	})
}
