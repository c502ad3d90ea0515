package main

import (
	"embed"
	"path/filepath"
	"regexp"

	"github.com/go-sql-driver/mysql"
)

// small are our files that stand between a suite and its database. They are no Go files here,
// because their packages are elsewhere.
//
//go:embed suites/*.txt
var small embed.FS

// suite is the test suite of an ORM, a driver or a library.
type suite struct {
	name       string
	released   string // the module that has the tests too, with its version if we do not require it
	archive    string // otherwise the name of the archive of its sources
	repository string
	commit     string
	folder     string   // of the module with the tests
	pkg        string   // the name of the package of the tests
	file       string   // our small file
	modules    []string // of ours that it needs
	modEdits   []string // further arguments of go mod edit
	edits      []edit
	databases  []database
	modes      []mode // besides plain
	cgo        bool   // its driver of SQLite is C
	skip       string // tests that are never run, an expression
	waits      string // why it does not run unless it is named
	exceptions []exception
}

// exception are tests that may differ from the plain run.
type exception struct{ tests, reason string }

// excepted returns why a test may differ, or "".
func (s *suite) excepted(test string) string {
	for _, e := range s.exceptions {
		if regexp.MustCompile(e.tests).MatchString(test) {
			return e.reason
		}
	}
	return ""
}

// edit replaces a text in a file of the suite.
type edit struct{ file, from, to string }

// database is one that a suite runs on.
type database struct {
	name   string
	server string // the variable with the address of its server, "" for SQLite
	run    string // the tests that are run, an expression, "" for all
	only   string // those of them that count, likewise
	// env returns the variables of a run on a database that was made for it.
	env func(dsn, dir string) []string
}

const (
	postgresServer = "OUTBOX_TEST_POSTGRES"
	mariadbServer  = "OUTBOX_TEST_MARIADB"
	mysqlServer    = "OUTBOX_TEST_MYSQL"
)

// suites are in the order in which they run.
var suites = []suite{gormSuite, bunSuite, entSuite, pgxSuite, mysqlSuite, sqlxSuite}

var gormSuite = suite{
	name:       "GORM",
	archive:    "gorm-1.31.2.tgz",
	repository: "https://github.com/go-gorm/gorm",
	commit:     "1d6ce99528060be18a42be09aca8d39efcb47f28", // v1.31.2
	folder:     "tests",
	pkg:        "tests_test",
	file:       "gorm.go.txt",
	modes:      []mode{nothing, events},
	modules:    []string{"", "/gormoutbox"},
	modEdits:   []string{"-dropreplace=gorm.io/gorm", "-require=gorm.io/gorm@v1.31.2"},
	cgo:        true,
	edits: []edit{{
		"tests/tests_test.go",
		"\tif err != nil {\n\t\treturn\n\t}\n\n\tif debug",
		"\tif err != nil {\n\t\treturn\n\t}\n\tif err = peersUse(db); err != nil {\n\t\treturn\n\t}\n\n\tif debug",
	}},
	databases: []database{
		{name: "sqlite", env: func(_, dir string) []string { return []string{"TMPDIR=" + dir} }},
		{name: "postgres", server: postgresServer, env: gormOn("postgres")},
		{name: "mariadb", server: mariadbServer, env: gormOn("mysql")},
		{name: "mysql", server: mysqlServer, env: gormOn("mysql")},
	},
}

func gormOn(dialect string) func(dsn, dir string) []string {
	return func(dsn, dir string) []string {
		return []string{"GORM_DIALECT=" + dialect, "GORM_DSN=" + dsn, "TMPDIR=" + dir}
	}
}

var bunSuite = suite{
	name:       "Bun",
	archive:    "bun-0e5e8682.tgz",
	repository: "https://github.com/uptrace/bun",
	commit:     "0e5e8682686253e24add0e8512d351d5e32dd9bf",
	folder:     "internal/dbtest",
	pkg:        "dbtest_test",
	file:       "bun.go.txt",
	modes:      []mode{nothing, events},
	modules:    []string{"", "/bunoutbox"},
	edits: []edit{
		{"internal/dbtest/db_test.go", "bun.NewDB(sqldb, ", "peersDB(tb, sqldb, "},
		{"internal/dbtest/db_test.go", "sql.OpenDB(pgdriver.", "peersConnect(pgdriver."},
		{"internal/dbtest/db_test.go", "sql.Open(", "peersOpen("},
	},
	// TestListener sends LISTEN and does not wait for it, and so loses a race. TestPostgresCopy panics,
	// which ends the suite, because pgdriver wants its own connection of sql.Conn.Raw.
	skip: "^(TestListener|TestPostgresCopy)",
	exceptions: []exception{
		{"^TestDatabaseInspector|^TestAutoMigrator", "it looks at all tables of the database, and the outbox has some"},
		{"/testNilDriverValue$", "the stored row cannot be read into the model, by Bun itself neither"},
	},
	// The tests without a database and those that open PostgreSQL by themselves belong to pg.
	databases: []database{
		{name: "pg", server: postgresServer, env: bunOn("pg", "PG")},
		{name: "pgx", server: postgresServer, only: "/pgx(/|$)", env: bunOn("pgx", "PG")},
		{name: "mariadb", server: mariadbServer, only: "/mariadb(/|$)", env: bunOn("mariadb", "MARIADB")},
		{name: "mysql8", server: mysqlServer, only: "/mysql8(/|$)", env: bunOn("mysql8", "MYSQL")},
		{name: "sqlite", only: "/sqlite(/|$)", env: bunOn("sqlite", "")},
	},
}

func bunOn(name, variable string) func(dsn, dir string) []string {
	return func(dsn, dir string) []string {
		env := []string{"TZ=UTC", "TMPDIR=" + dir, "PEERS_DATABASE=" + name, "PG=postgres://127.0.0.1:1/none"}
		if variable != "" {
			env = append(env, variable+"="+dsn)
		}
		return env
	}
}

var entSuite = suite{
	name:       "Ent",
	archive:    "ent-0a61da2f.tgz",
	repository: "https://github.com/ent/ent",
	commit:     "0a61da2fa2b4b80fbf5c8c58e1b491b7d5d9b4d6",
	folder:     "entc/integration",
	pkg:        "integration",
	file:       "ent.go.txt",
	modes:      []mode{nothing, events},
	modules:    []string{"", "/entoutbox"},
	cgo:        true,
	edits: []edit{
		{"entc/integration/integration_test.go", "enttest.Open(t, ", "peersOpen(t, "},
		{"entc/integration/integration_test.go", `{"10.5": 4306, "10.2": 4307, "10.3": 4308}`, `{"server": 0}`},
		{
			"entc/integration/integration_test.go",
			"{\n\t\t\"10\": 5430,\n\t\t\"11\": 5431,\n\t\t\"12\": 5432,\n\t\t\"13\": 5433,\n" +
				"\t\t\"14\": 5434,\n\t\t\"15\": 5435,\n\t\t\"16\": 5436,\n\t\t\"17\": 5437,\n\t}",
			`{"server": 0}`,
		},
	},
	// On MySQL 9 the suite itself panics (error 6575).
	databases: []database{
		{name: "sqlite", run: "^TestSQLite$", env: entOn},
		{name: "postgres", server: postgresServer, run: "^TestPostgres$", env: entOn},
		{name: "mariadb", server: mariadbServer, run: "^TestMaria$", env: entOn},
	},
}

func entOn(dsn, dir string) []string { return []string{"TMPDIR=" + dir, "PEERS_DSN=" + dsn} }

var pgxSuite = suite{
	name:     "pgx",
	released: "github.com/jackc/pgx/v5",
	folder:   "stdlib",
	pkg:      "stdlib_test",
	file:     "pgx.go.txt",
	modes:    []mode{tracking, native},
	modules:  []string{"", "/pgxoutbox"},
	edits: []edit{
		{"stdlib/sql_test.go", "stdlib.OpenDB(", "peersOpenDB("},
		{"stdlib/sql_test.go", "stdlib.OpenDBFromPool(pool)", "peersOpenPool(pool)"},
		{"stdlib/sql_test.go", "sql.Open(", "peersOpen("},
		{"stdlib/sql_test.go", "driverConn.(*stdlib.Conn).Conn()", "peersConn(driverConn)"},
		{"stdlib/sql_go1.27_test.go", "stdlib.OpenDB(", "peersOpenDB("},
	},
	databases: []database{{name: "postgres", server: postgresServer, env: func(dsn, _ string) []string {
		return []string{"PGX_TEST_DATABASE=" + dsn}
	}}},
}

var mysqlSuite = suite{
	name:     "MySQL",
	released: "github.com/go-sql-driver/mysql",
	folder:   ".",
	pkg:      "mysql",
	file:     "mysql.go.txt",
	modes:    []mode{tracking},
	modules:  []string{""},
	edits: []edit{
		{"driver_test.go", "sql.Open(", "peersOpen("},
		{"driver_test.go", "sql.OpenDB(", "peersOpenDB("},
		{
			"driver_test.go", "conn.Raw(func(conn any) error {\n",
			"conn.Raw(func(conn any) error {\nconn = peersRaw(conn)\n",
		},
	},
	skip: "^TestConnectorReturnsTimeout$", // it needs an address of the internet
	databases: []database{
		{name: "mariadb", server: mariadbServer, env: mysqlOn},
		{name: "mysql", server: mysqlServer, env: mysqlOn},
	},
}

func mysqlOn(dsn, _ string) []string {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		panic(err) // create made it
	}
	return []string{
		"MYSQL_TEST_USER=" + cfg.User, "MYSQL_TEST_PASS=" + cfg.Passwd, "MYSQL_TEST_PROT=" + cfg.Net,
		"MYSQL_TEST_ADDR=" + cfg.Addr, "MYSQL_TEST_DBNAME=" + cfg.DBName,
	}
}

var sqlxSuite = suite{
	name:     "sqlx",
	released: "github.com/jmoiron/sqlx@v1.4.0",
	folder:   ".",
	pkg:      "sqlx",
	file:     "sqlx.go.txt",
	modes:    []mode{tracking},
	modules:  []string{""},
	cgo:      true,
	edits: []edit{
		{"sqlx_test.go", "b, err = Connect(", "b, err = peersConnect("},
	},
	databases: []database{
		{name: "sqlite", env: sqlxOn("SQLX_SQLITE_DSN")},
		{name: "postgres", server: postgresServer, env: sqlxOn("SQLX_POSTGRES_DSN")},
		{name: "mariadb", server: mariadbServer, env: sqlxOn("SQLX_MYSQL_DSN")},
		{name: "mysql", server: mysqlServer, env: sqlxOn("SQLX_MYSQL_DSN")},
	},
}

func sqlxOn(variable string) func(dsn, dir string) []string {
	return func(dsn, dir string) []string {
		if dsn == "" {
			dsn = filepath.Join(dir, "sqlx.db")
		}
		return []string{"SQLX_SQLITE_DSN=skip", "SQLX_POSTGRES_DSN=skip", "SQLX_MYSQL_DSN=skip", variable + "=" + dsn}
	}
}
