package sqlkit

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/ormoutbox/ormoutbox/core"
)

type sqlite struct{}

func (sqlite) maxIdent() int { return 63 }

func (sqlite) quote(ident string) string { return `"` + ident + `"` }

func (sqlite) schemas() bool { return false }

func (sqlite) rebind(query string) string { return query }

func (sqlite) askVersion() string { return "SELECT sqlite_version()" }

func (sqlite) readOnly() string { return "SELECT 0" }

func (sqlite) tableOptions() string { return "" }

// catalog returns the queries for SQLite. Only table_xinfo shows generated columns.
func (sqlite) catalog(_ Plan, table string) catalog {
	return catalog{
		columns: `SELECT name, type FROM pragma_table_xinfo(?)`,
		indexes: `SELECT name FROM pragma_index_list(?)`,
		args:    []any{table},
	}
}

func (sqlite) migrate(ctx context.Context, db *sql.DB, p Plan) error {
	return InTx(ctx, db, p.Dialect, func(c Conn) error { return p.apply(ctx, onSQLite{onQuerier{On{c}}}) })
}

func (sqlite) migrateTx(ctx context.Context, t core.Transactor, p Plan) error {
	return t.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error { return p.apply(ctx, onSQLite{onQuerier{tx}}) })
}

// onSQLite leaves out what adds a column that exists: SQLite has no ADD COLUMN IF NOT EXISTS.
type onSQLite struct{ onQuerier }

func (o onSQLite) exec(ctx context.Context, query string, args ...any) error {
	if c := addColumn.FindStringSubmatch(query); c != nil {
		there, err := o.ints(ctx, "SELECT 1 FROM pragma_table_xinfo(?) WHERE name = ?", plain(c[1]), c[2])
		if err != nil || len(there) > 0 {
			return err
		}
	}
	return o.onQuerier.exec(ctx, query, args...)
}

// inTx begins with BEGIN IMMEDIATE, which database/sql does not support.
func (sqlite) inTx(ctx context.Context, db *sql.DB, fn func(c Conn) error) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	// A driver reports the end of the context also for a BEGIN that has run, and nobody would end that
	// transaction. The busy_timeout of the connection bounds the wait.
	if _, err := conn.ExecContext(context.WithoutCancel(ctx), "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	committed := false
	defer func() {
		if committed {
			return
		}
		// The context may have ended. The connection must not go back to the pool with its
		// transaction open.
		if _, err := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK"); err != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
	}()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := fn(conn); err != nil {
		return err
	}
	_, err = conn.ExecContext(context.WithoutCancel(ctx), "COMMIT")
	committed = err == nil
	return err
}
