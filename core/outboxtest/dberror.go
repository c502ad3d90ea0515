package outboxtest

import "github.com/ormoutbox/ormoutbox/core"

// errorKind is an error that a database reports.
type errorKind uint8

const (
	errUnique        errorKind = iota // the key exists
	errDeadlock                       // the transaction is the victim of a deadlock
	errTxAborted                      // PostgreSQL refuses statements after an error
	errNoSavepoint                    // ROLLBACK TO or RELEASE of an unknown name
	errCommitRefused                  // COMMIT failed and nothing is committed
	errConnection                     // the answer was lost
)

type dialectErrors struct {
	state  string // SQLSTATE
	number uint16 // MySQL
	code   int    // SQLite
	text   string
}

var databaseErrors = map[errorKind]dialectErrors{
	errUnique:        {"23505", 1062, 1555, "duplicate key"},
	errDeadlock:      {"40P01", 1213, 5, "deadlock found"},
	errTxAborted:     {"25P02", 1213, 1, "current transaction is aborted"},
	errNoSavepoint:   {"3B001", 1305, 1, "savepoint does not exist"},
	errCommitRefused: {"40001", 1180, 787, "commit refused"},
}

// databaseError returns an error that carries the code of the dialect the way its drivers do.
func databaseError(d core.Dialect, kind errorKind) error {
	if kind == errConnection {
		return errConnectionLost
	}
	e := databaseErrors[kind]
	switch d {
	case core.MySQL:
		return &mysqlError{Number: e.number, Message: e.text}
	case core.SQLite:
		return &sqliteError{code: e.code, text: e.text}
	case core.Postgres:
	}
	return &postgresError{code: e.state, text: e.text}
}

type postgresError struct{ code, text string }

func (e *postgresError) Error() string    { return "ERROR: " + e.text + " (SQLSTATE " + e.code + ")" }
func (e *postgresError) SQLState() string { return e.code }

type mysqlError struct {
	Number  uint16
	Message string
}

func (e *mysqlError) Error() string { return e.Message }

type sqliteError struct {
	code int
	text string
}

func (e *sqliteError) Error() string { return e.text }
func (e *sqliteError) Code() int     { return e.code }
