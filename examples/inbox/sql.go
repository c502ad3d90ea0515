package main

import (
	"context"
	"database/sql"
	"fmt"

	"modernc.org/sqlite"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

func openSQLite(path string) (*sql.DB, error) {
	connector, err := sqlite.NewConnector("file:" + path +
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=foreign_keys(1)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func openBank(name string, pool *sql.DB) (bank, error) {
	for _, query := range []string{
		"CREATE TABLE accounts (id TEXT PRIMARY KEY, cents INTEGER NOT NULL)",
		"INSERT INTO accounts VALUES ('ada', 0), ('bob', 0)",
	} {
		if _, err := pool.ExecContext(context.Background(), query); err != nil {
			return nil, err
		}
	}
	switch name {
	case "sql":
		return sqlBank{pool}, nil
	case "gorm":
		return newGORMBank(pool)
	case "bun":
		return newBunBank(pool), nil
	case "ent":
		return newEntBank(pool)
	}
	return nil, fmt.Errorf("no bank on %q", name)
}

// sqlBank is the bank on database/sql.
type sqlBank struct{ pool *sql.DB }

func (b sqlBank) Transactor() core.Transactor { return sqltx.NewTransactor(b.pool, core.SQLite) }

func (sqlBank) Credit(ctx context.Context, p Payment) error {
	tx, err := sqltx.FromContext(ctx)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "UPDATE accounts SET cents = cents + ? WHERE id = ?", p.Cents, p.Account)
	return err
}
