package repository_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/uptrace/bun"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// unsupported are servers whose clients and ORMs take them for PostgreSQL, MySQL or SQLite.
var unsupported = []struct {
	dialect       core.Dialect
	version, told string
}{
	{core.Postgres, "CockroachDB CCL v25.2.1 (x86_64-pc-linux-gnu, built 2025/06/11, go1.23.7)", "CockroachDB"},
	{core.Postgres, "PostgreSQL 15.12-YB-2.25.2.0-b0 on x86_64-pc-linux-gnu, compiled by clang 17.0.6", "YugabyteDB"},
	{core.Postgres, "PostgreSQL 11.22 (Debian 11.22-0) on x86_64-pc-linux-gnu, 64-bit", "PostgreSQL 11.22"},
	{core.MySQL, "8.0.11-TiDB-v8.5.1", "TiDB"},
	{core.MySQL, "8.0.40 TiDB Server (Apache License 2.0) Community Edition, MySQL 8.0 compatible", "TiDB"},
	{core.MySQL, "5.7.44-log MySQL Community Server (GPL)", "MySQL 5.7.44"},
	{core.MySQL, "8.0.15 MySQL Community Server - GPL", "MySQL 8.0.15"},
	{core.MySQL, "10.5.29-MariaDB-0+deb11u1 Debian 11", "MariaDB 10.5.29"},
	{core.MySQL, "5.5.5-10.5.29-MariaDB mariadb.org binary distribution", "MariaDB 10.5.29"},
	{core.SQLite, "3.34.1", "SQLite 3.34.1"},
}

// serverThatSays returns a database that answers with the version.
func serverThatSays(t *testing.T, d core.Dialect, version string) testdb.DB {
	t.Helper()
	switch d {
	case core.Postgres:
		db, say := fixture.PostgresThatSays(t, version)
		say()
		return db
	case core.MySQL:
		return fixture.MySQLThatSays(t, version)
	default:
		db := testdb.SQLite(t)
		db.Wrap = func(c driver.Connector) driver.Connector { return oldSQLite{c, version} }
		return db
	}
}

// A server that is too old, or that only speaks the protocol of another, is refused where the program
// starts, whatever dialect the ORM names. The error says what to do.
func TestUnsupportedServersAreRefused(t *testing.T) {
	t.Parallel()
	openers := map[string]func(t *testing.T, db testdb.DB) error{
		"gorm": func(t *testing.T, db testdb.DB) error {
			gdb, err := gorm.Open(adapters.GORMDialector(db, db.Open(t)), &gorm.Config{Logger: logger.Discard})
			fixture.NoError(t, err)
			return gdb.Use(gormoutbox.Plugin(gormoutbox.Config{}))
		},
		"ent": func(t *testing.T, db testdb.DB) error {
			_, err := entoutbox.New(entsql.OpenDB(adapters.EntDialect(db), db.Open(t)), entoutbox.Config{})
			return err
		},
		"bun": func(t *testing.T, db testdb.DB) error {
			_, err := bunoutbox.New(bun.NewDB(db.Open(t), adapters.BunDialect(db)), bunoutbox.Config{})
			return err
		},
		"sql": func(t *testing.T, db testdb.DB) error {
			_, err := sqloutbox.New(db.Open(t), sqloutbox.Config{})
			return err
		},
		"sqlOpen": func(t *testing.T, db testdb.DB) error {
			cfg := sqloutbox.OpenConfig{Dialect: db.Dialect}
			pool, _, err := sqloutbox.OpenConnector(t.Context(), db.Connector(t), cfg)
			if err == nil {
				return pool.Close()
			}
			return err
		},
		"inbox": func(t *testing.T, db testdb.DB) error {
			_, err := sqlinbox.New(db.Open(t), sqlinbox.Config{})
			return err
		},
		"inboxOn": func(t *testing.T, db testdb.DB) error {
			store, err := sqlinbox.On(sqltx.NewTransactor(db.Open(t), db.Dialect), sqlinbox.Config{})
			fixture.NoError(t, err)
			return store.Transactor().RunInTx(t.Context(), func(context.Context, core.Tx) error { return nil })
		},
		"once": func(t *testing.T, db testdb.DB) error {
			_, err := sqlonce.New(db.Open(t), sqlonce.Config{})
			return err
		},
		"command": func(t *testing.T, db testdb.DB) error {
			_, err := sqlcommand.New(db.Open(t), sqlcommand.Config{})
			return err
		},
	}
	postgres := map[string]func(t *testing.T, db testdb.DB) error{
		"pgx": func(t *testing.T, db testdb.DB) error {
			pool, _, err := pgxoutbox.Open(t.Context(), db.DSN, pgxoutbox.OpenConfig{Dialect: core.Postgres})
			if err == nil {
				pool.Close()
			}
			return err
		},
	}
	for _, server := range unsupported {
		db := serverThatSays(t, server.dialect, server.version)
		refused := func(way string, err error) {
			t.Helper()
			if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "the server is "+server.told) ||
				!strings.Contains(err.Error(), "keep the tables in PostgreSQL 12") {
				t.Errorf("%s on %s: %v", way, server.version, err)
			}
		}
		for way, open := range openers {
			refused(way, open(t, db))
		}
		if server.dialect == core.Postgres {
			for way, open := range postgres {
				refused(way, open(t, db))
			}
		}
	}
}

// Only Config.Dialect of the tables lets a program use such a server. Run warns of it.
func TestUnsupportedServersThatAreNamed(t *testing.T) {
	t.Parallel()
	for _, server := range unsupported {
		db := serverThatSays(t, server.dialect, server.version)
		repo, err := sqloutbox.New(db.Open(t), sqloutbox.Config{Dialect: db.Dialect})
		fixture.NoError(t, err)
		if err := repo.Check(t.Context()); errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: Check refuses it: %v", server.version, err)
		}
		got, err := repo.Warnings(t.Context())
		fixture.NoError(t, err)
		fixture.Check(t, len(got) == 1 && strings.Contains(got[0].Found, server.told), "%s: %+v", server.version, got)
	}
}

// A relay that starts while its database is away refuses the server that comes back. Versions that
// are new enough pass.
func TestUnsupportedServersAreRefusedByRun(t *testing.T) {
	t.Parallel()
	db, say := fixture.PostgresThatSays(t, "CockroachDB CCL v25.2.1")
	pool, ob, err := sqloutbox.OpenConnector(t.Context(), db.Connector(t), sqloutbox.OpenConfig{
		AutoCreate: true, Publisher: &outboxtest.Publisher{},
	})
	fixture.NoError(t, err)
	defer pool.Close()
	pool.SetMaxIdleConns(-1) // a connection has prepared the question, and knows the answer
	say()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := ob.Run(ctx); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "CockroachDB") {
		t.Errorf("Run: %v", err)
	}
	for _, version := range []string{
		"PostgreSQL 12.0 on x86_64-pc-linux-gnu", "PostgreSQL 19beta1 on x86_64-pc-linux-gnu", "EnterpriseDB 16.1",
	} {
		_, err := sqloutbox.New(serverThatSays(t, core.Postgres, version).Open(t), sqloutbox.Config{Dialect: ""})
		if errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", version, err)
		}
	}
	for _, version := range []string{
		"8.0.16", "9.7.4 MySQL Community Server", "10.6.0-MariaDB", "5.5.5-11.4.2-MariaDB-ubu2404",
	} {
		if _, err := sqloutbox.New(fixture.MySQLThatSays(t, version).Open(t), sqloutbox.Config{}); err != nil {
			t.Errorf("%s: %v", version, err)
		}
	}
}

// oldSQLite is SQLite that says that it is another version.
type oldSQLite struct {
	driver.Connector
	version string
}

func (c oldSQLite) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return oldSQLiteConn{conn, c.version}, err
}

type oldSQLiteConn struct {
	driver.Conn
	version string
}

func (c oldSQLiteConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	query = strings.ReplaceAll(query, "sqlite_version()", "'"+c.version+"'")
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}
