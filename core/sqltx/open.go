package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
)

// Open is sql.Open with Connector: every transaction of the pool is tracked. It does not connect.
// If d is empty, the driver tells the dialect as for Connector. An unknown driver is an error here.
func Open(driverName, dsn string, d core.Dialect) (*sql.DB, error) {
	plain, err := sql.Open(driverName, dsn)
	if err != nil {
		return nil, fmt.Errorf("sqltx: open the pool: %w", err)
	}
	drv := plain.Driver()
	if err := plain.Close(); err != nil { // it has never connected
		return nil, fmt.Errorf("sqltx: open the pool: %w", err)
	}
	var c driver.Connector = dsnConnector{drv, dsn}
	if dc, ok := drv.(driver.DriverContext); ok {
		if c, err = dc.OpenConnector(dsn); err != nil {
			return nil, fmt.Errorf("sqltx: open the pool: %w", err)
		}
	}
	return OpenDB(c, d)
}

// OpenDB is sql.OpenDB with Connector: Open for a driver that is configured by code. It returns the
// errors that Connector reports only when the pool connects.
func OpenDB(c driver.Connector, d core.Dialect) (*sql.DB, error) {
	tracking := Connector(c, d)
	if t, ok := tracking.(*trackingConnector); ok && t.err != nil {
		return nil, t.err
	}
	return sql.OpenDB(tracking), nil
}

// dsnConnector is the connector of a driver that has none, as in sql.Open.
type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }
