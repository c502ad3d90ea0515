package sqloutbox

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// CheckTx implements core.TxChecker. A transaction that was begun on the pool of r costs nothing,
// and neither does one whose pool is not known, which passes. The first one of each other pool
// costs two short queries: in the transaction and on the pool of r. They name the database, on
// PostgreSQL with the table of events that the connection finds, on SQLite by its file. Databases
// of the same name on two servers are not told apart on MySQL and MariaDB, nor is anything there
// where Config.Schema is set.
func (r *Repository) CheckTx(ctx context.Context, tx core.Tx) error {
	if d := tx.Dialect(); d != r.dialect {
		return fmt.Errorf("%w: the transaction is one of %s and the outbox is in %s", core.ErrOtherDatabase, d,
			r.dialect)
	}
	t, ok := tx.(interface{ Pool() *sql.DB })
	if !ok {
		return nil
	}
	pool := t.Pool()
	if pool == nil || pool == r.db {
		return nil
	}
	if _, same := r.known.Load(pool); same {
		return nil
	}
	theirs, err := r.place(ctx, tx)
	if err != nil {
		return fmt.Errorf("sqloutbox: which database the transaction is in: %w", err)
	}
	ours, err := r.place(ctx, sqlkit.On{Conn: r.db})
	if err != nil {
		return nil //nolint:nilerr // the relay's pool may be out of order: that is no reason to refuse a transaction
	}
	if theirs != ours {
		return fmt.Errorf("%w: that is %q and the outbox is in %q", core.ErrOtherDatabase, theirs, ours)
	}
	r.known.Store(pool, true)
	return nil
}

func (r *Repository) place(ctx context.Context, q sqlkit.Querier) (name string, err error) {
	_, err = sqlkit.FirstRow(ctx, q, r.names.dialect.place(r.names), nil, &name)
	return name, err
}

func postgresPlace(n names) string {
	return "SELECT current_database() || ' ' || COALESCE(to_regclass('" + n.event + "')::oid::text, '')"
}

func mysqlPlace(n names) string {
	if n.schema != "" { // the tables are there, whatever the database of the connection
		return "SELECT ''"
	}
	return "SELECT COALESCE(DATABASE(), '')"
}

func sqlitePlace(names) string { return "SELECT file FROM pragma_database_list WHERE name = 'main'" }
