//go:build clusters

package clusters_test

import (
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

// The leader is switched over, killed, and stopped, while producers write by all ways to it: to both
// nodes, by HAProxy, and by PgBouncer. Nothing is to be set in the outbox.
func TestPatroni(t *testing.T) {
	cluster := startPatroni(t)
	for _, synchronous := range []bool{false, true} {
		name := map[bool]string{false: "asynchronous", true: "synchronous"}[synchronous]
		t.Run(name, func(t *testing.T) {
			p := cluster.on(t)
			p.synchronous(synchronous)
			nodes, haproxy, bouncer := p.database(name)
			run := program{
				Dialect: core.Postgres, Open: open, Producers: []string{nodes, haproxy, bouncer, nodes, nodes},
				Write:  inTurn(withSQL, withGORM, withSQL, withPGX(nodes), withConnector(nodes, withGORM)),
				Relays: []string{nodes, haproxy, bouncer}, Hot: true, Parts: 2,
			}
			run.createTables(t, nodes)
			l := start(t, run)
			everywhere := func() {
				for i := range run.Producers {
					l.AwaitCommits(i, 50)
				}
				for i := range run.Relays {
					l.AwaitPublished(i, 20)
				}
			}
			everywhere()

			old := p.leader()
			p.switchover()
			everywhere()
			p.awaitFollower(old, synchronous)

			old = p.leader()
			p.nodes[old].Kill(t)
			p.await(1-old, "primary")
			everywhere()
			p.nodes[old].Up(t)
			p.awaitFollower(old, synchronous)

			old = p.leader()
			p.nodes[old].Pause(t)
			p.await(1-old, "primary")
			everywhere()
			p.nodes[old].Resume(t)
			p.awaitFollower(old, synchronous)
			everywhere()
			l.Finish(nodes).Check(t)
		})
	}
}
