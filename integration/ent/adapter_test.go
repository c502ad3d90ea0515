package ent_test

import (
	"cmp"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The adapter suite over Ent runs on the transactions of generated code: on a plain pool, on a pool
// opened with Connector, with a Debug driver, and without the feature sql/execquery.
func TestAdapterSuiteEnt(t *testing.T) {
	t.Parallel()
	type way struct{ connector, debug, plain bool }
	testdb.EachWay(t, []testdb.Way[way]{
		{Name: "execquery"},
		{Name: "connector", Of: way{connector: true}},
		{Name: "debug", Of: way{debug: true}},
		{Name: "without execquery", Of: way{plain: true}},
	}, func(t *testing.T, db testdb.DB, way way) {
		h := adapters.Harness(db, func(t *testing.T, db testdb.DB, cfg core.Config) suite.Adapter {
			pool := db.Open(t)
			if way.connector {
				pool = fixture.TrackedPool(t, db)
			}
			var drv dialect.Driver = entsql.OpenDB(adapters.EntDialect(db), pool)
			if way.debug {
				drv = dialect.Debug(drv, func(...any) {})
			}
			return adapters.Ent(t, db, drv, way.plain, cfg)
		})
		h.Programs = cmp.Or(h.Programs, 170)
		suite.TestAdapter(t, h)
	})
}
