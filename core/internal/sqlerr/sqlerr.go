// Package sqlerr reads error codes from database errors without importing a driver: by the methods
// and the field names of the well-known drivers.
package sqlerr

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
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

// oneOf reports whether code is in codes.
func oneOf[T comparable](code T, codes ...T) bool { return slices.Contains(codes, code) }

// UniqueViolation reports whether the database refused a row because its key exists.
func UniqueViolation(err error) bool {
	if State(err) == "23505" {
		return true
	}
	return oneOf(MySQL(err), 1062, 1586) ||
		oneOf(SQLite(err), 1555, 2067) // SQLITE_CONSTRAINT_PRIMARYKEY, SQLITE_CONSTRAINT_UNIQUE
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
// on. SQLITE_CONSTRAINT_TRIGGER is not included, because a trigger may have asked for a rollback.
func SQLiteConstraint(err error) bool {
	c := SQLite(err)
	return c&0xff == 19 && c != 1811 // SQLITE_CONSTRAINT, SQLITE_CONSTRAINT_TRIGGER
}

// Classify implements core.Repository.Classify for all databases.
func Classify(err error) core.ErrorKind {
	switch {
	case err == nil:
		return core.ErrorOther
	case PoolClosed(err):
		return core.ErrorPoolClosed
	case TimeLimit(err):
		return core.ErrorTimeLimit
	case busy(err):
		return core.ErrorUnavailable
	case conflict(err):
		return core.ErrorConflict
	case Unavailable(err):
		return core.ErrorUnavailable
	}
	return core.ErrorOther
}

// busy reports whether another transaction holds the whole database, as on SQLite.
func busy(err error) bool { return oneOf(SQLite(err)&0xff, 5, 6) } // SQLITE_BUSY, SQLITE_LOCKED

// Retryable is sqltx.Retryable.
func Retryable(err error) bool {
	if err == nil || errors.Is(err, core.ErrCommitUnknown) {
		return false
	}
	return errors.Is(err, core.ErrTxAborted) || conflict(err)
}

// conflict reports whether a transaction failed only because of other transactions. 3101 is the answer
// to a COMMIT that conflicts with another member of MySQL Group Replication.
func conflict(err error) bool {
	return oneOf(State(err), "40001", "40P01", "55P03") || oneOf(MySQL(err), 1213, 1205, 1020, 3101) ||
		busy(err)
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
	1158: true, 1159: true, 1160: true, 1161: true, 2002: true, 2003: true, 2006: true, 2013: true, // network
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
		return oneOf(s[:2], "08", "28", "53", "58") || // connection, authorisation, resources, system
			oneOf(s, "57000", "57P01", "57P02", "57P03", "57P04", "57P05", "3D000", "25006", "25P03", "25P04")
	}
	if n := MySQL(err); n != 0 {
		return mysqlOutage[n]
	}
	return oneOf(SQLite(err)&0xff, 8, 10, 13, 14) || // SQLITE_READONLY, SQLITE_IOERR, SQLITE_FULL, SQLITE_CANTOPEN
		lostConnection(err)
}

// ReadOnly reports whether a server takes no writes: a standby, or a server that was set read-only.
// A transaction that was begun as read-only gets the same error on PostgreSQL.
func ReadOnly(err error) bool {
	n := MySQL(err)
	return n == 1290 || n == 1836 || State(err) == "25006"
}

// TimeLimit reports whether a time limit of the server ended a statement or its wait for a lock.
func TimeLimit(err error) bool {
	return oneOf(State(err), "57014", "55P03", "25P04") || // statement_timeout, lock_timeout, transaction_timeout
		oneOf(MySQL(err), 1969, 3024, 1205) // max_statement_time, max_execution_time, innodb_lock_wait_timeout
}

// PoolClosed reports whether the pool was closed by the program. database/sql and pgx have only a
// text for it.
func PoolClosed(err error) bool {
	return says(err, "sql: database is closed", "closed pool")
}

// lostConnection recognises drivers that report a lost connection only in a text.
func lostConnection(err error) bool {
	return says(err, "invalid connection", "conn closed") // go-sql-driver, pgx
}

// says reports whether the text of err, or of an error that it wraps, is one of texts.
func says(err error, texts ...string) bool {
	return walk(err, func(e error) int {
		if slices.Contains(texts, e.Error()) {
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
		// constraint, transaction state, rollback, check option, PL/pgSQL, data, syntax
		return oneOf(s[:2], "23", "25", "40", "44", "P0", "22", "42") &&
			s != "40003" // statement completion unknown
	}
	if n := MySQL(err); n != 0 {
		// A Galera node that was cut off answers 1180 too. The others may have the transaction already.
		if n == 1180 && strings.Contains(err.Error(), "provider status") {
			return false
		}
		return oneOf(n, 1213, 1205, 1180, 1792, 1020, 3101)
	}
	if c := SQLite(err); c != 0 {
		// BUSY: the transaction is still open and database/sql rolls it back; CONSTRAINT: deferred
		// foreign key
		return oneOf(c&0xff, 5, 19)
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

// RefusedValue reports whether the database refused a statement because of a value. The database
// would refuse the value again.
func RefusedValue(err error) bool {
	if s := State(err); s != "" {
		return len(s) == 5 && s[:2] == "22" || s == "23514"
	}
	if n := MySQL(err); n != 0 {
		return mysqlValue[n]
	}
	return oneOf(SQLite(err)&0xff, 18, 19, 20) // TOOBIG, CONSTRAINT, MISMATCH
}
