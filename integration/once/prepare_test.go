package once_test

import (
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Every database understands every statement about keys, also statements that other tests reach
// only by chance.
func TestEveryStatementPrepares(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		cfg := sqlonce.Config{Dialect: db.Dialect}
		switch db.Dialect { // as in the golden files
		case core.Postgres:
			cfg.Schema = "app"
		case core.MySQL:
			cfg.Prefix = "my_"
		}
		pool := db.Open(t)
		s, err := sqlonce.New(pool, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		fixture.Prepares(t, db, pool, "core/once/sqlonce", string(db.Dialect), nil)
	})
}
