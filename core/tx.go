package core

import (
	"context"
	"errors"
	"reflect"

	"github.com/ormoutbox/ormoutbox/core/internal/enum"
)

// Dialect names a family of databases by the SQL they speak.
type Dialect string

// The supported dialects. MySQL stands for MariaDB too; the repository finds out which server it
// has.
const (
	Postgres Dialect = "postgres"
	MySQL    Dialect = "mysql"
	SQLite   Dialect = "sqlite"
)

// Outcome is the end of a transaction, or of its part since a savepoint.
type Outcome uint8

// Outcomes of a transaction. Unknown means any doubt: a commit whose answer was lost, or a
// statement that failed on the way. Work that depends on the commit must not be done on Unknown.
// The poller finds events that did commit.
const (
	Unknown Outcome = iota
	Committed
	RolledBack
)

var outcomeNames = []string{Unknown: "unknown", Committed: "committed", RolledBack: "rolled_back"}

// String returns unknown, committed or rolled_back.
func (o Outcome) String() string { return enum.Name(outcomeNames, o, "outcome") }

// Tx is an open transaction: it runs SQL and reports its end. Adapters provide it. Like the
// transaction below it, a Tx is used by one goroutine at a time.
type Tx interface {
	// Exec runs a statement inside the transaction and returns the affected rows. It never retries.
	Exec(ctx context.Context, query string, args ...any) (int64, error)
	// Query runs a statement that returns rows. The caller closes them before the next statement.
	Query(ctx context.Context, query string, args ...any) (Rows, error)
	// Dialect returns the SQL dialect of the database.
	Dialect() Dialect
	// Tracked reports whether OnOutcome will report the end of the transaction. If not, rows are
	// inserted for the poller.
	Tracked() bool
	// OnOutcome registers fn to be called exactly once, when the end of everything written so far
	// is known: the transaction committed, or the transaction or the savepoint around the call was
	// rolled back, or the outcome stays unknown. Calls happen in the order of registration, on the
	// goroutine that ended the transaction. fn must not block, panic or use the transaction. On an
	// untracked transaction OnOutcome does nothing.
	OnOutcome(fn func(Outcome))
	// Err returns an error wrapping ErrTxAborted if further writes can no longer be trusted to be
	// part of the transaction. It returns an error wrapping ErrNoTransaction if the transaction has
	// ended, else nil.
	Err() error
}

// Rows is the part of sql.Rows that repositories need.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close() error
}

// Transactor runs a function in a transaction. It commits if fn returns nil, and rolls back if fn
// returns an error or panics. The context given to fn carries the transaction (see TxFromContext).
// A call within a transaction of the same Transactor runs fn in a savepoint. Transactors of one ORM
// on one pool count as the same. If the context carries a transaction that is over, as in a
// function given to AfterCommit, the error wraps ErrNoTransaction: use the context from before
// RunInTx. If it carries an open transaction of the same pool that something else began, the error
// wraps ErrOtherTransactor.
//
// RunInTx returns nil only for a transaction that is known to have committed. fn may swallow an
// error after which there is nothing left to commit. The driver need not report that: PostgreSQL
// answers COMMIT by ROLLBACK, and MySQL and MariaDB report success after a deadlock. The Transactor
// must report it with an error that wraps ErrTxAborted. The error wraps ErrCommitUnknown if the
// outcome is unknown. tx is tracked, and the outcomes that it reports agree with the result of
// RunInTx.
type Transactor interface {
	RunInTx(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error
}

// CheckTransactor returns an error if t can never begin a transaction: t is nil or a nil pointer,
// or its method Validate() error returns an error. The Transactors of the adapters have that
// method. CheckTransactor does not ask the database. Call it where your API accepts a Transactor,
// so that a mistake shows when the program starts.
func CheckTransactor(t Transactor) error {
	if v := reflect.ValueOf(t); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("the Transactor is nil: use the ORM adapter's, or sqltx.NewTransactor")
	}
	if v, ok := t.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

type txKey struct{}

// ContextWithTx returns a context that carries tx. With a nil tx the context carries none.
func ContextWithTx(ctx context.Context, tx Tx) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}

// TxFromContext returns the transaction that ctx carries, if any.
func TxFromContext(ctx context.Context) (Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(Tx)
	return tx, ok
}
