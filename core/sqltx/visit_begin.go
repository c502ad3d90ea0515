package sqltx

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// VisitOrBegin is Visit. But if the connection is in no transaction, it begins one within the same
// call of exec, and commits it when fn returns nil. So nobody needs to know whether exec runs on a
// pool, on a pinned connection or in a transaction, and a pool of one connection is enough. Began of
// the VisitedTx reports it. If fn returns an error or panics, that transaction is rolled back. An
// error of its COMMIT is that of VisitOrBegin.
//
// A transaction that was begun by a text, such as BEGIN, is not known, and refused with
// core.ErrUntracked.
func VisitOrBegin(ctx context.Context, exec func(ctx context.Context, query string) error,
	fn func(tx *VisitedTx) error,
) error {
	return (&visit{fn: fn, begin: true}).by(ctx, exec)
}

// visitInOwn is visit in a transaction of its own. If that cannot begin, the error is for
// database/sql, which may try another connection.
func (c *trackingConn) visitInOwn(ctx context.Context, v *visit) error {
	if c.inTextTx() {
		v.seen = true
		v.err = fmt.Errorf("%w: the connection of this statement is in one that was begun by a text: use BeginTx",
			core.ErrUntracked)
		return nil
	}
	// The end of ctx may end BEGIN. But some drivers use the context of BEGIN for COMMIT too.
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, cancel)
	tx, err := c.BeginTx(own, driver.TxOptions{})
	stop()
	if err != nil {
		return err
	}
	v.seen = true
	ended := false
	defer func() {
		if !ended { // fn panicked, or called runtime.Goexit
			_ = tx.Rollback()
		}
	}()
	v.err = own.Err()
	if v.err == nil {
		v.err = c.visited(v.fn, true)
	}
	ended = true
	if v.err != nil {
		_ = tx.Rollback() // if that fails, the connection is lost, and the changes with it
		return nil
	}
	v.err = tx.Commit()
	return nil
}

// inTextTx reports whether the connection is in a transaction that no tracker follows.
func (c *trackingConn) inTextTx() bool {
	state := c.driverState()
	return c.textTx || state != stateNone && c.state != nil
}

// noteText notes a text that begins or ends such a transaction.
func (c *trackingConn) noteText(query string, err error) {
	query = strings.TrimLeft(query, " \t\r\n;")
	is := func(word string) bool { return len(query) >= len(word) && strings.EqualFold(query[:len(word)], word) }
	ends := is("COMMIT") || is("END") || is("ABORT") ||
		is("ROLLBACK") && !strings.Contains(strings.ToUpper(query), " TO ")
	switch {
	case err != nil && ends && c.dialect == core.MySQL: // SQLite lets the program try again
		c.ended(err)
	case err != nil:
	case is("BEGIN"), is("START TRANSACTION"):
		c.textTx = true
	case ends:
		c.textTx = false
	}
}
