package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"
)

// txState is a driver's knowledge of the transaction on its connection.
type txState byte

const (
	stateUnknown txState = iota
	stateOpen
	stateFailed // PostgreSQL refuses every statement
	stateNone
)

// stateOf returns a function that asks a driver for the state of its transaction without a round
// trip. Drivers with a method TxStatus() byte, pgx, lib/pq, go-sql-driver/mysql and
// mattn/go-sqlite3 know the state from the latest answer of the server. The result is nil for other
// drivers. No driver is imported for that.
func stateOf(conn driver.Conn) func() txState {
	for {
		if c, ok := conn.(interface{ TxStatus() byte }); ok {
			return func() txState { return postgresState(c.TxStatus()) }
		}
		inner, ok := conn.(interface{ Raw() driver.Conn }) // wrappers of drivers have this method
		if !ok {
			break
		}
		conn = inner.Raw()
	}
	if c, ok := conn.(interface{ AutoCommit() bool }); ok { // mattn/go-sqlite3
		return func() txState {
			if c.AutoCommit() {
				return stateNone
			}
			return stateOpen
		}
	}
	if status := pgxStatus(conn); status != nil {
		return func() txState { return postgresState(status()) }
	}
	v := reflect.ValueOf(conn)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return nil
	}
	v = v.Elem()
	switch v.Type().PkgPath() {
	case "github.com/lib/pq":
		if f := v.FieldByName("txnStatus"); f.Kind() == reflect.Uint8 {
			return func() txState { return postgresState(byte(f.Uint())) }
		}
	case mysqlDriver:
		if f := v.FieldByName("status"); f.Kind() == reflect.Uint16 {
			return func() txState {
				// SERVER_STATUS_IN_TRANS of the latest answer without an error
				const inTransaction = 1
				if f.Uint()&inTransaction == 0 {
					return stateNone
				}
				return stateUnknown
			}
		}
	}
	return nil
}

// stateNow asks a driver once.
func stateNow(conn driver.Conn) txState {
	if ask := stateOf(conn); ask != nil {
		return ask()
	}
	return stateUnknown
}

const mysqlDriver = "github.com/go-sql-driver/mysql"

// isMySQLDriver reports whether a type is the connection of go-sql-driver/mysql.
func isMySQLDriver(t reflect.Type) bool {
	return t != nil && t.Kind() == reflect.Pointer && t.Elem().PkgPath() == mysqlDriver
}

// stateInTx is stateOf for a transaction on a connection that is not tracked. It asks only
// go-sql-driver/mysql: the other databases refuse statements after the end of a transaction. A node
// of a Galera cluster does not if it executes a prepared statement meanwhile.
func stateInTx(ctx context.Context, conn TxConn) (state txState) {
	inMySQL(ctx, conn, func(_ *sql.Tx, own driver.Conn) { state = stateNow(own) })
	return state
}

// inMySQL calls fn with the connection of a transaction of go-sql-driver/mysql. database/sql
// converts arguments while it holds the connection, and nobody can end the transaction meanwhile.
func inMySQL(ctx context.Context, conn TxConn, fn func(tx *sql.Tx, own driver.Conn)) {
	tx := sqlTx(conn)
	if tx == nil {
		return
	}
	_, _ = tx.ExecContext(ctx, "", held(func() {
		if own := driversOwn(connOfTx(tx)); isMySQLDriver(reflect.TypeOf(own)) {
			fn(tx, own)
		}
	}))
}

// sqlTx returns the transaction of database/sql that a TxConn is, or nil.
func sqlTx(conn TxConn) *sql.Tx {
	if of, in := conn.(interface{ SQLTx() *sql.Tx }); in {
		return of.SQLTx()
	}
	tx, _ := conn.(*sql.Tx)
	return tx
}

// driversOwn returns the driver's connection behind wrappers.
func driversOwn(conn driver.Conn) driver.Conn {
	for {
		inner, ok := conn.(interface{ Raw() driver.Conn }) // wrappers of drivers have this method
		if !ok {
			return conn
		}
		conn = inner.Raw()
	}
}

// held is an argument that is called when a statement is about to be sent, and prevents that.
type held func()

// Value implements driver.Valuer.
func (h held) Value() (driver.Value, error) {
	h()
	return nil, errHeld
}

var errHeld = errors.New("sqltx: this statement is not to be sent")

// connOfTx returns the driver's connection of a transaction that cannot end meanwhile. database/sql
// keeps it in fields that it does not export; where they are others some day, the result is nil.
func connOfTx(tx *sql.Tx) driver.Conn {
	dc := reflect.ValueOf(tx).Elem().FieldByName("dc")
	if dc.Kind() != reflect.Pointer || dc.IsNil() || dc.Type().Elem().Kind() != reflect.Struct {
		return nil
	}
	f := dc.Elem().FieldByName("ci")
	if !f.IsValid() || f.Type() != reflect.TypeFor[driver.Conn]() {
		return nil
	}
	return *(*driver.Conn)(f.Addr().UnsafePointer())
}

// pgxStatus finds PgConn.TxStatus behind pgx's connection for database/sql.
func pgxStatus(conn driver.Conn) func() byte {
	status := method(called(method(pgxConn(conn), "PgConn")), "TxStatus")
	if !status.IsValid() {
		return nil
	}
	f, _ := reflect.TypeAssert[func() byte](status)
	return f
}

// pgxConn returns the *pgx.Conn behind pgx's connection for database/sql. For another connection it
// returns the zero Value.
func pgxConn(conn driver.Conn) reflect.Value {
	v := reflect.ValueOf(conn)
	if v.Kind() != reflect.Pointer || v.Type().Elem().PkgPath() != "github.com/jackc/pgx/v5/stdlib" {
		return reflect.Value{}
	}
	return called(method(v, "Conn"))
}

// method returns a method of a pointer, or the zero Value.
func method(v reflect.Value, name string) reflect.Value {
	if !v.IsValid() || v.Kind() != reflect.Pointer || v.IsNil() {
		return reflect.Value{}
	}
	return v.MethodByName(name)
}

// called returns the result of a method without parameters, or the zero Value.
func called(m reflect.Value) reflect.Value {
	if !m.IsValid() || m.Type().NumIn() != 0 || m.Type().NumOut() != 1 {
		return reflect.Value{}
	}
	return m.Call(nil)[0]
}

func postgresState(status byte) txState {
	switch status {
	case 'T':
		return stateOpen
	case 'E':
		return stateFailed
	case 'I':
		return stateNone
	}
	return stateUnknown
}

// poolOf returns the pool of a *sql.Tx or a *sql.Conn, or nil. database/sql keeps it in an
// unexported field; poolOf returns nil if a later version has changed the field.
func poolOf(conn Conn) *sql.DB {
	v := reflect.ValueOf(conn)
	switch conn.(type) {
	case *sql.Tx, *sql.Conn:
	default:
		return nil
	}
	if v.IsNil() {
		return nil
	}
	f := v.Elem().FieldByName("db")
	if !f.IsValid() || f.Type() != reflect.TypeFor[*sql.DB]() {
		return nil
	}
	return (*sql.DB)(f.UnsafePointer())
}
