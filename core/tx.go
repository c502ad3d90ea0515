package core

import (
	"context"
	"errors"
	"fmt"
	"reflect"
)

// Dialect names a family of databases by the SQL they speak.
type Dialect string

// The supported dialects. MySQL stands for MariaDB too; the repository finds out which of the two
// it talks to.
const (
	Postgres Dialect = "postgres"
	MySQL    Dialect = "mysql"
	SQLite   Dialect = "sqlite"
)

// Outcome is how a transaction, or the part of it since a savepoint, ended.
type Outcome uint8

// Outcomes. Unknown means any doubt: a commit whose answer was lost, or a statement that failed on
// the way. What depends on the commit must not be done on Unknown; the poller finds what did
// commit.
const (
	Unknown Outcome = iota
	Committed
	RolledBack
)

// String returns unknown, committed or rolled_back.
func (o Outcome) String() string {
	switch o {
	case Unknown:
		return "unknown"
	case Committed:
		return "committed"
	case RolledBack:
		return "rolled_back"
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Tx is an open transaction: SQL can be run in it and its end can be heard. Adapters provide it.
// Like the transaction below it, a Tx is used by one goroutine at a time.
type Tx interface {
	// Exec runs a statement inside the transaction and returns the affected rows. It never retries.
	Exec(ctx context.Context, query string, args ...any) (int64, error)
	// Query runs a statement that returns rows. The caller closes them before the next statement.
	Query(ctx context.Context, query string, args ...any) (Rows, error)
	// Dialect says which SQL the database speaks.
	Dialect() Dialect
	// Tracked reports whether OnOutcome will hear the end of the transaction. If not, rows are
	// inserted for the poller.
	Tracked() bool
	// OnOutcome registers fn to be called exactly once when it is known how what has been written
	// so far ended: the transaction committed, or it or the savepoint around the call was rolled
	// back, or nobody can tell. Calls happen in the order of registration, on the goroutine that
	// ended the transaction. fn must not block, panic or use the transaction. On an untracked
	// transaction OnOutcome does nothing.
	OnOutcome(fn func(Outcome))
	// Err returns an error wrapping ErrTxAborted when what is written now can no longer be trusted
	// to be part of the transaction, one wrapping ErrNoTransaction when the transaction has ended,
	// else nil.
	Err() error
}

// Rows is the part of sql.Rows that repositories need.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close() error
}

// Transactor runs a function in a transaction: committed when fn returns nil, rolled back when it
// returns an error or panics. The context given to fn carries the transaction (see TxFromContext).
// A call within a transaction of the same Transactor runs fn in a savepoint.
//
// RunInTx returns nil only for a transaction that was heard to commit. fn may swallow an error
// after which there is nothing left to commit: the driver need not report that (PostgreSQL answers
// COMMIT by ROLLBACK, MySQL and MariaDB answer it well after a deadlock), the Transactor must. Such
// an error wraps ErrTxAborted; one wraps ErrCommitUnknown where nobody knows whether the
// transaction committed. tx is tracked, and the outcomes it reports agree with what RunInTx
// returns.
type Transactor interface {
	RunInTx(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error
}

// CheckTransactor returns an error when t can never begin a transaction: it is nil or a nil
// pointer, or has a method Validate() error that says why, as those of the adapters have. It does
// not ask the database. Call it where a Transactor is accepted, so that a mistake is told when the
// program starts.
func CheckTransactor(t Transactor) error {
	if v := reflect.ValueOf(t); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("the Transactor is nil: use that of the ORM adapter, or sqltx.NewTransactor")
	}
	if v, ok := t.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

type txKey struct{}

// ContextWithTx returns a context that carries tx.
func ContextWithTx(ctx context.Context, tx Tx) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}

// TxFromContext returns the transaction that ctx carries, if any.
func TxFromContext(ctx context.Context) (Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(Tx)
	return tx, ok
}
