package command_test

import (
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Every database understands every statement about effects, also statements that other tests reach
// only by chance.
func TestEveryStatementPrepares(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		cfg := sqlcommand.Config{Dialect: db.Dialect}
		switch db.Dialect { // as in the golden files
		case core.Postgres:
			cfg.Schema = "app"
		case core.MySQL:
			cfg.Prefix = "my_"
		}
		pool := db.Open(t)
		s, err := sqlcommand.New(pool, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		fixture.Prepares(t, db, pool, "core/once/command/sqlcommand", string(db.Dialect),
			map[string]string{"list": "0", "remove": "(?)"})
	})
}
