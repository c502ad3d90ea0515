package gorm_test

import (
	"cmp"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The adapter suite over GORM, with and without prepared statements, on a plain pool and on one
// opened with Connector, and of the Transactor alone.
func TestAdapterSuiteGORM(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]adapters.GORMWay{
		"plain": {}, "prepared": {Prepare: true}, "prepared and connector": {Prepare: true, Connector: true},
		"no plugin": {NoPlugin: true}, "no plugin and prepared": {NoPlugin: true, Prepare: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db testdb.DB) {
				h := adapters.Harness(db, func(t *testing.T, db testdb.DB, cfg core.Config) suite.Adapter {
					return adapters.GORM(t, db, way, cfg)
				})
				h.Programs = cmp.Or(h.Programs, 225)
				suite.TestAdapter(t, h)
			})
		})
	}
}
