package repository_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Many processes may migrate at once, each with its own pool.
func TestMigrateConcurrently(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		var wg sync.WaitGroup
		failed := make(chan error, 8)
		for range 8 {
			pool := db.Open(t)
			wg.Go(func() {
				repo, err := sqloutbox.New(pool, sqloutbox.Config{})
				if err == nil {
					err = repo.Migrate(t.Context())
				}
				if err == nil {
					err = repo.Check(t.Context())
				}
				failed <- err
			})
		}
		wg.Wait()
		close(failed)
		for err := range failed {
			if err != nil {
				t.Error(err)
			}
		}
		pool := db.Open(t)
		migrations, err := sqloutbox.Migrations(sqloutbox.Config{Dialect: db.Dialect})
		if err != nil {
			t.Fatal(err)
		}
		if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM outbox_migration"); n != int64(len(migrations)) {
			t.Errorf("%d versions are recorded, want %d", n, len(migrations))
		}
	})
}

// An older program changes nothing in tables of a newer version, also where it misses versions that
// a newer program has made one of.
func TestMigrateOfAnOlderProgram(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		repo, err := sqloutbox.New(pool, sqloutbox.Config{})
		fixture.NoError(t, err)
		fixture.NoError(t, repo.Migrate(t.Context()))
		inboxes, err := sqlinbox.New(pool, sqlinbox.Config{})
		fixture.NoError(t, err)
		fixture.NoError(t, inboxes.Migrate(t.Context()))
		for _, text := range []string{
			"DELETE FROM outbox_migration", "DELETE FROM inbox_migration",
			"INSERT INTO outbox_migration (version, name) VALUES (99, 'newer')",
			"INSERT INTO inbox_migration (version, name) VALUES (99, 'newer')",
			"DROP TABLE outbox_plan", "DROP TABLE inbox_program", // the newer version has none
		} {
			fixture.MustExec(t, pool, text)
		}
		for range 2 {
			fixture.NoError(t, repo.Migrate(t.Context()))
			fixture.NoError(t, inboxes.Migrate(t.Context()))
		}
		for _, table := range []string{"outbox_plan", "inbox_program"} {
			if _, err := pool.ExecContext(t.Context(), "SELECT 1 FROM "+table); err == nil {
				t.Errorf("table %s is there again", table)
			}
		}
		for _, table := range []string{"outbox_migration", "inbox_migration"} {
			n := fixture.Count(t, pool, "SELECT COUNT(*) FROM "+table)
			fixture.Check(t, n == 1, "%s has %d versions, want 1", table, n)
		}
	})
}

// Tables of all kinds and prefixes are made at once in a new schema, named or not.
func TestMigrateAllKindsAtOnce(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		schemas := []string{"", ""}
		switch db.Dialect {
		case core.Postgres:
			schemas = []string{"shop", "shop", "", "public"}
		case core.MySQL:
			var name string
			fixture.NoError(t, pool.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&name))
			schemas = append(schemas, name)
		case core.SQLite:
		}
		for round := range 5 {
			var wg sync.WaitGroup
			failed := make(chan error, 2*len(schemas))
			for i, schema := range schemas {
				prefix := fmt.Sprintf("r%d_%d_", round, i)
				wg.Go(func() {
					repo, err := sqloutbox.New(pool, sqloutbox.Config{Schema: schema, Prefix: prefix})
					if err == nil {
						err = repo.Migrate(t.Context())
					}
					failed <- err
				})
				wg.Go(func() {
					store, err := sqlinbox.New(pool, sqlinbox.Config{Schema: schema, Prefix: prefix + "in_"})
					if err == nil {
						err = store.Migrate(t.Context())
					}
					failed <- err
				})
			}
			wg.Wait()
			close(failed)
			for err := range failed {
				if err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			}
			if db.Dialect == core.Postgres {
				fixture.MustExec(t, pool, "DROP SCHEMA shop CASCADE")
			}
		}
	})
}

// The files of Migrations do the same as Migrate and may be repeated. Their Down parts undo them.
func TestMigrationFiles(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		cfg := sqloutbox.Config{Dialect: db.Dialect, Prefix: "my_"}
		repo, err := sqloutbox.New(pool, cfg)
		if err != nil {
			t.Fatal(err)
		}
		files, err := sqloutbox.Migrations(cfg)
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		conn, err := pool.Conn(t.Context()) // on MySQL the statements of a file need one session
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		run := func(file string) {
			t.Helper()
			for stmt := range strings.SplitSeq(file, ";\n") {
				if strings.TrimSpace(stmt) == "" {
					continue
				}
				_, err := conn.ExecContext(t.Context(), stmt)
				if again := db.Dialect == core.SQLite && strings.Contains(stmt, "ADD COLUMN"); again && err != nil &&
					strings.Contains(err.Error(), "duplicate column name") {
					continue // SQLite has no IF NOT EXISTS for columns
				}
				if err != nil {
					t.Fatalf("%v\n%s", err, stmt)
				}
			}
		}
		for range 2 {
			for _, f := range files {
				run(f.Up)
			}
		}
		if err := repo.Check(t.Context()); err != nil {
			t.Error(err)
		}
		if err := repo.Migrate(t.Context()); err != nil { // adopts the tables that another tool has created
			t.Error(err)
		}
		for _, f := range slices.Backward(files) {
			run(f.Down)
		}
		if err := repo.Check(t.Context()); !fixture.Drift(err) ||
			!strings.Contains(err.Error(), "table my_event is missing") {
			t.Errorf("after Down Check returned %v", err)
		}
	})
}

func TestMigrateSchema(t *testing.T) {
	t.Parallel()
	pg, maria := testdb.Postgres(t), testdb.MariaDB(t)
	for _, c := range []struct {
		db     testdb.DB
		schema string
	}{{pg, "Some_Schema"}, {maria, schemaOf(maria)}} {
		t.Run(c.db.Name, func(t *testing.T) {
			pool := c.db.Open(t)
			repo, err := sqloutbox.New(pool, sqloutbox.Config{Schema: c.schema, Prefix: "Select_"})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := repo.Migrate(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := repo.Check(t.Context()); err != nil {
				t.Error(err)
			}
			if b, err := repo.Backlog(t.Context(), 10); err != nil || b.Pending != 0 {
				t.Error(b, err)
			}
		})
	}
}

// With NO_BACKSLASH_ESCAPES a backslash in a text of ours is one more character.
func TestCheckWithoutBackslashEscapes(t *testing.T) {
	t.Parallel()
	db := testdb.MariaDB(t)
	db.DSN += "&interpolateParams=true&sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES'"
	repo, err := sqloutbox.New(db.Open(t), sqloutbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(repo.Migrate(t.Context()), repo.Check(t.Context())); err != nil {
		t.Error(err)
	}
}

// schemaOf returns the database of a MariaDB DSN.
func schemaOf(db testdb.DB) string {
	_, name, _ := strings.Cut(db.DSN, ")/")
	name, _, _ = strings.Cut(name, "?")
	return name
}

// Check names every missing and every wrong part of the tables.
func TestCheckNamesDrift(t *testing.T) {
	t.Parallel()
	type drift struct{ change, want string }
	common := []drift{
		{"ALTER TABLE outbox_event DROP COLUMN receipt", "column outbox_event.receipt is missing"},
		{"ALTER TABLE outbox_key DROP COLUMN prev_id", "column outbox_key.prev_id is missing"},
		{"DROP TABLE outbox_audit", "table outbox_audit is missing"},
	}
	special := map[core.Dialect][]drift{
		core.Postgres: {
			{
				"DROP INDEX outbox_event_ready",
				"index outbox_event_ready on outbox_event is missing",
			},
			{
				"ALTER TABLE outbox_event ALTER COLUMN lease_until TYPE timestamp",
				"column outbox_event.lease_until has type timestamp without time zone, want timestamptz",
			},
			{
				"ALTER TABLE outbox_event ALTER COLUMN key_seq TYPE integer",
				"column outbox_event.key_seq has type integer, want bigint",
			},
		},
		core.MySQL: {
			{
				"ALTER TABLE outbox_event DROP KEY outbox_event_work",
				"index outbox_event_work on outbox_event is missing",
			},
			{
				"ALTER TABLE outbox_event DROP KEY outbox_event_dead",
				"index outbox_event_dead on outbox_event is missing",
			},
			{
				"ALTER TABLE outbox_event MODIFY available_at DATETIME NOT NULL",
				"column outbox_event.available_at has type datetime, want datetime(6)",
			},
			{"ALTER TABLE outbox_key ENGINE = MyISAM", "table outbox_key has engine MyISAM"},
			{
				"ALTER TABLE outbox_event MODIFY tenant_id VARCHAR(64) COLLATE utf8mb4_general_ci",
				"column outbox_event.tenant_id has a collation",
			},
			{"ALTER TABLE outbox_event MODIFY last_error TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", ""},
		},
		core.SQLite: {
			{"DROP INDEX outbox_event_key", "index outbox_event_key on outbox_event is missing"},
		},
	}
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		n := 0
		for _, cases := range [][]drift{common, special[db.Dialect]} {
			for _, c := range cases {
				change, want := c.change, c.want
				n++
				prefix := fmt.Sprintf("d%d_", n)
				repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: db.Dialect, Prefix: prefix})
				if err != nil {
					t.Fatal(err)
				}
				if err := repo.Migrate(t.Context()); err != nil {
					t.Fatal(err)
				}
				if _, err := pool.ExecContext(t.Context(), strings.ReplaceAll(change, "outbox_", prefix)); err != nil {
					t.Fatal(err)
				}
				err = repo.Check(t.Context())
				want = strings.ReplaceAll(want, "outbox_", prefix)
				if want == "" {
					if err != nil {
						t.Errorf("%s: %v", change, err)
					}
				} else if !fixture.Drift(err) || !strings.Contains(err.Error(), want) ||
					!strings.Contains(err.Error(), "Migrate") {
					t.Errorf("%s: Check returned %v, want %q", change, err, want)
				}
			}
		}
	})
}

// Without its tables the repository returns an error that says what to do.
func TestMissingTables(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		repo, err := sqloutbox.New(pool, sqloutbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if repo.Dialect() != db.Dialect {
			t.Errorf("the database was taken for %s", repo.Dialect())
		}
		says := func(what string, err error) {
			t.Helper()
			for _, way := range []string{
				"AutoCreate of gormoutbox.Config", "Migrate of the sqloutbox.Repository",
				"sqloutbox.Migrations", "entschema",
			} {
				if err == nil || !strings.Contains(err.Error(), way) {
					t.Errorf("%s returned %v, without %q", what, err, way)
				}
			}
		}
		_, err = repo.Backlog(t.Context(), 10)
		says("Backlog", err)
		says("Check", repo.Check(t.Context()))
		tx, err := sqltx.Begin(t.Context(), pool, nil, db.Dialect)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		_, err = repo.Insert(t.Context(), tx, core.InsertRequest{Rows: []core.NewRow{sqlRow(t, "topic", "")}})
		says("Insert", err)
	})
}
