package sqltx

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// trackingTx is the transaction of a trackingConn.
type trackingTx struct {
	inner   driver.Tx
	conn    *trackingConn
	tracker *Tracker
}

func (t *trackingTx) Commit() error {
	defer t.leave()
	if err := t.conn.refused.standing(); err != nil {
		return t.rollbackInstead(err)
	}
	if err := t.conn.aborted(); err != nil {
		return t.rollbackInstead(err)
	}
	if c, ok := t.inner.(interface{ CommitOutcome() (core.Outcome, error) }); ok {
		outcome, err := c.CommitOutcome()
		t.conn.ended(err)
		return t.tracker.End(outcome, err)
	}
	return t.tracker.Commit(t.commit)
}

// commit sends COMMIT. SQLite leaves the transaction open when it refuses COMMIT (busy, a deferred
// foreign key), and not every driver ends it.
func (t *trackingTx) commit() error {
	err := t.inner.Commit()
	if err != nil && t.conn.dialect == core.SQLite {
		t.conn.ended(t.conn.exec(context.Background(), "ROLLBACK"))
	} else {
		t.conn.ended(err)
	}
	return err
}

// ended takes the error of the statement that was to end a transaction. If the transaction may be
// open, the pool must not use the connection again.
func (c *trackingConn) ended(err error) {
	if err != nil && mayBeOpen(c.dialect, err, c.driverState()) {
		c.unended = true
	}
}

// mayBeOpen reports whether a transaction may be open after the statement that was to end it has
// failed. On MySQL and MariaDB the next BEGIN would commit it. A node that its Galera cluster has cut
// off refuses even ROLLBACK.
func mayBeOpen(d core.Dialect, err error, state txState) bool {
	switch n := sqlerr.MySQL(err); {
	case state == stateNone, n == 1213, n == 3101, // deadlock, conflict in a group: the server has rolled back
		d == core.Postgres && sqlerr.State(err) != "", // it ends with each answer
		d == core.SQLite && strings.Contains(err.Error(), "no transaction is active"):
		return false
	}
	return true
}

// Rollback reports the outcome before it rolls back: COMMIT is sent no more. If the context of the
// transaction has ended, database/sql calls Rollback on a goroutine of its own, and the caller of
// the transaction, who does not wait for that goroutine, may have begun the next try.
func (t *trackingTx) Rollback() error {
	defer t.leave()
	t.tracker.RolledBack()
	err := t.rollback()
	t.conn.ended(err)
	return err
}

// rollbackTimeout is how long MySQL may take to answer ROLLBACK.
const rollbackTimeout = 5 * time.Second

// rollback rolls back. Rollback of go-sql-driver/mysql waits for the answer without limit (unless
// the DSN has a readTimeout), so that driver gets a text. A database that hangs would hold each
// caller that waits for the end of the transaction. After rollbackTimeout, the pool closes the
// connection, and the database rolls back when it notices that. The drivers of PostgreSQL end the
// wait with the context of the transaction. A driver around go-sql-driver must see the rollback.
func (t *trackingTx) rollback() error {
	e, ok := t.conn.inner.(driver.ExecerContext)
	if !ok || !isMySQLDriver(reflect.TypeOf(e)) {
		return t.inner.Rollback()
	}
	ctx, cancel := context.WithTimeout(context.Background(), rollbackTimeout)
	defer cancel()
	_, err := e.ExecContext(ctx, "ROLLBACK", nil)
	switch {
	case errors.Is(err, driver.ErrSkip):
		return t.inner.Rollback()
	case err != nil && ctx.Err() != nil: // the answer could be read as the next statement's
		return fmt.Errorf("%w: ROLLBACK was not answered within %s: %w", driver.ErrBadConn, rollbackTimeout, err)
	}
	return err
}

func (t *trackingTx) leave() {
	t.conn.readOnly = false
	if t.conn.tracker == t.tracker {
		t.conn.tracker, t.conn.refused = nil, nil
	}
}
