//go:build clusters

package clusters_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// group is three members of MySQL Group Replication, and a database on them.
type group struct {
	nodes []*fixture.PrivateServer
	name  string
}

// TestGroupReplication starts one group for all of its parts.
func TestGroupReplication(t *testing.T) {
	nodes := fixture.StartPrivateSet(t, "groupreplication1", "groupreplication2", "groupreplication3")
	part := func(number int, name string, test func(*testing.T, group)) {
		t.Run(name, func(t *testing.T) {
			g := group{nodes: nodes, name: fmt.Sprintf("part%d", number)}
			pool, err := openPrimary(strings.ReplaceAll(g.all(), g.name, ""))
			fixture.NoError(t, err)
			defer pool.Close()
			fixture.MustExec(t, pool, "CREATE DATABASE "+g.name)
			test(t, g)
		})
	}
	part(1, "faults, database/sql", func(t *testing.T, g group) { groupFaults(t, g, withSQL) })
	part(2, "faults, GORM", func(t *testing.T, g group) { groupFaults(t, g, withGORM) })
	part(3, "consumers", groupConsumers)
	part(4, "several primaries", severalPrimaries)
}

func (g group) address(node int) string {
	cfg, err := mysql.ParseDSN(g.nodes[node].Address)
	if err != nil {
		panic(err) // scripts/services printed it
	}
	cfg.DBName, cfg.ReadTimeout = g.name, 10*time.Second // nothing else ends a COMMIT on a server that hangs
	return cfg.FormatDSN()
}

// all returns the addresses of all members, for openPrimary.
func (g group) all() string { return g.address(0) + " " + g.address(1) + " " + g.address(2) }

// openPrimary opens a pool whose connections go to the primary among several addresses, as MySQL
// Router does.
func openPrimary(addresses string) (*sql.DB, error) {
	var c primary
	for address := range strings.FieldsSeq(addresses) {
		cfg, err := mysql.ParseDSN(address)
		if err != nil {
			return nil, err
		}
		one, err := mysql.NewConnector(cfg)
		if err != nil {
			return nil, err
		}
		c = append(c, one)
	}
	return sql.OpenDB(c), nil
}

type primary []driver.Connector

func (c primary) Driver() driver.Driver { return c[0].Driver() }

func (c primary) Connect(ctx context.Context) (driver.Conn, error) {
	err := errors.New("no member of the group is its primary")
	for _, one := range c {
		conn, failed := writable(ctx, one)
		if failed == nil {
			return conn, nil
		}
		err = errors.Join(err, failed)
	}
	return nil, err
}

// writable connects to a member if it is the primary. A member that hangs is given a second.
func writable(ctx context.Context, c driver.Connector) (driver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := c.Connect(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, "SELECT @@global.super_read_only", nil)
	if err == nil {
		readOnly := make([]driver.Value, 1)
		err = errors.Join(rows.Next(readOnly), rows.Close())
		if err == nil && fmt.Sprintf("%s", readOnly[0]) != "0" && readOnly[0] != int64(0) {
			err = errors.New("the member is not the primary")
		}
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// primary returns the number of the member that takes writes.
func (g group) primary(t *testing.T) (node int) {
	t.Helper()
	pool, err := openPrimary(g.all())
	fixture.NoError(t, err)
	defer pool.Close()
	port := fixture.Count(t, pool, "SELECT @@port")
	for i, n := range g.nodes {
		cfg, err := mysql.ParseDSN(n.Address)
		fixture.NoError(t, err)
		if _, p, _ := net.SplitHostPort(cfg.Addr); p == strconv.FormatInt(port, 10) {
			node = i
		}
	}
	return node
}

// state returns what a member says of itself.
func (g group) state(node int) (state string) {
	pool, err := sql.Open("mysql", g.address(node))
	if err != nil {
		return ""
	}
	defer pool.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = pool.QueryRowContext(ctx, "SELECT MEMBER_STATE FROM performance_schema.replication_group_members "+
		"WHERE MEMBER_ID = @@server_uuid").Scan(&state)
	return state
}

// The primary is killed, hangs, is cut off from the others, and comes back.
func groupFaults(t *testing.T, g group, write way) {
	p := program{
		Dialect: core.MySQL, Open: openPrimary, Write: write, Parts: 2,
		Producers: []string{g.all(), g.all()}, Relays: []string{g.all(), g.all()},
	}
	p.createTables(t, g.all())
	g.awaitTables(t)
	l := start(t, p)
	both := func() {
		l.AwaitCommits(0, 200)
		l.AwaitCommits(1, 200)
		l.AwaitPublished(0, 50)
		l.AwaitPublished(1, 50)
	}
	both()
	killed := g.primary(t)
	g.nodes[killed].Kill(t)
	both()
	g.nodes[killed].Up(t)
	both()

	hung := g.primary(t)
	g.nodes[hung].Pause(t)
	both()
	g.nodes[hung].Resume(t)
	g.nodes[hung].Up(t)
	both()

	alone := g.primary(t)
	others := []int{(alone + 1) % 3, (alone + 2) % 3}
	for _, other := range others {
		g.nodes[other].Pause(t)
	}
	fixture.AwaitIn(t, 2*time.Minute, "the primary notices that it is alone", func() bool {
		return g.state(alone) == "ERROR"
	})
	for _, other := range others {
		g.nodes[other].Resume(t)
	}
	both()
	for _, node := range g.nodes { // of the others, the one that went on first may have expelled the other
		node.Up(t)
	}
	both()
	l.Finish(g.all()).Check(t)
	l.brokenConnections()
}

// The primary is killed, and the next one hangs, while messages and requests come more than once.
func groupConsumers(t *testing.T, g group) {
	pool := func() *sql.DB { return openPool(t, openPrimary, g.all()) }
	createConsumerTables(t, core.MySQL, pool())
	g.awaitTables(t)
	c := startConsumers(t, core.MySQL, pool(), pool())
	c.Await(0.2)
	killed := g.primary(t)
	g.nodes[killed].Kill(t)
	c.Await(0.5)
	g.nodes[killed].Up(t)
	c.Await(0.6)
	hung := g.primary(t)
	g.nodes[hung].Pause(t)
	c.Await(0.9)
	g.nodes[hung].Resume(t)
	g.nodes[hung].Up(t)
	c.Finish(pool())
}

// awaitTables waits until every member takes part and has the tables. One that has not caught up does
// not count for a majority.
func (g group) awaitTables(t *testing.T) {
	t.Helper()
	for node := range g.nodes {
		fixture.Await(t, "the member has the tables", func() bool {
			if g.state(node) != "ONLINE" {
				return false
			}
			pool, err := openMySQL(g.address(node))
			fixture.NoError(t, err)
			defer pool.Close()
			var n int
			return pool.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM counter").Scan(&n) == nil && n == keys
		})
	}
}

// Producers and relays write on several primaries, whose transactions conflict. That of a relay is
// killed, and the other relay takes its events over.
func severalPrimaries(t *testing.T, g group) {
	pool, err := openPrimary(g.all())
	fixture.NoError(t, err)
	defer pool.Close()
	fixture.MustExec(t, pool, "DO group_replication_switch_to_multi_primary_mode()")
	p := program{
		Dialect: core.MySQL, Open: openMySQL, Write: withSQL, Parts: 2,
		Producers: []string{g.address(0), g.address(1)}, Relays: []string{g.address(1), g.address(2)},
	}
	p.createTables(t, g.address(0))
	g.awaitTables(t)
	l := start(t, p)
	l.AwaitCommits(0, 300)
	l.AwaitCommits(1, 300)
	g.nodes[2].Kill(t)
	l.AwaitCommits(0, 300)
	l.AwaitCommits(1, 300)
	l.AwaitPublished(0, 300)
	l.Finish(g.address(0)).Check(t)
}
