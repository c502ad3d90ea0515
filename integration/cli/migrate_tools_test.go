package cli_test

import (
	"database/sql"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	atlas "ariga.io/atlas/sql/migrate"
	atlasmysql "ariga.io/atlas/sql/mysql"
	atlaspostgres "ariga.io/atlas/sql/postgres"
	atlassqlite "ariga.io/atlas/sql/sqlite"
	"github.com/go-sql-driver/mysql"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	bunmigrate "github.com/uptrace/bun/migrate"
	bunschema "github.com/uptrace/bun/schema"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Bun's migrator splits the files itself, and runs each in a transaction.
func TestBunMigrate(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		dialect := map[core.Dialect]func() bunschema.Dialect{
			core.Postgres: func() bunschema.Dialect { return pgdialect.New() },
			core.MySQL:    func() bunschema.Dialect { return mysqldialect.New() },
			core.SQLite:   func() bunschema.Dialect { return sqlitedialect.New() },
		}[db.Dialect]()
		all := bunmigrate.NewMigrations()
		fixture.NoError(t, all.Discover(os.DirFS(files(t, db, "bun"))))
		m := bunmigrate.NewMigrator(bun.NewDB(db.Open(t), dialect), all, bunmigrate.WithMarkAppliedOnSuccess(true))
		fixture.NoError(t, m.Init(t.Context()))
		done, err := m.Migrate(t.Context())
		fixture.Must(t, err == nil && len(done.Migrations) == len(all.Sorted()) && len(done.Migrations) != 0,
			"%s, %v", done, err)
		requireTables(t, db, true)
		if _, err := m.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		requireTables(t, db, false)
	})
}

// Atlas reads the files in its order, splits them, and refuses a folder whose sum is not that of
// its files. Its files have no Down part.
func TestAtlasMigrate(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		driver, err := map[core.Dialect]func(*sql.DB) (atlas.Driver, error){
			core.Postgres: func(db *sql.DB) (atlas.Driver, error) { return atlaspostgres.Open(db) },
			core.MySQL:    func(db *sql.DB) (atlas.Driver, error) { return atlasmysql.Open(db) },
			core.SQLite:   func(db *sql.DB) (atlas.Driver, error) { return atlassqlite.Open(db) },
		}[db.Dialect](db.Open(t))
		fixture.NoError(t, err)
		dir, err := atlas.NewLocalDir(files(t, db, "atlas"))
		fixture.NoError(t, err)
		e, err := atlas.NewExecutor(driver, dir, atlas.NopRevisionReadWriter{})
		fixture.NoError(t, err)
		if err := e.ExecuteN(t.Context(), 0); err == nil {
			t.Fatal("a folder without a sum was accepted")
		}
		sum, err := dir.Checksum()
		fixture.NoError(t, err)
		fixture.NoError(t, atlas.WriteSumFile(dir, sum))
		fixture.NoError(t, e.ExecuteN(t.Context(), 0))
		requireTables(t, db, true)
	})
}

// Flyway runs the files for PostgreSQL and MariaDB. The files for SQLite have the same names and
// are split in the same way. They are not run, because SQLite's driver in Java is five times as
// large as all of this.
func TestFlyway(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	fetch := exec.CommandContext(t.Context(), filepath.Join("..", "..", "scripts", "flyway", "fetch"))
	fetch.Stderr = os.Stderr
	jars, err := fetch.Output()
	if err != nil {
		t.Fatal("Flyway is missing: ", err)
	}
	folder := strings.TrimSpace(string(jars))
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		if db.Dialect == core.SQLite {
			return
		}
		address, user, password := jdbc(t, db)
		cmd := exec.CommandContext(t.Context(), "java", "-cp", filepath.Join(folder, "*")+":"+folder, "Migrate",
			address, user, password, files(t, db, "flyway"))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "applied") {
			t.Fatalf("%v: %s", err, out)
		}
		requireTables(t, db, true)
	})
}

// jdbc returns the address of a database in the form that Java needs.
func jdbc(t *testing.T, db testdb.DB) (address, user, password string) {
	t.Helper()
	if db.Dialect == core.MySQL {
		cfg, err := mysql.ParseDSN(db.DSN)
		fixture.NoError(t, err)
		return "jdbc:mariadb://" + cfg.Addr + "/" + cfg.DBName, cfg.User, cfg.Passwd
	}
	u, err := url.Parse(db.DSN)
	fixture.NoError(t, err)
	password, _ = u.User.Password()
	return "jdbc:postgresql://" + u.Host + u.Path, u.User.Username(), password
}
