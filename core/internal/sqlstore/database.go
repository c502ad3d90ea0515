package sqlstore

import (
	"context"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// database is what the databases do differently of what the stores share.
type database interface {
	words() map[string]word
	// guarded says whether an INSERT in a caller's transaction can see by itself that there is none
	// any more. Where it cannot, and others than the caller end transactions, it asks.
	guarded(ctx context.Context, tx core.Tx) (bool, error)
	// inserted tells by the number of affected rows whether an Insert has inserted.
	inserted(n int64) (bool, error)
}

// databaseOf makes what a dialect stands for. This and Each are the only places that tell the
// dialects apart.
func databaseOf(d core.Dialect) (database, bool) {
	switch d {
	case core.Postgres:
		return postgres{}, true
	case core.MySQL:
		return &mysql{}, true
	case core.SQLite:
		return sqlite{}, true
	default:
		return nil, false
	}
}

// Each has one value for each database.
type Each[T any] struct{ Postgres, MySQL, SQLite T }

// Of returns the value for the database of the names.
func (e Each[T]) Of(n Names) T {
	switch n.dialect {
	case core.Postgres:
		return e.Postgres
	case core.MySQL:
		return e.MySQL
	default: // Tables.Names knows no others
		return e.SQLite
	}
}

// conflict is for databases whose INSERT does nothing where there is a row, and counts that as 0
// rows.
type conflict struct{}

func (conflict) guarded(context.Context, core.Tx) (bool, error) { return false, nil }

func (conflict) inserted(n int64) (bool, error) { return n == 1, nil }

type postgres struct{ conflict }

func (postgres) words() map[string]word { return postgresWords }

type sqlite struct{ conflict }

func (sqlite) words() map[string]word { return sqliteWords }

// mysql is MariaDB or MySQL. It counts up a column of a row that is there.
type mysql struct{ flavor sqlkit.Flavor }

func (*mysql) words() map[string]word { return mysqlWords }

// guarded: MariaDB's INSERT can. MySQL is asked.
func (m *mysql) guarded(ctx context.Context, tx core.Tx) (bool, error) {
	mariadb, err := m.flavor.MariaDB(ctx, tx)
	if err == nil && !mariadb {
		err = sqlkit.StillOpen(ctx, tx)
	}
	return mariadb, err
}

// inserted: 1 for a row that was inserted, 2 for one that was there, whatever the driver counts.
func (*mysql) inserted(n int64) (bool, error) {
	if n == 0 {
		return false, fmt.Errorf("%w: the database has ended it", core.ErrTxAborted)
	}
	return n == 1, nil
}
