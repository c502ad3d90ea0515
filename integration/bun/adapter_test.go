package bun_test

import (
	"cmp"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// eachBun runs fn on each database, PostgreSQL over both drivers, each in the ways that only lets
// pass. A nil one lets all pass.
func eachBun(t *testing.T, only func(adapters.BunWay) bool, fn func(t *testing.T, db testdb.DB, way adapters.BunWay)) {
	t.Helper()
	for name, way := range map[string]adapters.BunWay{
		"plain": {}, "connector": {Connector: true}, "pgdriver": {PGDriver: true},
		"pgdriver and connector": {PGDriver: true, Connector: true},
	} {
		if only != nil && !only(way) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if way.PGDriver {
				fn(t, testdb.Postgres(t), way)
				return
			}
			testdb.Each(t, func(t *testing.T, db testdb.DB) { fn(t, db, way) })
		})
	}
}

// The adapter suite over Bun, with and without the connector, PostgreSQL over both drivers.
func TestAdapterSuiteBun(t *testing.T) {
	t.Parallel()
	eachBun(t, nil, func(t *testing.T, db testdb.DB, way adapters.BunWay) {
		h := adapters.Harness(db, func(t *testing.T, db testdb.DB, cfg core.Config) suite.Adapter {
			return adapters.Bun(t, db, way, cfg)
		})
		h.Programs = cmp.Or(h.Programs, 250)
		suite.TestAdapter(t, h)
	})
}
