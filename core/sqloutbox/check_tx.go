package sqloutbox

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
)

// CheckTx implements core.TxChecker. A transaction that was begun on the pool of r costs nothing,
// and neither does one whose pool is not known, which passes. The first one of each other pool
// costs one short query in the transaction. It names the database, on PostgreSQL with the table of
// events that the connection finds, on SQLite by its file. core.ErrOtherDatabase lists the limits.
//
// CheckTx never waits for the pool of r, because the transaction may hold what that pool needs.
// Migrate and Check learn the name of r's own database. Otherwise the first CheckTx that needs the
// name has it asked for in the background, and transactions of other pools pass until it is known.
func (r *Repository) CheckTx(ctx context.Context, tx core.Tx) error {
	if d := tx.Dialect(); d != r.dialect {
		return fmt.Errorf("%w: the transaction is one of %s and the outbox is in %s", core.ErrOtherDatabase, d,
			r.dialect)
	}
	pool := begunOn(tx)
	if pool == nil || r.same(pool) {
		return nil
	}
	other, met := r.home.neighbour(pool)
	if other.same {
		return nil
	}
	ours, known := r.home.known()
	if !met || known && other.place != ours { // the connection may find another table now
		var err error
		if other.place, err = r.place(ctx, tx); err != nil {
			return fmt.Errorf("sqloutbox: which database the transaction is in: %w", err)
		}
	}
	private := other.place == place{} && r.names.dialect.inMemory(pool)
	other.same = known && other.place == ours && !private
	r.home.met(pool, other)
	if !other.same {
		r.home.learn(r.own, r.each())
	}
	switch {
	case private:
		return fmt.Errorf("%w: that is another one in memory", core.ErrOtherDatabase)
	case known && !other.same:
		return fmt.Errorf("%w: that is %q and the outbox is in %q", core.ErrOtherDatabase, other.place, ours)
	}
	return nil
}

// begunOn returns the *sql.DB or the Pool that a transaction was begun on, nil if it is not known.
func begunOn(tx core.Tx) any {
	switch t := tx.(type) {
	case interface{ Pool() *sql.DB }:
		if db := t.Pool(); db != nil {
			return db
		}
	case interface{ Pool() Pool }:
		if p := t.Pool(); p != nil {
			return p
		}
	}
	return nil
}

func postgresPlace(n names) string {
	return "SELECT current_database(), COALESCE(to_regclass('" + n.event + "')::oid::text, '')"
}

func mysqlPlace(n names) string {
	if n.schema != "" { // the tables are there, whatever the database of the connection
		return "SELECT '', ''"
	}
	return "SELECT COALESCE(DATABASE(), ''), ''"
}

func sqlitePlace(names) string {
	return "SELECT file, '' FROM pragma_database_list WHERE name = 'main'"
}
