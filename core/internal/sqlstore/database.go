package sqlstore

import (
	"context"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// database has the parts of the stores that differ between the databases.
type database interface {
	words() map[string]word
	// unless ends an INSERT that leaves an existing row with the same key alone. An INSERT of MySQL
	// cannot do that, and changes the row by otherwise.
	unless(key, otherwise string) string
	// replace ends an INSERT that sets columns of an existing row with the same key.
	replace(key string, columns []string) string
	// insert returns the texts of an Insert, which unless ends.
	insert(head, row, unless string) Insert
	// cleanup is Names.Cleanup.
	cleanup(n Names, table, old, key, is string) Cleanup
	// guarded reports whether an INSERT in the caller's transaction itself detects that the
	// transaction has ended. If the INSERT cannot, guarded asks the server, unless only the caller
	// can end a transaction.
	guarded(ctx context.Context, tx core.Tx) (bool, error)
	// inserted returns, by the number of affected rows, whether an Insert has inserted its row.
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

func (conflict) unless(key, _ string) string { return " ON CONFLICT (" + key + ") DO NOTHING" }

func (conflict) replace(key string, columns []string) string {
	set := make([]string, len(columns))
	for i, c := range columns {
		set[i] = c + " = excluded." + c
	}
	return " ON CONFLICT (" + key + ") DO UPDATE SET " + strings.Join(set, ", ")
}

func (conflict) insert(head, row, unless string) Insert {
	return Insert{Plain: head + "VALUES (" + row + ")" + unless}
}

func (conflict) guarded(context.Context, core.Tx) (bool, error) { return false, nil }

func (conflict) inserted(n int64) (bool, error) { return n == 1, nil }

type postgres struct{ conflict }

func (postgres) words() map[string]word { return postgresWords }

// cleanup deletes by the ctid of rows that it has locked. With an array of them, no planner can
// choose to read the whole table.
func (postgres) cleanup(n Names, table, old, _, _ string) Cleanup {
	return CleanupAtOnce(n.Statement("DELETE FROM " + table + " WHERE ctid = ANY (ARRAY(SELECT ctid FROM " + table +
		" WHERE " + old + " LIMIT ?::bigint FOR UPDATE SKIP LOCKED))"))
}

type sqlite struct{ conflict }

func (sqlite) words() map[string]word { return sqliteWords }

func (sqlite) cleanup(n Names, table, old, _, _ string) Cleanup {
	return CleanupAtOnce(n.Statement("DELETE FROM " + table + " WHERE rowid IN (SELECT rowid FROM " + table +
		" WHERE " + old + " LIMIT ?)"))
}

// mysql is MariaDB or MySQL. Its INSERT increments a column if the row exists.
type mysql struct{ flavor sqlkit.Flavor }

func (*mysql) words() map[string]word { return mysqlWords }

func (*mysql) unless(_, otherwise string) string { return " ON DUPLICATE KEY UPDATE " + otherwise }

func (*mysql) replace(_ string, columns []string) string {
	set := make([]string, len(columns))
	for i, c := range columns {
		set[i] = c + " = VALUES(" + c + ")"
	}
	return " ON DUPLICATE KEY UPDATE " + strings.Join(set, ", ")
}

func (*mysql) insert(head, row, unless string) Insert {
	return Insert{
		Plain:   head + "VALUES (" + row + ")" + unless,
		Guarded: head + "SELECT " + row + " FROM DUAL WHERE @@in_transaction = 1" + unless,
	}
}

func (*mysql) cleanup(n Names, table, old, key, is string) Cleanup {
	return &CleanupByKey{
		Find:    n.Statement("SELECT " + key + " FROM " + table + " WHERE " + old + " LIMIT ?{skip}"),
		Columns: strings.Count(key, ",") + 1,
		Delete:  func(keys int) string { return n.Statement("DELETE FROM " + table + " WHERE " + AnyOf(is, keys)) },
	}
}

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

// Insert is an INSERT of one row in a caller's transaction. It does not change the columns of a row
// that exists, except that MySQL and MariaDB increment its column seen. So the number of affected
// rows shows what happened, whichever rows the driver counts. A refused INSERT would take a shared
// lock instead, and transactions that wait for such a lock deadlock.
type Insert struct {
	Plain string
	// Guarded inserts nothing outside a transaction, because a deadlock whose error was ignored has
	// ended the caller's transaction. Only MariaDB can have this text.
	Guarded string
}

// Unless returns the end of an INSERT that leaves an existing row with the same key alone. On MySQL
// and MariaDB it changes the row by otherwise, such as "seen = seen + 1".
func (n Names) Unless(key, otherwise string) string { return n.database.unless(key, otherwise) }

// Replace returns the end of an INSERT that sets columns of an existing row with the same key.
func (n Names) Replace(key string, columns ...string) string { return n.database.replace(key, columns) }

// Insert returns the Insert of a row. head ends before VALUES, and unless is what Unless returns.
func (n Names) Insert(head, row, unless string) Insert {
	i := n.database.insert(head, row, unless)
	return Insert{Plain: n.Statement(i.Plain), Guarded: n.Statement(i.Guarded)}
}

// InsertText returns the text of an INSERT in a caller's transaction. If the text cannot check that
// the transaction is open, InsertText has checked it.
func (s *Store) InsertText(ctx context.Context, tx core.Tx, i Insert) (string, error) {
	guarded, err := s.database.guarded(ctx, tx)
	if guarded {
		return i.Guarded, err
	}
	return i.Plain, err
}

// Inserted returns, by the number of affected rows, whether an Insert has inserted its row. An
// error means that the transaction has ended.
func (s *Store) Inserted(n int64) (bool, error) { return s.database.inserted(n) }
