package sqlkit

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
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

// migrateName returns the name of one lock for each database. Names of locks have at most 64
// characters.
func migrateName(ctx context.Context, q Querier, schema string) (string, error) {
	if schema == "" {
		if _, err := FirstRow(ctx, q, "SELECT COALESCE(DATABASE(), '')", nil, &schema); err != nil {
			return "", err
		}
	}
	sum := sha256.Sum256([]byte(schema))
	return "ormoutbox_migrate_" + hex.EncodeToString(sum[:])[:40], nil
}

func (mysql) migrate(ctx context.Context, db *sql.DB, p Plan) (err error) {
	conn, err := db.Conn(ctx) // GET_LOCK belongs to a connection
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	s := onQuerier{On{conn}}
	name, err := migrateName(ctx, s, p.Schema)
	if err != nil {
		return err
	}
	var got sql.NullInt64
	// Vitess takes the function only as the whole SELECT.
	_, err = FirstRow(ctx, s, "SELECT GET_LOCK(?, 60)", []any{name}, &got)
	if hasNoLocks(err) {
		return p.apply(ctx, s)
	}
	if err != nil {
		return err
	}
	if got.Int64 != 1 {
		return errors.New("another process has been migrating these tables for a minute")
	}
	defer func() {
		_, rerr := conn.ExecContext(context.WithoutCancel(ctx), "SELECT RELEASE_LOCK(?)", name)
		err = errors.Join(err, rerr)
	}()
	return p.apply(ctx, s)
}

// hasNoLocks reports whether a server refused GET_LOCK: a shard of Vitess, and a Percona XtraDB
// Cluster in its strict mode. The steps then run without the lock, as they do in onTransactor.
func hasNoLocks(err error) bool {
	const unknown, unsupported = 1105, 1235
	n := sqlerr.MySQL(err)
	return n == unknown || n == unsupported
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
