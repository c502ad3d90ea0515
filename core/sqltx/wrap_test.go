package sqltx_test

import (
	"database/sql"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// WrapTx does not look into a nil connection.
func TestWrapTxNil(t *testing.T) {
	for _, conn := range []sqltx.Conn{nil, (*sql.Tx)(nil), (*sql.Conn)(nil)} {
		equal(t, sqltx.WrapTx(conn, core.SQLite, nil).Dialect(), core.SQLite, "%T: dialect", conn)
	}
}
