package sqltx

import (
	"database/sql/driver"
	"fmt"
	"reflect"
)

// DriverConn returns the driver's own connection behind dc, for calls that only the driver has: COPY
// of pgx, backup of SQLite, results of several statements of MySQL. dc is what sql.Conn.Raw gives to
// its function. With Connector that is a connection of this package, so that an assertion to a type
// of the driver fails. T is that type, or an interface with the methods that are needed. DriverConn
// also passes through other wrappers that have a method Raw() driver.Conn, such as those of otelsql,
// and works on pools without Connector.
//
//	err := conn.Raw(func(dc any) error {
//		own, err := sqltx.DriverConn[*stdlib.Conn](dc)
//		if err != nil {
//			return err
//		}
//		_, err = own.Conn().CopyFrom(ctx, table, columns, rows)
//		return err
//	})
//
// Use the result only within Raw. If a transaction is open on the connection, what the result does
// is part of it, and nobody sees it: the poller publishes the events of this transaction. Do not end
// the transaction with the result, and roll it back after an error.
func DriverConn[T any](dc any) (own T, err error) {
	for {
		if c, ok := dc.(*trackingConn); ok && c.tracker != nil {
			c.tracker.Unseen()
		}
		inner, ok := dc.(interface{ Raw() driver.Conn }) // wrappers of drivers have this method
		if !ok {
			break
		}
		dc = inner.Raw()
	}
	own, ok := dc.(T)
	if !ok {
		return own, fmt.Errorf("sqltx: the driver's connection is a %T, not a %s", dc, reflect.TypeFor[T]())
	}
	return own, nil
}
