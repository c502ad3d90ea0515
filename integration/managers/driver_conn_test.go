package managers_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/driver/pgdriver"
	"modernc.org/sqlite"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

func typeOf(v any) string { return fmt.Sprintf("%T", v) }

// raw gives fn the driver's own connection.
func raw[T any](t *testing.T, conn *sql.Conn, fn func(own T) error) {
	t.Helper()
	fixture.NoError(t, conn.Raw(func(dc any) error {
		own, err := sqltx.DriverConn[T](dc)
		if err != nil {
			return err
		}
		return fn(own)
	}))
}

// COPY of pgx, in a transaction with an event.
func TestDriverConnCopy(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		plain := db.Open(t)
		fixture.MustExec(t, plain, "CREATE TABLE things (name VARCHAR(20) PRIMARY KEY)")
		fixture.NewRepository(t, plain, sqloutbox.Config{Dialect: db.Dialect})
		cfg, err := pgx.ParseConfig(db.DSN)
		fixture.NoError(t, err)
		for name, connector := range map[string]driver.Connector{
			"sqltx":     sqltx.Connector(db.Connector(t), ""),
			"pgxoutbox": pgxoutbox.Connector(pgxoutbox.Config{Conn: *cfg}),
		} {
			pool := sql.OpenDB(connector)
			ob, types := drained(t, pool, db.Dialect)
			conn, err := pool.Conn(t.Context())
			fixture.NoError(t, err)
			for _, commit := range []bool{false, true} {
				tx, err := conn.BeginTx(t.Context(), nil)
				fixture.NoError(t, err)
				raw(t, conn, func(own *stdlib.Conn) error {
					rows := pgx.CopyFromRows([][]any{{name + "1"}, {name + "2"}})
					_, err := own.Conn().CopyFrom(t.Context(), pgx.Identifier{"things"}, []string{"name"}, rows)
					return err
				})
				otx, err := sqltx.TxOf(t.Context(), tx)
				fixture.NoError(t, err)
				_, err = ob.Publish(t.Context(), otx, fixture.Event(name))
				fixture.NoError(t, err)
				if commit {
					fixture.NoError(t, tx.Commit())
				} else {
					fixture.NoError(t, tx.Rollback())
				}
			}
			fixture.NoError(t, conn.Close())
			fixture.NoError(t, ob.Drain(t.Context()))
			fixture.SameSet(t, "published", *types, []string{name})
			fixture.NoError(t, pool.Close())
		}
		if n := fixture.Count(t, plain, "SELECT COUNT(*) FROM things"); n != 4 {
			t.Errorf("%d rows, want 4", n)
		}
	})
}

// A backup of SQLite.
func TestDriverConnBackup(t *testing.T) {
	t.Parallel()
	pool := fixture.TrackedPool(t, testdb.SQLite(t))
	fixture.MustExec(t, pool, "CREATE TABLE things (name TEXT)")
	fixture.MustExec(t, pool, "INSERT INTO things (name) VALUES ('a')")
	path := filepath.Join(t.TempDir(), "copy.db")
	conn, err := pool.Conn(t.Context())
	fixture.NoError(t, err)
	raw(t, conn, func(own interface {
		NewBackup(dst string) (*sqlite.Backup, error)
	},
	) error {
		backup, err := own.NewBackup(path)
		if err != nil {
			return err
		}
		if _, err := backup.Step(-1); err != nil {
			return err
		}
		return backup.Finish()
	})
	fixture.NoError(t, conn.Close())
	backup := testdb.DB{Dialect: core.SQLite, DSN: "file:" + path}.Open(t)
	if n := fixture.Count(t, backup, "SELECT COUNT(*) FROM things"); n != 1 {
		t.Errorf("%d rows in the backup", n)
	}
}

// The counts of several statements of MySQL need the driver's connection. LOAD DATA does not: the
// driver reads from a handler by its name.
func TestDriverConnMySQL(t *testing.T) {
	t.Parallel()
	testdb.MariaDBAndMySQL(t, func(t *testing.T, db testdb.DB) {
		db.DSN += "&multiStatements=true"
		pool := fixture.TrackedPool(t, db)
		fixture.MustExec(t, pool, "CREATE TABLE things (name VARCHAR(20) PRIMARY KEY)")
		conn, err := pool.Conn(t.Context())
		fixture.NoError(t, err)
		raw(t, conn, func(own driver.ExecerContext) error {
			res, err := own.ExecContext(t.Context(),
				"INSERT INTO things (name) VALUES ('a'), ('b'); DELETE FROM things WHERE name = 'a'", nil)
			if err != nil {
				return err
			}
			if counts := res.(mysql.Result).AllRowsAffected(); len(counts) != 2 || counts[0] != 2 || counts[1] != 1 {
				t.Errorf("the counts are %v", counts)
			}
			return nil
		})
		fixture.NoError(t, conn.Close())
		if db.Name == "mysql" { // its server refuses LOCAL by default
			return
		}
		name := fixture.UniqueTopic("load")
		mysql.RegisterReaderHandler(name, func() io.Reader { return strings.NewReader("c\nd\n") })
		t.Cleanup(func() { mysql.DeregisterReaderHandler(name) })
		err = sqltx.NewTransactor(pool, core.MySQL).RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			_, err := tx.Exec(ctx, "LOAD DATA LOCAL INFILE 'Reader::"+name+"' INTO TABLE things (name)")
			return err
		})
		fixture.NoError(t, err)
		if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM things"); n != 3 {
			t.Errorf("%d rows, want 3", n)
		}
	})
}

// pgdriver.CopyFrom asserts the type of the connection itself, so it needs a pool without the
// connector.
func TestPgdriverCopyFrom(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		fixture.MustExec(t, db.Open(t), "CREATE TABLE things (name VARCHAR(20) PRIMARY KEY)")
		own := pgdriver.NewConnector(pgdriver.WithDSN(db.DSN), pgdriver.WithInsecure(true))
		bdb := bun.NewDB(sql.OpenDB(own), pgdialect.New())
		defer bdb.Close()
		conn, err := bdb.Conn(t.Context())
		fixture.NoError(t, err)
		defer conn.Close()
		res, err := pgdriver.CopyFrom(t.Context(), conn, strings.NewReader("a\nb\n"), "COPY things (name) FROM STDIN")
		fixture.NoError(t, err)
		n, err := res.RowsAffected()
		fixture.Check(t, err == nil && n == 2, "%d rows, %v", n, err)
	})
}
