package sqlkit

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// mysql is MariaDB or MySQL; see Flavor.
type mysql struct{ readCommitted }

// maxIdent returns 64, because the servers refuse longer names.
func (mysql) maxIdent() int { return 64 }

func (mysql) quote(ident string) string { return "`" + ident + "`" }

func (mysql) schemas() bool { return true }

func (mysql) rebind(query string) string { return query }

// askVersion asks for the comment too: a setting of TiDB changes its VERSION().
func (mysql) askVersion() string { return "SELECT CONCAT(VERSION(), ' ', @@version_comment)" }

func (mysql) readOnly() string { return "SELECT @@global.read_only" }

func (mysql) tableOptions() string { return " ENGINE = InnoDB" }

func (mysql) catalog(p Plan, table string) catalog {
	return catalog{
		columns: `SELECT column_name, column_type, COALESCE(RIGHT(collation_name, 4) = '_bin', 1)
FROM information_schema.columns
WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?`,
		collations: true,
		indexes: `SELECT DISTINCT index_name FROM information_schema.statistics
WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?`,
		engine: `SELECT engine FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), ` +
			`DATABASE()) AND table_name = ?`,
		args: []any{p.Schema, table},
	}
}

// migrateName is the name of one lock for each database. Names of locks have at most 64 characters.
const migrateName = "CONCAT('ormoutbox_migrate_', LEFT(SHA2(COALESCE(NULLIF(?, ''), DATABASE(), ''), 256), 40))"

func (mysql) migrate(ctx context.Context, db *sql.DB, p Plan) (err error) {
	conn, err := db.Conn(ctx) // GET_LOCK belongs to a connection
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	s := onQuerier{On{conn}}
	var session string
	if _, err := FirstRow(ctx, s, onlyVitess, nil, &session); err == nil {
		// A shard of Vitess has no GET_LOCK, and vtgate may keep the lock of a migration of some
		// seconds. The steps then run without it, as they do in onTransactor.
		return p.apply(ctx, s)
	} else if sqlerr.MySQL(err) != noVariable {
		return err
	}
	got, err := s.ints(ctx, "SELECT COALESCE(GET_LOCK("+migrateName+", 60), 0)", p.Schema)
	if err != nil {
		return err
	}
	if len(got) == 0 || got[0] != 1 {
		return errors.New("another process has been migrating these tables for a minute")
	}
	defer func() {
		_, rerr := conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK("+migrateName+")", p.Schema)
		err = errors.Join(err, rerr)
	}()
	return p.apply(ctx, s)
}

func (mysql) migrateTx(ctx context.Context, t core.Transactor, p Plan) error {
	return p.apply(ctx, onTransactor{t})
}

// onTransactor runs each statement on its own, on MySQL and MariaDB. The servers commit after each
// change of the schema anyway. Several processes may do so at once, because every statement may be
// repeated.
type onTransactor struct{ core.Transactor }

var errApplied = errors.New("applied")

func (t onTransactor) exec(ctx context.Context, query string, args ...any) error {
	change := strings.HasPrefix(query, "CREATE") || strings.HasPrefix(query, "ALTER") ||
		strings.HasPrefix(query, "DROP")
	err := t.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		if err := (onQuerier{tx}).exec(ctx, query, args...); err != nil {
			return err
		}
		if change { // the statement has ended the transaction, which had no other change
			return errApplied
		}
		return nil
	})
	if errors.Is(err, errApplied) {
		return nil
	}
	return err
}

func (t onTransactor) ints(ctx context.Context, query string, args ...any) (all []int, err error) {
	err = t.RunInTx(ctx, func(ctx context.Context, tx core.Tx) (err error) {
		all, err = onQuerier{tx}.ints(ctx, query, args...)
		return err
	})
	return all, err
}
