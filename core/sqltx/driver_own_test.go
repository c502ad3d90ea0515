package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// logged is a driver's connection in a wrapper of others.
type logged struct{ driver.Conn }

func (l logged) Raw() driver.Conn { return l.Conn }

type loggedConnector struct{ driver.Connector }

func (c loggedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return logged{conn}, err
}

func TestDriverConn(t *testing.T) {
	d := newFake()
	for name, c := range map[string]driver.Connector{
		"alone":                d,
		"Connector":            sqltx.Connector(d, core.Postgres),
		"wrapper inside":       sqltx.Connector(loggedConnector{d}, core.Postgres),
		"wrapper outside":      loggedConnector{sqltx.Connector(d, core.Postgres)},
		"Connector on its own": sqltx.Connector(sqltx.Connector(d, core.Postgres), core.Postgres),
	} {
		db := sql.OpenDB(c)
		conn, err := db.Conn(t.Context())
		must(t, err)
		must(t, conn.Raw(func(dc any) error {
			if own, err := sqltx.DriverConn[*fakeFullConn](dc); err != nil || own.d != d {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := sqltx.DriverConn[driver.Validator](dc); err != nil {
				t.Errorf("%s, an interface: %v", name, err)
			}
			_, err := sqltx.DriverConn[*fakeRows](dc)
			const want = "sqltx: the driver's connection is a *sqltx_test.fakeFullConn, not a *sqltx_test.fakeRows"
			if err == nil || err.Error() != want {
				t.Errorf("%s: %v, want %s", name, err, want)
			}
			return nil
		}))
		must(t, conn.Close())
		must(t, db.Close())
	}
}

// Savepoints that are set and rolled back through the driver's connection are not seen. So nobody
// may believe that the events of the transaction have committed.
func TestDriverConnInATransaction(t *testing.T) {
	d := newFake()
	db := d.open(t, sqltx.Connector(d, core.Postgres))
	for used, want := range map[bool]core.Outcome{false: core.Committed, true: core.Unknown} {
		conn, err := db.Conn(t.Context())
		must(t, err)
		tx, err := conn.BeginTx(t.Context(), nil)
		must(t, err)
		otx, err := sqltx.TxOf(t.Context(), tx)
		must(t, err)
		var got []core.Outcome
		otx.OnOutcome(func(o core.Outcome) { got = append(got, o) })
		if used {
			must(t, conn.Raw(func(dc any) error {
				_, err := sqltx.DriverConn[driver.Conn](dc)
				return err
			}))
		}
		must(t, otx.Err())
		must(t, tx.Commit())
		if len(got) != 1 || got[0] != want {
			t.Errorf("used %t: the outcome is %v, want %v", used, got, want)
		}
		must(t, conn.Close())
	}
}
