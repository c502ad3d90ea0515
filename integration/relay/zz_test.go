package relay_test

import (
	"database/sql"
	"fmt"
	"sort"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlrecord"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

func TestZZ(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		rec := &sqlrecord.Recorder{}
		pool := sql.OpenDB(sqltx.Connector(rec.Connector(db.Connector(t)), db.Dialect))
		ob := restOn(t, pool, db)(sqloutbox.OpenConfig{Prefix: "o_", Publisher: &outboxtest.Publisher{}, Relay: relay.Config{PollInterval: 5 * time.Second}})
		fixture.RunRelay(t, ob)
		time.Sleep(4 * time.Second)
		rec.Start()
		time.Sleep(20 * time.Second)
		m := map[string]int{}
		for _, c := range rec.Stop() {
			m[c.Query[:min(len(c.Query), 110)]]++
		}
		var l []string
		for q, n := range m {
			l = append(l, fmt.Sprintf("%3d %q", n, q))
		}
		sort.Strings(l)
		for _, s := range l {
			t.Log(s)
		}
	})
}
