// Package sqlerr reads error codes from database errors without importing a driver: by the methods
// and the field names of the well-known drivers.
package sqlerr

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"
	"strings"
)

// State returns the SQLSTATE of a PostgreSQL error (pgx, lib/pq, bun's pgdriver), or "".
func State(err error) string {
	var s interface{ SQLState() string }
	if errors.As(err, &s) {
		return s.SQLState()
	}
	var f interface{ Field(byte) string } // pgdriver.Error
	if errors.As(err, &f) {
		return f.Field('C')
	}
	return ""
}

// MySQL returns the error number of a MySQL or MariaDB server error (go-sql-driver), or 0.
func MySQL(err error) int {
	return walk(err, func(e error) int {
		v := structOf(e)
		if v.Kind() != reflect.Struct {
			return 0
		}
		n, m := v.FieldByName("Number"), v.FieldByName("Message")
		if n.IsValid() && n.CanUint() && m.IsValid() && m.Kind() == reflect.String {
			return int(n.Uint())
		}
		return 0
	})
}

// SQLite returns the extended result code of an SQLite error (modernc, mattn), or 0.
func SQLite(err error) int {
	return walk(err, func(e error) int {
		if c, ok := e.(interface{ Code() int }); ok { // modernc.org/sqlite
			return c.Code()
		}
		v := structOf(e) // mattn/go-sqlite3: Code and ExtendedCode are integers
		if v.Kind() != reflect.Struct {
			return 0
		}
		c, x := v.FieldByName("Code"), v.FieldByName("ExtendedCode")
		if c.IsValid() && c.CanInt() && x.IsValid() && x.CanInt() {
			if x.Int() != 0 {
				return int(x.Int())
			}
			return int(c.Int())
		}
		return 0
	})
}

func structOf(e error) reflect.Value {
	v := reflect.ValueOf(e)
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	return v
}

// walk visits the error tree and returns the first non-zero code.
func walk(err error, code func(error) int) int {
	for err != nil {
		if c := code(err); c != 0 {
			return c
		}
		switch u := err.(type) { //nolint:errorlint // this code itself unwraps
		case interface{ Unwrap() error }:
			err = u.Unwrap()
		case interface{ Unwrap() []error }:
			for _, e := range u.Unwrap() {
				if c := walk(e, code); c != 0 {
					return c
				}
			}
			return 0
		default:
			return 0
		}
	}
	return 0
}

// UniqueViolation reports whether the database refused a row because its key exists.
func UniqueViolation(err error) bool {
	if State(err) == "23505" {
		return true
	}
	switch MySQL(err) {
	case 1062, 1586:
		return true
	}
	switch SQLite(err) {
	case 1555, 2067: // SQLITE_CONSTRAINT_PRIMARYKEY, SQLITE_CONSTRAINT_UNIQUE
		return true
	}
	return false
}

// mysqlConstraint has the errors after which MySQL and MariaDB have undone only the statement.
var mysqlConstraint = map[int]bool{
	1048: true,                                     // column cannot be null
	1062: true,                                     // duplicate key
	1169: true,                                     // unique constraint
	1216: true, 1217: true, 1451: true, 1452: true, // foreign key
	1364: true,                         // no default value
	1406: true,                         // data too long
	1264: true,                         // out of range
	1265: true, 1292: true, 1366: true, // truncated or incorrect value
	1557: true, 1586: true, 1761: true, 1762: true, // duplicate key, variants
	3819: true, 4025: true, // CHECK: MySQL, MariaDB
	1644: true, // SIGNAL from a trigger
}

// MySQLConstraint reports whether err is a violated constraint on MySQL or MariaDB. The statement
// is undone. The transaction goes on.
func MySQLConstraint(err error) bool { return mysqlConstraint[MySQL(err)] }

// SQLiteConstraint reports whether err is a violated constraint after which the transaction goes
// on. A trigger may have asked for a rollback, so its constraint is not one of them.
func SQLiteConstraint(err error) bool {
	c := SQLite(err)
	return c&0xff == 19 && c != 1811 // SQLITE_CONSTRAINT, SQLITE_CONSTRAINT_TRIGGER
}

// Retryable reports whether a transaction failed only because of other transactions. The caller may
// run the whole transaction again.
func Retryable(err error) bool {
	switch State(err) {
	case "40001", "40P01", "55P03":
		return true
	}
	switch MySQL(err) {
	case 1213, 1205, 1020:
		return true
	}
	switch SQLite(err) & 0xff {
	case 5, 6: // SQLITE_BUSY, SQLITE_LOCKED
		return true
	}
	return false
}

// mysqlOutage has the errors of a MySQL or MariaDB server that is not available at the moment, or
// not available to this client.
var mysqlOutage = map[int]bool{
	// too many connections, host blocked or not allowed, limit of a user
	1040: true, 1129: true, 1130: true, 1203: true, 1226: true,
	1044: true, 1045: true, 1049: true, 1698: true, // access denied, unknown database
	1021: true, 1037: true, 1041: true, 1114: true, // disk full, out of memory, table full
	// shutdown, connection ended
	1053: true, 1077: true, 1078: true, 1079: true, 1080: true, 1152: true, 1184: true, 1927: true, 4031: true,
	1158: true, 1159: true, 1160: true, 1161: true, 2006: true, 2013: true, // network
	1047: true, 1290: true, 1792: true, 1836: true, // not prepared (Galera), read-only
}

// Unavailable reports whether a database cannot be used at present, by any client or by this one.
// The database cannot be reached, is starting, stopping, full or read-only, has too many
// connections, refuses the password, or has ended the connection.
func Unavailable(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		return true
	}
	if s := State(err); len(s) == 5 {
		switch s[:2] {
		case "08", "28", "53", "58": // connection, authorisation, resources, system
			return true
		}
		switch s {
		case "57P01", "57P02", "57P03", "57P04", "57P05", "3D000", "25006", "25P03", "25P04":
			return true
		}
		return false
	}
	if n := MySQL(err); n != 0 {
		return mysqlOutage[n]
	}
	switch SQLite(err) & 0xff {
	case 10, 13, 14: // SQLITE_IOERR, SQLITE_FULL, SQLITE_CANTOPEN
		return true
	}
	return lostConnection(err)
}

// ReadOnly reports whether a server takes no writes: a standby, or a server that was set read-only.
// A transaction that was begun as read-only gets the same error on PostgreSQL.
func ReadOnly(err error) bool {
	n := MySQL(err)
	return n == 1290 || n == 1836 || State(err) == "25006"
}

// TimeLimit reports whether a time limit of the server ended a statement or its wait for a lock.
func TimeLimit(err error) bool {
	switch State(err) {
	case "57014", "55P03", "25P04": // statement_timeout, lock_timeout, transaction_timeout
		return true
	}
	switch MySQL(err) {
	case 1969, 3024, 1205: // max_statement_time, max_execution_time, innodb_lock_wait_timeout
		return true
	}
	return false
}

// PoolClosed reports whether the pool was closed by the program. database/sql and pgx say so only in
// a text.
func PoolClosed(err error) bool {
	return walk(err, func(e error) int {
		switch e.Error() {
		case "sql: database is closed", "closed pool":
			return 1
		}
		return 0
	}) != 0
}

// lostConnection recognises drivers that report a lost connection only in a text.
func lostConnection(err error) bool {
	return walk(err, func(e error) int {
		switch e.Error() {
		case "invalid connection", // go-sql-driver
			"conn closed": // pgx
			return 1
		}
		return 0
	}) != 0
}

// CommitRefused reports whether the error of COMMIT proves that nothing was committed, because the
// server itself refused. A lost connection, a timeout or a server that is shutting down proves
// nothing.
func CommitRefused(err error) bool {
	if err == nil || errors.Is(err, driver.ErrBadConn) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if errors.Is(err, sql.ErrTxDone) { // database/sql sent no COMMIT: the transaction had ended before
		return true
	}
	if s := State(err); len(s) == 5 {
		switch s[:2] {
		case "23", "25", "40", "44", "P0", "22", "42":
			// constraint, transaction state, rollback, check option, PL/pgSQL, data, syntax
			return s != "40003" // statement completion unknown
		}
		return false
	}
	if n := MySQL(err); n != 0 {
		return n == 1213 || n == 1205 || n == 1180 || n == 1792 || n == 1020
	}
	if c := SQLite(err); c != 0 {
		switch c & 0xff {
		case 5, 19:
			// BUSY: the transaction is still open and database/sql rolls it back; CONSTRAINT:
			// deferred foreign key
			return true
		}
		return false
	}
	return isRollbackTag(err)
}

// isRollbackTag recognises drivers that report that the server answered COMMIT with ROLLBACK.
// PostgreSQL does so for an aborted transaction.
func isRollbackTag(err error) bool {
	for e := err; e != nil; e = errors.Unwrap(e) {
		switch e.Error() {
		case "commit unexpectedly resulted in rollback", // pgx
			"pq: Could not complete operation in a failed transaction": // lib/pq
			return true
		}
	}
	return false
}

// MissingTable reports whether a statement failed because a table does not exist.
func MissingTable(err error) bool {
	return State(err) == "42P01" || MySQL(err) == 1146 ||
		SQLite(err) == 1 && strings.Contains(err.Error(), "no such table")
}

// mysqlValue has the errors for a value that does not fit its column or the character set of its
// connection.
var mysqlValue = map[int]bool{
	// range, truncation, character string, incorrect value, length
	1264: true, 1265: true, 1300: true, 1366: true, 1406: true,
	1267: true, 1270: true, 1271: true, 3854: true, 3988: true, // collations, conversions
	3819: true, 4025: true, // CHECK: MySQL, MariaDB
}

// RefusedValue reports whether the database refused a statement for one of its values. The database
// would refuse the value again.
func RefusedValue(err error) bool {
	if s := State(err); s != "" {
		return len(s) == 5 && s[:2] == "22" || s == "23514"
	}
	if n := MySQL(err); n != 0 {
		return mysqlValue[n]
	}
	switch SQLite(err) & 0xff {
	case 18, 19, 20: // TOOBIG, CONSTRAINT, MISMATCH
		return true
	}
	return false
}

// mysqlAway has the errors of a server that takes no connections, shuts down or takes no writes.
var mysqlAway = map[int]bool{
	1040: true, 1053: true, 1129: true, 1203: true, 1226: true, 1290: true, 1836: true, 1927: true, 2002: true,
	2003: true, 2006: true, 2013: true,
}

// Away reports whether an error concerns the database as a whole: it cannot be reached, is shutting
// down, is full or takes no writes. The statement is not at fault.
func Away(err error) bool {
	if errors.Is(err, sql.ErrConnDone) || errors.Is(err, driver.ErrBadConn) {
		return true
	}
	if s := State(err); len(s) == 5 {
		switch s[:2] {
		case "08", "53", "57", "58": // connection, resources, operator, system
			return true
		}
		return s == "25006" // read-only
	}
	if n := MySQL(err); n != 0 {
		return mysqlAway[n]
	}
	switch SQLite(err) & 0xff {
	case 5, 6, 8, 10, 13, 14: // BUSY, LOCKED, READONLY, IOERR, FULL, CANTOPEN
		return true
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if e.Error() == "invalid connection" { // go-sql-driver
			return true
		}
	}
	return false
}
