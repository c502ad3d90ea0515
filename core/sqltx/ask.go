package sqltx

import (
	"context"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// executor runs a statement of this package in the user's transaction.
type executor func(ctx context.Context, query string) error

const askTimeout = 10 * time.Second

// ask asks the database whether it still has the transaction and would commit it. The statement
// changes nothing in an open transaction. No answer counts as a no.
func (exec executor) ask(ctx context.Context, d core.Dialect) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	switch d {
	case core.Postgres: // an aborted transaction refuses it
		return exec(ctx, "SELECT 1") == nil
	case core.MySQL:
		open, err := sqlkit.MySQLHasTx(func(query string) error { return exec(ctx, query) })
		return open && err == nil
	case core.SQLite: // refused within a transaction; takes no lock
		err := exec(ctx, "BEGIN")
		if err == nil {
			_ = exec(ctx, "ROLLBACK")
			return false
		}
		return strings.Contains(err.Error(), "within a transaction")
	}
	return false
}

// guard is a savepoint around a statement whose effect on the transaction is not clear from its
// text. If the savepoint still exists afterwards, the transaction is the same, with all its
// savepoints.
const guard = "outbox_guard"

func (exec executor) setGuard(ctx context.Context) error { return exec(ctx, "SAVEPOINT "+guard) }

// releaseGuard reports to t what happened to the transaction since the guard was set. err is the
// error of the statement.
func (exec executor) releaseGuard(ctx context.Context, t *Tracker, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	released := exec(ctx, "RELEASE SAVEPOINT "+guard)
	t.Observe("", err)
	// PostgreSQL: the savepoint exists, and the transaction is aborted because the statement failed
	if released == nil || sqlerr.State(released) == "25P02" {
		return
	}
	// the statement may have committed or done something else: the outcome is unknown
	t.Observe("COMMIT", nil)
	t.Resolve(false)
}
