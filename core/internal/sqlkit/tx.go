package sqlkit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/repeat"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// Retry runs fn, and runs it again after a deadlock or a serialization failure. It makes at most
// ten attempts within twenty seconds, after random pauses that grow. fn must be a transaction of
// its own. Never use Retry inside a transaction: on MariaDB a deadlock has rolled everything back.
func Retry(ctx context.Context, fn func() error) error {
	return repeat.Do(ctx, sqlerr.Retryable, fn)
}

// InTx runs fn in a transaction of its own and repeats it as Retry does. The transaction is READ
// COMMITTED. On SQLite it is BEGIN IMMEDIATE: a transaction that begins by reading would fail at
// its first write if another transaction had written meanwhile. If ctx ended the transaction, the
// error wraps ctx's error: database/sql returns only sql.ErrTxDone.
func InTx(ctx context.Context, db *sql.DB, d core.Dialect, fn func(c Conn) error) error {
	in := of(d)
	err := Retry(ctx, func() error { return in.inTx(ctx, db, fn) })
	if ended := ctx.Err(); ended != nil && errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("%w: %w", ended, err)
	}
	return err
}

// readCommitted is inTx for the databases that have this isolation.
type readCommitted struct{}

func (readCommitted) inTx(ctx context.Context, db *sql.DB, fn func(c Conn) error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// ErrEnded is the error of a statement that needs a transaction and finds that the database has
// ended it without an error. It wraps core.ErrTxAborted, and core.ErrCommitUnknown: the statements
// since then were committed one by one, so running the transaction again would repeat them.
var ErrEnded error = ended{}

type ended struct{}

func (ended) Error() string {
	return core.ErrCommitUnknown.Error() + ": the database had ended the transaction before its events were " +
		"written, and statements after that have committed one by one: read the business data to find out"
}

func (ended) Unwrap() []error { return []error{core.ErrTxAborted, core.ErrCommitUnknown} }

// StillOpen returns ErrEnded if a MySQL or MariaDB server no longer has the transaction. The server
// rolls back the victim of a deadlock, and an application may ignore that error. StillOpen is for
// untracked transactions, and costs a round trip (Vitess: four). Statements for MariaDB read
// @@in_transaction instead. MySQL has no such variable.
func StillOpen(ctx context.Context, tx core.Tx) error {
	if tx.Tracked() {
		return nil // the tracker has refused the statement already
	}
	open, err := MySQLHasTx(func(query string) error {
		_, err := tx.Exec(ctx, query)
		return err
	})
	if err == nil && !open {
		return ErrEnded
	}
	return err
}

// onlyVitess reads a variable that vtgate of Vitess has for each session. MySQL and MariaDB answer with
// noVariable. VERSION() does not tell: for a shard it is that of MySQL.
const (
	onlyVitess = "SELECT @@session_uuid"
	noVariable = 1193
)

// MySQLHasTx asks a server of the MySQL dialect whether it has a transaction. exec runs a statement
// in the session. Nothing changes in an open transaction.
//
// MySQL and MariaDB refuse the first statement within a transaction. Outside one, they set the access
// mode of the next transaction, and the ROLLBACK of the caller undoes that. Vitess accepts the
// statement anywhere, and has a savepoint only in a transaction.
func MySQLHasTx(exec func(query string) error) (bool, error) {
	const inProgress, noSavepoint = 1568, 1305
	var err error
	for _, query := range []string{
		"SET TRANSACTION READ WRITE", onlyVitess, "SAVEPOINT outbox_ask", "RELEASE SAVEPOINT outbox_ask",
	} {
		if err = exec(query); err != nil {
			break
		}
	}
	switch sqlerr.MySQL(err) {
	case inProgress:
		return true, nil
	case noVariable, noSavepoint:
		return false, nil
	}
	return err == nil, err
}
