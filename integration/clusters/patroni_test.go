//go:build clusters

package clusters_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// The leader is switched over, killed and stopped, while producers write by all ways to it: to both
// nodes, by HAProxy, and by PgBouncer. Nothing is to be set in the outbox. An asynchronous standby may
// lack the newest commits of a leader that was killed. Everything else holds for the others.
func TestPatroni(t *testing.T) {
	cluster := startPatroni(t)
	for _, mode := range []string{"synchronous", "asynchronous"} {
		t.Run(mode, func(t *testing.T) {
			p, synchronous := cluster.on(t), mode == "synchronous"
			p.synchronous(synchronous)
			nodes, haproxy, bouncer := p.database(mode)
			run := program{
				Dialect: core.Postgres, Open: open, Producers: []string{nodes, haproxy, bouncer, nodes},
				Write:  inTurn(withSQL, withGORM, withSQL, withPGX(nodes)),
				Relays: []string{nodes, haproxy, bouncer}, Hot: true, Parts: 1, Pause: 30 * time.Millisecond,
			}
			run.createTables(t, nodes)
			l := start(t, run)
			goesOn := func(after string) {
				began := time.Now()
				for i := range run.Producers {
					l.AwaitCommits(i, 50)
				}
				for i := range run.Relays {
					l.AwaitPublished(i, 10)
				}
				t.Logf("%s: all go on %s later, and %d transactions are gone", after,
					time.Since(began).Round(100*time.Millisecond), l.missing(nodes))
			}
			goesOn("start")

			old := p.leader()
			p.switchover()
			goesOn("switchover")
			fixture.Check(t, l.missing(nodes) == 0, "the switchover has lost commits")
			p.awaitFollower(old, synchronous)

			old = p.leader()
			if synchronous { // no commit may be told that the standby does not have
				p.stopReplication()
				committed, since := l.Committed.Load(), time.Now()
				fixture.Await(t, "COMMIT waits for the standby", func() bool {
					if now := l.Committed.Load(); now != committed {
						committed, since = now, time.Now()
					}
					return time.Since(since) > 2*time.Second
				})
			}
			p.nodes[old].Kill(t)
			p.await(1-old, "primary")
			goesOn("kill")
			p.nodes[old].Up(t)
			p.awaitFollower(old, synchronous)

			old = p.leader()
			p.nodes[old].Pause(t)
			p.await(1-old, "primary")
			goesOn("stop")
			p.nodes[old].Resume(t)
			p.awaitFollower(old, synchronous)
			goesOn("resume")
			v := l.Finish(nodes)
			if !synchronous {
				v = l.withoutLost(nodes)
			}
			v.Check(t)
		})
	}
}

// The leader is switched over, killed and stopped, while messages and requests come more than once, by
// the addresses of all nodes and by HAProxy.
func TestPatroniConsumers(t *testing.T) {
	p := startPatroni(t)
	p.synchronous(true)
	nodes, haproxy, _ := p.database("consumers")
	pool := func(address string) *sql.DB { return openPool(t, open, address) }
	createConsumerTables(t, core.Postgres, pool(nodes))
	c := startConsumers(t, core.Postgres, pool(nodes), pool(haproxy))
	c.Await(0.2)
	old := p.leader()
	p.switchover()
	c.Await(0.4)
	p.awaitFollower(old, true)
	old = p.leader()
	p.nodes[old].Kill(t)
	p.await(1-old, "primary")
	c.Await(0.6)
	p.nodes[old].Up(t)
	p.awaitFollower(old, true)
	old = p.leader()
	p.nodes[old].Pause(t)
	p.await(1-old, "primary")
	c.Await(0.8)
	p.nodes[old].Resume(t)
	c.Finish(pool(nodes))
}

// The leader is killed after it has committed what it did not send to its standby. Those commits are
// gone, though their programs were told otherwise, and the poller has published their events. A
// reader of a failover slot has not (synchronized_standby_slots). All other events are right.
func TestPatroniLostCommits(t *testing.T) {
	p := startPatroni(t)
	p.awaitFollower(1-p.leader(), false)
	w := startLogged(p, "lost_by_log")
	nodes, _, _ := p.database("lost")
	run := program{
		Dialect: core.Postgres, Open: open, Producers: []string{nodes, nodes}, Write: withSQL,
		Relays: []string{nodes}, Hot: true, Pause: 30 * time.Millisecond,
	}
	run.createTables(t, nodes)
	l := start(t, run)
	l.AwaitPublished(0, 50)
	w.goesOn()
	w.awaitReady()

	old := p.leader()
	p.stopReplication()
	for i := range run.Producers {
		l.AwaitCommits(i, 200)
		w.AwaitCommits(i, 100)
	}
	p.nodes[old].Kill(t)
	p.await(1-old, "primary")
	l.AwaitPublished(0, 100)
	p.nodes[old].Up(t)
	w.goesOn()

	v, byLog := l.Finish(nodes), w.finish()
	fixture.Check(t, l.missing(nodes) > 0 && w.missing(w.address) > 0, "nothing was lost: the run proves nothing")
	fixture.Check(t, byLog.Ghosts == 0, "%d events were read from the log that the standby did not have", byLog.Ghosts)
	twice := v.SeqTwice + byLog.SeqTwice
	fixture.Check(t, twice == 0, "%d numbers of keys were used twice", twice)
	t.Logf("%d transactions are gone, and %d of their events are published; by the log %d and %d", l.missing(nodes),
		v.Ghosts, w.missing(w.address), byLog.Ghosts)
	l.withoutLost(nodes).Check(t)
	w.withoutLost(w.address).Check(t)
}
