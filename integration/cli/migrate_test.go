package cli_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/amacneil/dbmate/v2/pkg/dbmate"
	_ "github.com/amacneil/dbmate/v2/pkg/driver/mysql"
	_ "github.com/amacneil/dbmate/v2/pkg/driver/postgres"
	"github.com/go-sql-driver/mysql"
	"github.com/golang-migrate/migrate/v4"
	migratedb "github.com/golang-migrate/migrate/v4/database"
	migratemysql "github.com/golang-migrate/migrate/v4/database/mysql"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	migratesqlite "github.com/golang-migrate/migrate/v4/database/sqlite"
	_ "github.com/golang-migrate/migrate/v4/source/file"
	"github.com/pressly/goose/v3"
	goosedb "github.com/pressly/goose/v3/database"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// folder has the program that the tests have built.
var folder string

// program builds the command line, once.
var program = sync.OnceValues(func() (path string, err error) {
	if folder, err = os.MkdirTemp("", "outbox"); err != nil {
		return "", err
	}
	path = filepath.Join(folder, "outbox")
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Dir = filepath.Join("..", "..", "cmd", "outbox")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if folder != "" {
		_ = os.RemoveAll(folder)
	}
	os.Exit(code)
}

// outbox runs the program with a database, and returns its output and its exit code.
func outbox(t *testing.T, db testdb.DB, args ...string) (out, errs string, code int) {
	t.Helper()
	path, err := program()
	fixture.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+address(t, db))
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return stdout.String(), stderr.String(), exit.ExitCode()
	}
	fixture.NoError(t, err)
	return stdout.String(), stderr.String(), 0
}

// address returns the DATABASE_URL of a database.
func address(t *testing.T, db testdb.DB) string {
	t.Helper()
	switch db.Dialect {
	case core.SQLite:
		return "sqlite:" + strings.TrimPrefix(db.DSN, "file:")
	default:
		return db.DSN
	}
}

// The program itself has the right output and exit codes.
func TestProgram(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		for _, step := range []struct {
			args      string
			code      int
			out, errs string
		}{
			{"migrate up", 0, "applied outbox 0001_init", ""},
			{"migrate validate", 0, "the tables are those of this version", ""},
			{"migrate down --to 0", 5, "", "--yes"},
			{"migrate down --to 0 --yes", 0, "undone outbox 0001_init", "dropped with all data"},
			{"migrate upp", 2, "", "Did you mean this?"},
		} {
			out, errs, code := outbox(t, db, strings.Fields(step.args)...)
			if code != step.code || !strings.Contains(out, step.out) || !strings.Contains(errs, step.errs) {
				t.Errorf("outbox %s: exit code %d\n%s%s", step.args, code, out, errs)
			}
		}
	})
}

// files writes the migrations for a tool into a folder.
func files(t *testing.T, db testdb.DB, format string) string {
	t.Helper()
	dir := t.TempDir()
	out, errs, code := outbox(t, db, "migrate", "get", "--tables", "all", "--format", format, "--dir", dir,
		"--first", "20260102030405")
	fixture.Must(t, code == 0 && strings.Contains(out, dir), "exit code %d\n%s%s", code, out, errs)
	return dir
}

// requireTables checks that all tables exist, or that none does.
func requireTables(t *testing.T, db testdb.DB, there bool) {
	t.Helper()
	out, errs, code := outbox(t, db, "migrate", "status", "--tables", "all", "--json")
	var states struct {
		Tables []struct {
			Name, Problem string
			OK, Recorded  bool
		}
	}
	if err := json.Unmarshal([]byte(out), &states); err != nil || code != 0 || len(states.Tables) != 4 {
		t.Fatalf("exit code %d, %v\n%s%s", code, err, out, errs)
	}
	for _, s := range states.Tables {
		fixture.Check(t, s.OK == there && !s.Recorded, "the tables are wanted: %v; %+v", there, s)
	}
}

func TestGoose(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		dialect := map[core.Dialect]goosedb.Dialect{
			core.Postgres: goosedb.DialectPostgres, core.MySQL: goosedb.DialectMySQL,
			core.SQLite: goosedb.DialectSQLite3,
		}[db.Dialect]
		p, err := goose.NewProvider(dialect, db.Open(t), os.DirFS(files(t, db, "goose")))
		fixture.NoError(t, err)
		if _, err := p.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		requireTables(t, db, true)
		if _, err := p.DownTo(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		requireTables(t, db, false)
	})
}

func TestGolangMigrate(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool := migrationPool(t, db)
		var driver migratedb.Driver
		var err error
		switch db.Dialect {
		case core.Postgres:
			driver, err = migratepgx.WithInstance(pool, &migratepgx.Config{})
		case core.MySQL:
			driver, err = migratemysql.WithInstance(pool, &migratemysql.Config{})
		default:
			driver, err = migratesqlite.WithInstance(pool, &migratesqlite.Config{})
		}
		fixture.NoError(t, err)
		m, err := migrate.NewWithDatabaseInstance("file://"+files(t, db, "golang-migrate"), "outbox", driver)
		fixture.NoError(t, err)
		defer m.Close()
		fixture.NoError(t, m.Up())
		requireTables(t, db, true)
		fixture.NoError(t, m.Down())
		requireTables(t, db, false)
	})
}

// migrationPool opens a pool that takes several statements in one text.
func migrationPool(t *testing.T, db testdb.DB) *sql.DB {
	t.Helper()
	if db.Dialect != core.MySQL {
		return db.Open(t)
	}
	cfg, err := mysql.ParseDSN(db.DSN)
	fixture.NoError(t, err)
	cfg.MultiStatements = true
	db.DSN = cfg.FormatDSN()
	return db.Open(t)
}

// dbmateOpensSQLite says that this program was built with cgo, as it is with the race detector.
var dbmateOpensSQLite bool

func TestDBMate(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		if db.Dialect == core.SQLite && !dbmateOpensSQLite {
			return
		}
		u, err := url.Parse(dbmateURL(t, db))
		fixture.NoError(t, err)
		m := dbmate.New(u)
		m.MigrationsDir, m.AutoDumpSchema, m.Log = []string{files(t, db, "dbmate")}, false, io.Discard
		fixture.NoError(t, m.Migrate())
		requireTables(t, db, true)
		all, err := m.FindMigrations()
		fixture.NoError(t, err)
		for range all {
			fixture.NoError(t, m.Rollback())
		}
		requireTables(t, db, false)
	})
}

func dbmateURL(t *testing.T, db testdb.DB) string {
	t.Helper()
	switch db.Dialect {
	case core.MySQL:
		cfg, err := mysql.ParseDSN(db.DSN)
		fixture.NoError(t, err)
		user := url.UserPassword(cfg.User, cfg.Passwd)
		u := url.URL{Scheme: "mysql", Host: cfg.Addr, Path: "/" + cfg.DBName, User: user}
		return u.String()
	case core.SQLite:
		path, _, _ := strings.Cut(strings.TrimPrefix(db.DSN, "file:"), "?")
		return "sqlite:" + path
	default:
		return db.DSN
	}
}
