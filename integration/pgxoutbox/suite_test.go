package pgxoutbox_test

import (
	"testing"

	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// ways has the settings of Connector that decide when BEGIN and events are sent.
var ways = []struct {
	name string
	cfg  pgxoutbox.Config
}{
	{"deferred", pgxoutbox.Config{}},
	{"eager", pgxoutbox.Config{Eager: true}},
	{"eager begin", pgxoutbox.Config{EagerBegin: true}},
}

// The adapter suite on pools of Connector. With -short each ORM runs in one of the ways, and
// database/sql in two.
func TestAdapterSuitePgx(t *testing.T) {
	t.Parallel()
	for orm, open := range adapters.PgxORMs {
		for i, way := range ways {
			if testing.Short() && (i > 1 || orm != "sql") {
				continue
			}
			t.Run(orm+", "+way.name, func(t *testing.T) {
				t.Parallel()
				suite.TestAdapter(t, adapters.PgxHarness(testdb.Postgres(t), way.cfg, open))
			})
		}
	}
}
