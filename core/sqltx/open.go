package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
)

// Open is sql.Open with Connector in it: a pool of which every transaction is tracked. It does not
// connect. An empty d is told from the driver as Connector does it; here it is an error when that
// cannot be done.
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

// OpenDB is sql.OpenDB with Connector in it: Open for a driver that is configured by code. What
// Connector reports when the pool connects is an error here.
func OpenDB(c driver.Connector, d core.Dialect) (*sql.DB, error) {
	tracking := Connector(c, d)
	if t, ok := tracking.(*trackingConnector); ok && t.err != nil {
		return nil, t.err
	}
	return sql.OpenDB(tracking), nil
}

// dsnConnector is what sql.Open makes of a driver that has no connectors.
type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }
