package sqlstore

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// database has the parts of the stores that differ between the databases.
type database interface {
	words() map[string]word
	// guarded reports whether an INSERT in the caller's transaction can see by itself that the
	// transaction has ended. If the INSERT cannot, guarded asks the server, unless only the caller
	// can end a transaction.
	guarded(ctx context.Context, tx core.Tx) (bool, error)
	// inserted tells from the number of affected rows whether an Insert has inserted its row.
	inserted(n int64) (bool, error)
}

// databaseOf returns the database of a dialect. This function and Each are the only places that
// distinguish the dialects.
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
	default: // Tables.Names accepts no other dialect
		return e.SQLite
	}
}

// conflict is for databases whose INSERT does nothing if the row exists. Such a database counts 0
// affected rows.
type conflict struct{}

func (conflict) guarded(context.Context, core.Tx) (bool, error) { return false, nil }

func (conflict) inserted(n int64) (bool, error) { return n == 1, nil }

type postgres struct{ conflict }

func (postgres) words() map[string]word { return postgresWords }

type sqlite struct{ conflict }

func (sqlite) words() map[string]word { return sqliteWords }

// mysql is MariaDB or MySQL. Its INSERT increments a column if the row exists.
type mysql struct{ flavor sqlkit.Flavor }

func (*mysql) words() map[string]word { return mysqlWords }

// guarded returns true for MariaDB, whose INSERT sees an ended transaction. MySQL is asked.
func (m *mysql) guarded(ctx context.Context, tx core.Tx) (bool, error) {
	mariadb, err := m.flavor.MariaDB(ctx, tx)
	if err == nil && !mariadb {
		err = sqlkit.StillOpen(ctx, tx)
	}
	return mariadb, err
}

// inserted expects 1 for a row that was inserted and 2 for a row that existed. The setting of the
// driver for affected rows changes neither number.
func (*mysql) inserted(n int64) (bool, error) {
	if n == 0 {
		return false, sqlkit.ErrEnded
	}
	return n == 1, nil
}
