package repository_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Every database understands every statement that the Repository can send to it, also those that
// other tests need luck to reach. They stand in the golden files of core/sqloutbox, as they are
// sent.
func TestEveryStatementPrepares(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		cfg := sqloutbox.Config{Dialect: db.Dialect}
		if db.Dialect == core.Postgres {
			cfg.Schema = "app" // as in the golden file
		}
		pool := db.Open(t)
		repo, err := sqloutbox.New(pool, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := repo.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		file := strings.TrimSuffix(db.Name, "18") + ".statements.sql"
		text, err := os.ReadFile(filepath.Join("..", "..", "core", "sqloutbox", "testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		statements := strings.Split("\n"+strings.TrimSpace(string(text)), "\n-- ")[1:]
		if len(statements) < 30 {
			t.Fatalf("%s has %d statements", file, len(statements))
		}
		for _, s := range statements {
			name, statement, _ := strings.Cut(s, "\n")
			statement = strings.NewReplacer("{ids}", "?", "{whens}", " WHEN ? THEN ?").Replace(statement)
			if err := prepare(t, db.Dialect, pool, statement); err != nil {
				t.Errorf("%s: %v\n%s", name, err, statement)
			}
		}
	})
}

// prepare has a statement compiled. The driver of SQLite compiles nothing before it runs it, and
// EXPLAIN runs nothing of it.
func prepare(t *testing.T, d core.Dialect, pool *sql.DB, statement string) error {
	t.Helper()
	if d == core.SQLite {
		rows, err := pool.QueryContext(t.Context(), "EXPLAIN "+statement, make([]any, strings.Count(statement, "?"))...)
		if err == nil {
			err = rows.Close()
		}
		return err
	}
	stmt, err := pool.PrepareContext(t.Context(), statement)
	if err == nil {
		err = stmt.Close()
	}
	return err
}
