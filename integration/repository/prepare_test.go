package repository_test

import (
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Every database understands every statement that the Repository can send to it, also statements
// that other tests reach only by chance.
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
		fixture.Prepares(t, db, pool, "core/sqloutbox", strings.TrimSuffix(db.Name, "18"), nil)
	})
}
