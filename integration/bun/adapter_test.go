package bun_test

import (
	"cmp"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// eachBun runs fn on each database, PostgreSQL over both drivers, in each way for which only
// returns true. If only is nil, fn runs in all ways. With -short a second way runs on one database,
// and the other driver runs with the connector.
func eachBun(t *testing.T, only func(adapters.BunWay) bool, fn func(t *testing.T, db testdb.DB, way adapters.BunWay)) {
	t.Helper()
	inBunWays(t, testdb.EachWay, only, fn)
}

// inBunWays is eachBun on the databases of each, which is EachWay or EveryWay of testdb.
func inBunWays(
	t *testing.T,
	each func(*testing.T, []testdb.Way[adapters.BunWay], func(*testing.T, testdb.DB, adapters.BunWay)),
	only func(adapters.BunWay) bool, fn func(t *testing.T, db testdb.DB, way adapters.BunWay),
) {
	t.Helper()
	passes := func(way adapters.BunWay) bool { return only == nil || only(way) }
	var ways []testdb.Way[adapters.BunWay]
	for _, way := range []testdb.Way[adapters.BunWay]{
		{Name: "plain"}, {Name: "connector", Of: adapters.BunWay{Connector: true}},
	} {
		if passes(way.Of) {
			ways = append(ways, way)
		}
	}
	each(t, ways, fn)
	if testing.Short() {
		passes = func(way adapters.BunWay) bool { return way.Connector && (only == nil || only(way)) }
	}
	for name, way := range map[string]adapters.BunWay{
		"pgdriver": {PGDriver: true}, "pgdriver and connector": {PGDriver: true, Connector: true},
	} {
		if passes(way) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				fn(t, testdb.Postgres(t), way)
			})
		}
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
