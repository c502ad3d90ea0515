//go:build clusters

package clusters_test

import (
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The clock of one node is 20 s ahead, so that to its relay every lease of the other node ends before
// it begins. Once the relays have compared the clocks, no event is taken over from the process that
// works on it.
func TestGaleraClocksDiffer(t *testing.T) {
	t.Setenv("SERVICES_GALERA2_CLOCK", "+20s")
	nodes := fixture.StartPrivateSet(t, "galera1", "galera2")
	cfg, err := mysql.ParseDSN(testdb.At(t, "mariadb", nodes[0].Address).DSN)
	fixture.NoError(t, err)
	g := galera{nodes: nodes, name: cfg.DBName}
	now := func(node int) (at time.Time) {
		fixture.NoError(t, g.pool(t, node).QueryRowContext(t.Context(), "SELECT UTC_TIMESTAMP(6)").Scan(&at))
		return at
	}
	ahead := now(1).Sub(now(0)).Seconds()
	fixture.Check(t, ahead > 15 && ahead < 25, "node 2 is %f s ahead", ahead)

	p := program{
		Dialect:   core.MySQL,
		Open:      openMySQL,
		Write:     withSQL,
		Producers: []string{g.address(0)},
		Relays:    []string{g.address(1)},
		Hot:       true,
		Relay: relay.Config{
			PollInterval: 200 * time.Millisecond,
			HotLease:     10 * time.Second,
			ClaimLease:   10 * time.Second,
		},
	}
	p.createTables(t, p.Producers[0])
	l := start(t, p)
	pool := g.pool(t, 0)
	fixture.AwaitIn(t, 2*time.Minute, "the producer's leases last longer", func() bool {
		var longest float64
		fixture.NoError(t, pool.QueryRowContext(t.Context(), "SELECT COALESCE(MAX(TIMESTAMPDIFF(MICROSECOND, "+
			"UTC_TIMESTAMP(6), lease_until)), 0) / 1000000 FROM outbox_event "+
			"WHERE claimed_by LIKE 'producer%'").Scan(&longest))
		return longest > 20
	})
	l.AwaitCommits(0, 50) // what was inserted with short leases is published
	l.mu.Lock()
	before := len(l.copies)
	l.mu.Unlock()
	l.AwaitCommits(0, 500)
	v := l.Finish(g.address(0, current))
	again := 0
	seen := map[string]bool{}
	for _, c := range l.copies[:before] {
		seen[c.ID] = true
	}
	for _, c := range l.copies[before:] {
		if seen[c.ID] {
			again++
		}
		seen[c.ID] = true
	}
	t.Logf("%d events came twice before, %d after", v.Duplicates-again, again)
	fixture.Check(t, v.Lost+v.Ghosts+v.Disorder+v.SeqDisorder+v.Lies == 0, "%+v", v)
	fixture.Check(t, again <= 5, "%d events came twice although the clocks were compared", again)
}
