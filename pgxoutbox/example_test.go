package pgxoutbox_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// A pool for GORM, Ent, Bun, sqlx or database/sql. No server is needed to open it.
func ExampleConnector() {
	config, err := pgx.ParseConfig("postgres://app@localhost:5432/shop")
	if err != nil {
		panic(err)
	}
	db := sql.OpenDB(pgxoutbox.Connector(pgxoutbox.Config{Conn: *config}))
	defer db.Close()

	fmt.Println(sqltx.DialectOf(db))
	// Output: postgres <nil>
}

// Rows of a COPY are part of the transaction.
func ExampleConn() {
	copyItems := func(ctx context.Context, db *sql.DB, rows [][]any) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		tx, err := conn.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		err = conn.Raw(func(dc any) error {
			own, err := pgxoutbox.Conn(dc)
			if err != nil {
				return err
			}
			_, err = own.CopyFrom(ctx, pgx.Identifier{"items"}, []string{"name"}, pgx.CopyFromRows(rows))
			return err
		})
		if err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = copyItems // needs a server
}
