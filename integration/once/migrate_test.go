package once_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// schemaOwner has the methods of every store with tables.
type schemaOwner interface {
	Migrate(ctx context.Context) error
	Check(ctx context.Context) error
}

// schema describes the tables of one store.
type schema struct {
	open     func(pool *sql.DB, d core.Dialect, prefix string) (schemaOwner, error)
	use      func(ctx context.Context, s schemaOwner) error
	files    func(d core.Dialect, prefix string) ([]core.Migration, error)
	versions string // the table of applied migrations
	help     string // part of the error of a call without tables
	tables   int

	table, index string // the test damages them
	mysqlIndex   string // the index on MySQL, if it has another name
	column       string // the test changes its type
	diagnostic   string // the test drops this column
}

var schemas = map[string]schema{
	"keys": {
		open: func(pool *sql.DB, d core.Dialect, prefix string) (schemaOwner, error) {
			return sqlonce.New(pool, sqlonce.Config{Dialect: d, Prefix: prefix})
		},
		use: func(ctx context.Context, s schemaOwner) error {
			_, err := s.(*sqlonce.Store).Acquire(ctx, onceRequest("k"))
			return err
		},
		files: func(d core.Dialect, prefix string) ([]core.Migration, error) {
			return sqlonce.Migrations(sqlonce.Config{Dialect: d, Prefix: prefix})
		},
		versions: "once_migration", help: "Migrate of the sqlonce.Store",
		tables: 2,
		table:  "idempotency_key", index: "idempotency_key_expires", column: "scope", diagnostic: "result_meta",
	},
	"inbox": {
		open: func(pool *sql.DB, d core.Dialect, prefix string) (schemaOwner, error) {
			return sqlinbox.New(pool, sqlinbox.Config{Dialect: d, Prefix: prefix})
		},
		use: func(ctx context.Context, s schemaOwner) error {
			_, err := s.(*sqlinbox.Store).ListDead(ctx, inbox.DeadQuery{Consumer: "billing"})
			if err != nil && !strings.Contains(err.Error(), "inbox.CreateTables") {
				//nolint:errorlint // the case would pass if errors.Is found err
				return fmt.Errorf("the option is not named: %v", err)
			}
			return err
		},
		files: func(d core.Dialect, prefix string) ([]core.Migration, error) {
			return sqlinbox.Migrations(sqlinbox.Config{Dialect: d, Prefix: prefix})
		},
		versions: "inbox_migration", help: "Migrate of the sqlinbox.Store",
		tables: 5,
		table:  "inbox_failure", index: "inbox_failure_open", column: "handler", diagnostic: "last_error",
	},
	"effects": {
		open: func(pool *sql.DB, d core.Dialect, prefix string) (schemaOwner, error) {
			return sqlcommand.New(pool, sqlcommand.Config{Dialect: d, Prefix: prefix})
		},
		use: func(ctx context.Context, s schemaOwner) error {
			_, err := s.(*sqlcommand.Store).Overdue(ctx, "mail", 0, 1)
			return err
		},
		files: func(d core.Dialect, prefix string) ([]core.Migration, error) {
			return sqlcommand.Migrations(sqlcommand.Config{Dialect: d, Prefix: prefix})
		},
		versions: "command_migration", help: "Migrate of the sqlcommand.Store",
		tables: 2,
		table:  "side_effect_command", index: "side_effect_command_done", column: "channel", diagnostic: "external_ref",
	},
}

// Tables of the first version are brought up to date, with what is in them.
func TestOnceMigrateFromTheFirstVersion(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		for name, sc := range schemas {
			s, err := sc.open(pool, db.Dialect, "")
			fixture.NoError(t, err)
			fixture.NoError(t, s.Migrate(t.Context()))
			files, err := sc.files(db.Dialect, "")
			fixture.NoError(t, err)
			for _, f := range files[1:] {
				fixture.MustExec(t, pool, f.Down)
				fixture.MustExec(t, pool, fmt.Sprintf("DELETE FROM %s WHERE version = %d", sc.versions, f.Version))
			}
			if err := s.Check(t.Context()); len(files) > 1 && !fixture.Drift(err) {
				t.Errorf("%s: the first version passes as this one: %v", name, err)
			}
			fixture.NoError(t, s.Migrate(t.Context()))
			fixture.NoError(t, s.Check(t.Context()))
		}
	})
}

// Many processes may start at once, each with every store, with an outbox in the same database.
func TestOnceMigrateConcurrently(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		var wg sync.WaitGroup
		for range 4 {
			pool := db.Open(t)
			for _, sc := range schemas {
				wg.Go(func() {
					s, err := sc.open(pool, "", "")
					if err == nil {
						err = errors.Join(s.Migrate(t.Context()), s.Check(t.Context()))
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		pool := db.Open(t)
		for _, sc := range schemas {
			files, err := sc.files(db.Dialect, "")
			fixture.NoError(t, err)
			if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM "+sc.versions); n != int64(len(files)) {
				t.Errorf("%d versions are recorded in %s, want %d", n, sc.versions, len(files))
			}
		}
		repo, err := sqloutbox.New(pool, sqloutbox.Config{})
		if err == nil {
			err = errors.Join(repo.Migrate(t.Context()), repo.Check(t.Context()))
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// The files of Migrations do the same as Migrate and may be repeated. Their Down parts undo them.
// Check names every difference.
func TestOnceMigrationFiles(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		for name, sc := range schemas {
			t.Run(name, func(t *testing.T) { sc.migrates(t, db) })
		}
	})
}

func (sc schema) migrates(t *testing.T, db testdb.DB) {
	t.Helper()
	pool, prefix := db.Open(t), strings.Repeat("p", 37)
	s, err := sc.open(pool, db.Dialect, prefix)
	fixture.NoError(t, err)
	for _, err := range []error{sc.use(t.Context(), s), s.Check(t.Context())} {
		fixture.Check(t, err != nil && strings.Contains(err.Error(), sc.help), "without tables: %v", err)
	}
	files, err := sc.files(db.Dialect, prefix)
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	run := func(file string) {
		t.Helper()
		for stmt := range strings.SplitSeq(file, ";\n") {
			if strings.TrimSpace(stmt) != "" {
				fixture.MustExec(t, pool, stmt)
			}
		}
	}
	for range 2 {
		for _, f := range files {
			run(f.Up)
		}
	}
	if err := errors.Join(s.Check(t.Context()), s.Migrate(t.Context()), s.Check(t.Context())); err != nil {
		t.Error(err)
	}
	table, index, damaged := prefix+sc.table, prefix+sc.index, sc.diagnostic
	if db.Dialect == core.MySQL {
		if sc.mysqlIndex != "" {
			index = prefix + sc.mysqlIndex
		}
		damaged = sc.column
		fixture.MustExec(t, pool, "DROP INDEX "+index+" ON "+table)
		fixture.MustExec(t, pool, "ALTER TABLE "+table+" MODIFY "+damaged+" VARCHAR(255) NOT NULL")
	} else {
		fixture.MustExec(t, pool, "DROP INDEX "+index)
		fixture.MustExec(t, pool, "ALTER TABLE "+table+" DROP COLUMN "+damaged)
	}
	err = s.Check(t.Context())
	for _, want := range []string{index, damaged} {
		fixture.Check(t, fixture.Drift(err) && strings.Contains(err.Error(), want),
			"%v does not name %s", err, want)
	}
	for _, f := range slices.Backward(files) {
		run(f.Down)
	}
	if err := s.Check(t.Context()); err == nil || strings.Count(err.Error(), "is missing") < sc.tables {
		t.Errorf("after the Down parts: %v", err)
	}
}
