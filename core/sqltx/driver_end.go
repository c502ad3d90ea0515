package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"reflect"

	"github.com/ormoutbox/ormoutbox/core"
)

// endingTx is the driver's transaction on a connection that is not tracked. It closes the connection
// if the transaction may be open after COMMIT or ROLLBACK, so that no other transaction of the pool
// gets it.
type endingTx struct {
	driver.Tx
	conn driver.Conn
}

func (t endingTx) Commit() error { return t.ended(t.Tx.Commit()) }

func (t endingTx) Rollback() error { return t.ended(t.Tx.Rollback()) }

func (t endingTx) ended(err error) error {
	if err != nil && mayBeOpen(core.MySQL, err, stateNow(t.conn)) {
		_ = t.conn.Close() // database/sql holds the connection, and drops it
	}
	return err
}

// watchEnd puts an endingTx into a transaction of go-sql-driver/mysql. The other databases end a
// transaction with every answer to COMMIT or ROLLBACK, or refuse the next BEGIN.
func watchEnd(ctx context.Context, conn TxConn) {
	inMySQL(ctx, conn, func(tx *sql.Tx, own driver.Conn) {
		f := reflect.ValueOf(tx).Elem().FieldByName("txi")
		if !f.IsValid() || f.Type() != reflect.TypeFor[driver.Tx]() {
			return // database/sql keeps it elsewhere some day
		}
		txi := (*driver.Tx)(f.Addr().UnsafePointer())
		*txi = endingTx{Tx: *txi, conn: own}
	})
}
