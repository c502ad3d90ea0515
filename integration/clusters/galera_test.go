//go:build clusters

package clusters_test

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// galera is three nodes of MariaDB Galera, and a database on them.
type galera struct {
	nodes []*fixture.PrivateServer
	name  string
}

// TestGalera starts one cluster for all of its parts.
func TestGalera(t *testing.T) {
	nodes := fixture.StartPrivateSet(t, "galera1", "galera2", "galera3")
	part := func(name string, test func(*testing.T, galera)) {
		t.Run(name, func(t *testing.T) {
			cfg, err := mysql.ParseDSN(testdb.At(t, "mariadb", nodes[0].Address).DSN)
			fixture.NoError(t, err)
			g := galera{nodes: nodes, name: cfg.DBName}
			g.catchUp(t)
			test(t, g)
		})
	}
	part("late migration", galeraLateMigration)
	part("refused end", galeraRefusedEnd)
	part("warnings", galeraWarnings)
	part("consumers", galeraConsumers)
	part("faults, database/sql", func(t *testing.T, g galera) { galeraFaults(t, g, withSQL) })
	part("faults, GORM", func(t *testing.T, g galera) { galeraFaults(t, g, withGORM) })
}

// address returns the address of the database on a node.
func (g galera) address(node int, change ...func(*mysql.Config)) string {
	cfg, err := mysql.ParseDSN(g.nodes[node].Address)
	if err != nil {
		panic(err) // scripts/services printed it
	}
	cfg.DBName, cfg.ReadTimeout = g.name, 10*time.Second // nothing else ends a COMMIT on a server that hangs
	for _, c := range change {
		c(cfg)
	}
	return cfg.FormatDSN()
}

// current makes a pool see what other nodes have committed.
func current(cfg *mysql.Config) { cfg.Params = map[string]string{"wsrep_sync_wait": "1"} }

func (g galera) pool(t *testing.T, node int, change ...func(*mysql.Config)) *sql.DB {
	t.Helper()
	return openPool(t, openMySQL, g.address(node, change...))
}

func openMySQL(address string) (*sql.DB, error) { return sql.Open("mysql", address) }

// catchUp waits until every node has what the others have committed.
func (g galera) catchUp(t *testing.T) {
	t.Helper()
	for node := range g.nodes {
		pool := g.pool(t, node, current, func(cfg *mysql.Config) { cfg.DBName = "" })
		fixture.Count(t, pool, "SELECT 1")
	}
}

// status reads a status variable of a node. It is empty while the node does not answer.
func (g galera) status(node int, name string) (value string) {
	pool, err := openMySQL(g.address(node, func(cfg *mysql.Config) {
		cfg.DBName, cfg.Timeout, cfg.ReadTimeout = "", time.Second, time.Second
	}))
	if err != nil {
		return ""
	}
	defer pool.Close()
	_ = pool.QueryRow("SHOW GLOBAL STATUS LIKE '"+name+"'").Scan(new(string), &value)
	return value
}

func (g galera) await(t *testing.T, node int, name, value string) {
	t.Helper()
	fixture.AwaitIn(t, 2*time.Minute, name+" is "+value, func() bool { return g.status(node, name) == value })
}

// isolate cuts a node off the others.
func (g galera) isolate(t *testing.T, node int) {
	t.Helper()
	fixture.MustExec(t, g.pool(t, node), "SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'")
	g.await(t, node, "wsrep_cluster_status", "non-Primary")
}

func (g galera) reunite(t *testing.T, node int) {
	t.Helper()
	fixture.MustExec(t, g.pool(t, node), "SET GLOBAL wsrep_provider_options = 'gmcast.isolate=0'")
	g.await(t, node, "wsrep_local_state_comment", "Synced")
}

// Nodes of producers and of relays are killed, hang, are cut off, and come back.
func galeraFaults(t *testing.T, g galera, write way) {
	p := program{
		Dialect: core.MySQL, Open: openMySQL, Write: write, Parts: 2,
		Producers: []string{g.address(0), g.address(1)}, Relays: []string{g.address(1), g.address(2)},
	}
	p.createTables(t, g.address(0))
	g.catchUp(t)
	l := start(t, p)
	both := func() {
		l.AwaitCommits(0, 200)
		l.AwaitCommits(1, 200)
	}
	both()
	g.nodes[2].Kill(t)
	both()
	g.nodes[2].Up(t)
	l.AwaitPublished(1, 100)

	g.nodes[1].Pause(t)
	g.await(t, 0, "wsrep_cluster_size", "2") // it was expelled
	l.AwaitCommits(0, 200)
	g.nodes[1].Resume(t)
	g.await(t, 1, "wsrep_local_state_comment", "Synced")
	both()

	g.isolate(t, 1)
	l.AwaitCommits(0, 200)
	g.reunite(t, 1)
	both()

	g.nodes[0].Kill(t)
	l.AwaitCommits(1, 200)
	g.nodes[0].Up(t)
	both()
	l.Finish(g.address(2, current)).Check(t)
	l.brokenConnections()
}

// brokenConnections fails the test if no producer has lost a connection: the run would prove little.
func (l *ledger) brokenConnections() {
	l.t.Helper()
	lost := []string{"bad connection", "invalid connection", "connection reset", "broken pipe", "EOF"}
	for text := range l.failures {
		for _, part := range lost {
			if strings.Contains(text, part) {
				return
			}
		}
	}
	l.t.Error("no connection broke")
}
