package gorm_test

import (
	"cmp"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The adapter suite over GORM runs with and without prepared statements, on a plain pool and on a
// pool opened with Connector, and with the Transactor alone.
func TestAdapterSuiteGORM(t *testing.T) {
	t.Parallel()
	testdb.EachWay(t, []testdb.Way[adapters.GORMWay]{
		{Name: "plain"},
		{Name: "prepared", Of: adapters.GORMWay{Prepare: true}},
		{Name: "prepared and connector", Of: adapters.GORMWay{Prepare: true, Connector: true}},
		{Name: "no plugin", Of: adapters.GORMWay{NoPlugin: true}},
		{Name: "no plugin and prepared", Of: adapters.GORMWay{NoPlugin: true, Prepare: true}},
	}, func(t *testing.T, db testdb.DB, way adapters.GORMWay) {
		h := adapters.Harness(db, func(t *testing.T, db testdb.DB, cfg core.Config) suite.Adapter {
			return adapters.GORM(t, db, way, cfg)
		})
		h.Programs = cmp.Or(h.Programs, 225)
		suite.TestAdapter(t, h)
	})
}
