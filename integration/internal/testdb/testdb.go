// Package testdb gives each test a database of its own on every server the tests run against.
package testdb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"github.com/ormoutbox/ormoutbox/core"
)

// DB is an empty database that is dropped when its test ends.
type DB struct {
	Name    string // postgres, postgres18, pgbouncer, mariadb, mysql, vitess, sqlite
	Dialect core.Dialect
	DSN     string // pgx URL, go-sql-driver DSN, modernc DSN

	// Wrap, when it is set, wraps the connectors that Connector and Open give away.
	Wrap func(driver.Connector) driver.Connector
	// Connect, when it is set, makes these connectors on PostgreSQL. Wrap does not wrap them.
	Connect func(pgx.ConnConfig) driver.Connector
}

// Each runs fn as a subtest on a database of each dialect, on all of them at the same time:
// PostgreSQL, MariaDB, SQLite. With -short MariaDB is left to `make test-all`. A test that depends
// on how a database works uses Every. OUTBOX_TEST_DATABASES names other databases instead, with
// blanks between them: "mysql postgres18".
func Each(t *testing.T, fn func(t *testing.T, db DB)) {
	t.Helper()
	each(t, usual(), fn)
}

func usual() []string {
	if testing.Short() {
		return among("postgres", "sqlite")
	}
	return among("postgres", "mariadb", "sqlite")
}

// EachPostgres is Each for tests that run on PostgreSQL alone.
func EachPostgres(t *testing.T, fn func(t *testing.T, db DB)) {
	t.Helper()
	each(t, slices.DeleteFunc(among("postgres"), func(name string) bool {
		return !strings.HasPrefix(name, "postgres")
	}), fn)
}

// Way is one of several ways to run the same tests. Of has the settings of the way.
type Way[W any] struct {
	Name string
	Of   W
}

// EachWay is Each in several ways at the same time. The first way is the usual one. With -short
// only the first way runs, because `make test-all` runs them all. If OUTBOX_TEST_DATABASES names
// the databases, which `make test-all` does not, each further way runs on one of them with -short.
func EachWay[W any](t *testing.T, ways []Way[W], fn func(t *testing.T, db DB, way W)) {
	t.Helper()
	inWays(t, ways, usual(), usual(), fn)
}

// EveryWay is EachWay with MySQL and PostgreSQL 18 too, on which the first way runs, as with Every.
func EveryWay[W any](t *testing.T, ways []Way[W], fn func(t *testing.T, db DB, way W)) {
	t.Helper()
	inWays(t, ways, every(), usual(), fn)
}

// inWays runs the first way on the databases of first, and every other way on those of others.
func inWays[W any](
	t *testing.T, ways []Way[W], first, others []string, fn func(t *testing.T, db DB, way W),
) {
	t.Helper()
	for n, way := range ways {
		names := first
		if n > 0 {
			names = others
		}
		if n > 0 && testing.Short() {
			if os.Getenv("OUTBOX_TEST_DATABASES") == "" {
				return
			}
			names = others[n%len(others):][:1]
		}
		t.Run(way.Name, func(t *testing.T) {
			t.Parallel()
			each(t, names, func(t *testing.T, db DB) { fn(t, db, way.Of) })
		})
	}
}

// Every is Each with MySQL and PostgreSQL 18 too. It is for short tests that depend on how a
// database works. With -short these two are left to `make test-all`, and MariaDB is not.
func Every(t *testing.T, fn func(t *testing.T, db DB)) {
	t.Helper()
	each(t, every(), fn)
}

func every() []string {
	if testing.Short() {
		return among("postgres", "mariadb", "sqlite")
	}
	return among("postgres", "postgres18", "mariadb", "mysql", "sqlite")
}

// EveryServer is Every without SQLite, for tests that cut a server off.
func EveryServer(t *testing.T, fn func(t *testing.T, db DB)) {
	t.Helper()
	each(t, slices.DeleteFunc(every(), func(name string) bool { return name == "sqlite" }), fn)
}

// MariaDBAndMySQL is Every for tests that run on these two alone.
func MariaDBAndMySQL(t *testing.T, fn func(t *testing.T, db DB)) {
	t.Helper()
	each(t, slices.DeleteFunc(every(), func(name string) bool { return name != "mariadb" && name != "mysql" }), fn)
}

var openers = map[string]func(*testing.T) DB{
	"postgres": Postgres, "postgres18": Postgres18, "pgbouncer": PgBouncer, "mariadb": MariaDB, "mysql": MySQL,
	"vitess": Vitess, "sqlite": SQLite,
}

// among returns the names, or those of OUTBOX_TEST_DATABASES.
func among(names ...string) []string {
	if only := strings.Fields(os.Getenv("OUTBOX_TEST_DATABASES")); len(only) > 0 {
		return only
	}
	return names
}

func each(t *testing.T, names []string, fn func(t *testing.T, db DB)) {
	t.Helper()
	for _, name := range names {
		open := openers[name]
		if open == nil {
			t.Fatalf(
				"OUTBOX_TEST_DATABASES names %q: the databases are postgres, postgres18, pgbouncer, mariadb, mysql, "+
					"vitess and sqlite",
				name,
			)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fn(t, open(t))
		})
	}
}

// Another returns one more empty database of the same server.
func (d DB) Another(t *testing.T) DB {
	t.Helper()
	other := openers[d.Name](t)
	other.Wrap, other.Connect = d.Wrap, d.Connect
	return other
}

// Server returns the address of a server for the tests; it fails the test with the command that
// starts the server.
func Server(t testing.TB, variable string) string {
	t.Helper()
	v := os.Getenv(variable)
	if v == "" {
		t.Fatalf("%s is not set: start the servers with `make services-up` and run the tests with `make test`, or "+
			"`eval \"$(scripts/services env)\"` first", variable)
	}
	return v
}

// Postgres creates a database on the PostgreSQL server of OUTBOX_TEST_POSTGRES.
func Postgres(t *testing.T) DB {
	t.Helper()
	return postgres(t, "postgres", Server(t, "OUTBOX_TEST_POSTGRES"), exec)
}

// PostgresForBenchmark is Postgres for a benchmark.
func PostgresForBenchmark(b *testing.B) DB {
	b.Helper()
	return postgres(b, "postgres", Server(b, "OUTBOX_TEST_POSTGRES"), exec)
}

// Postgres18 creates a database on the server of OUTBOX_TEST_POSTGRES18.
func Postgres18(t *testing.T) DB {
	t.Helper()
	return postgres(t, "postgres18", Server(t, "OUTBOX_TEST_POSTGRES18"), exec)
}

// PgBouncer is Postgres through the PgBouncer of OUTBOX_TEST_PGBOUNCER, which is in front of that
// server, in transaction mode. Its DSN sets a mode in which pgx names no prepared statements.
func PgBouncer(t *testing.T) DB {
	t.Helper()
	pooler := Server(t, "OUTBOX_TEST_PGBOUNCER")
	server := Server(t, "OUTBOX_TEST_POSTGRES")
	db := Postgres(t)
	u, err := url.Parse(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	// PgBouncer 1.18 ends with a FATAL error if a database is dropped while PgBouncer cancels a
	// statement there. So this waits until PgBouncer has closed its connections, which it soon does
	// with those that nobody uses.
	t.Cleanup(func() {
		exec(t, "pgx", server, strings.ReplaceAll(`DO $$ BEGIN FOR n IN 1..600 LOOP
  EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = '?');
  PERFORM pg_sleep(0.05), pg_stat_clear_snapshot();
END LOOP; END $$`, "?", strings.TrimPrefix(u.Path, "/")))
	})
	db.Name = "pgbouncer"
	db.DSN = onServer(t, db.DSN, pooler) + "&default_query_exec_mode=exec"
	return db
}

// Direct returns a database of PgBouncer as it is reached on the server itself.
func (d DB) Direct(t testing.TB) DB {
	t.Helper()
	d.Name, d.DSN = "postgres", onServer(t, d.DSN, Server(t, "OUTBOX_TEST_POSTGRES"))
	return d
}

// onServer returns a DSN of PostgreSQL with the user, host and port of another one.
func onServer(t testing.TB, dsn, server string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.User, u.Host = at.User, at.Host
	return u.String()
}

// At creates a database on the server with that address. kind is postgres, postgres18, mariadb or
// mysql.
func At(t *testing.T, kind, address string) DB {
	t.Helper()
	// The test may restart this server: an open connection would be broken then.
	switch kind {
	case "postgres", "postgres18":
		return postgres(t, kind, address, execOnce)
	case "mariadb", "mysql":
		return mariadb(t, kind, address, execOnce)
	}
	t.Fatalf("no databases are made on %q: the servers are postgres, postgres18, mariadb and mysql", kind)
	return DB{}
}

func postgres(t testing.TB, server, admin string, exec execFunc) DB {
	t.Helper()
	u, err := url.Parse(admin)
	if err != nil {
		t.Fatal(err)
	}
	name := unique()
	exec(t, "pgx", admin, "CREATE DATABASE "+name+" STRATEGY file_copy") // quicker if the server does not sync
	t.Cleanup(func() { exec(t, "pgx", admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	u.Path = "/" + name
	return DB{Name: server, Dialect: core.Postgres, DSN: u.String()}
}

// MariaDB creates a database on the MariaDB server of OUTBOX_TEST_MARIADB.
func MariaDB(t *testing.T) DB {
	t.Helper()
	return mariadb(t, "mariadb", Server(t, "OUTBOX_TEST_MARIADB"), exec)
}

// MySQL creates a database on the MySQL server of OUTBOX_TEST_MYSQL.
func MySQL(t *testing.T) DB {
	t.Helper()
	return mariadb(t, "mysql", Server(t, "OUTBOX_TEST_MYSQL"), exec)
}

func mariadb(t *testing.T, server, admin string, exec execFunc) DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(admin)
	if err != nil {
		t.Fatal(err)
	}
	name := unique()
	exec(t, "mysql", admin, "CREATE DATABASE "+name)
	t.Cleanup(func() { exec(t, "mysql", admin, "DROP DATABASE IF EXISTS "+name) })
	cfg.DBName = name
	return DB{Name: server, Dialect: core.MySQL, DSN: cfg.FormatDSN()}
}

// SQLite creates a database file. The file is not synced, because tests kill processes, not the
// machine.
func SQLite(t *testing.T) DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox.db")
	path = strings.NewReplacer("%", "%25", "#", "%23", "?", "%3F").Replace(path) // test names contain these characters
	return DB{Name: "sqlite", Dialect: core.SQLite, DSN: "file:" + path +
		"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_txlock=immediate"}
}

// Connector returns a connector of the database's driver.
func (d DB) Connector(t testing.TB) driver.Connector {
	t.Helper()
	c := d.connector(t)
	if d.Wrap != nil && d.Connect == nil {
		c = d.Wrap(c)
	}
	return c
}

func (d DB) connector(t testing.TB) driver.Connector {
	t.Helper()
	switch d.Dialect {
	case core.Postgres:
		cfg, err := pgx.ParseConfig(d.DSN)
		if err != nil {
			t.Fatal(err)
		}
		if d.Connect != nil {
			return d.Connect(*cfg)
		}
		return stdlib.GetConnector(*cfg)
	case core.MySQL:
		cfg, err := mysql.ParseDSN(d.DSN)
		if err != nil {
			t.Fatal(err)
		}
		c, err := mysql.NewConnector(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return c
	default:
		return dsnConnector{dsn: d.DSN, driver: &sqlite.Driver{}}
	}
}

// Open opens a plain pool, closed when the test ends.
func (d DB) Open(t testing.TB) *sql.DB {
	t.Helper()
	db := sql.OpenDB(d.Connector(t))
	db.SetMaxOpenConns(30)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

type dsnConnector struct {
	dsn    string
	driver driver.Driver
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

// execFunc runs a statement on a server.
type execFunc func(t testing.TB, driverName, dsn, query string)

// admins are the pools of exec by address.
var admins sync.Map

// exec keeps its connections. A new connection for each database that is created or dropped would
// take a noticeable part of the time of all tests.
func exec(t testing.TB, driverName, dsn, query string) {
	t.Helper()
	open, _ := admins.LoadOrStore(dsn, sync.OnceValues(func() (*sql.DB, error) { return sql.Open(driverName, dsn) }))
	db, err := open.(func() (*sql.DB, error))()
	if err != nil {
		t.Fatal(err)
	}
	execOn(t, db, query)
}

// execOnce opens a connection and closes it.
func execOnce(t testing.TB, driverName, dsn, query string) {
	t.Helper()
	db, err := sql.Open(driverName, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	execOn(t, db, query)
}

func execOn(t testing.TB, db *sql.DB, query string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := db.ExecContext(ctx, query)
		if err == nil {
			return
		}
		// PostgreSQL drops no database that is in use. A process that sent the log of the database
		// may need a moment until it notices that its client has gone. FORCE does not end it.
		if inUse, is := errors.AsType[*pgconn.PgError](err); !is || inUse.Code != "55006" {
			t.Fatalf("%s: %v (start the servers with `make services-up`)", query, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v", query, err)
		}
	}
}

func unique() string {
	var b [6]byte
	rand.Read(b[:])
	return "outbox_" + hex.EncodeToString(b[:])
}
