//go:build clusters

package clusters_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// patroni is PostgreSQL 18 under Patroni, with HAProxy and PgBouncer in front of it.
type patroni struct {
	t                *testing.T
	nodes            [2]*fixture.PrivateServer
	haproxy, bouncer *fixture.PrivateServer
	ports            [2]int
}

// startPatroni starts a cluster of one test.
func startPatroni(t *testing.T) *patroni {
	t.Helper()
	set := fixture.StartPrivateSet(t, "etcd", "patroni1", "patroni2", "haproxy", "patronibouncer")
	p := &patroni{t: t, nodes: [2]*fixture.PrivateServer{set[1], set[2]}, haproxy: set[3], bouncer: set[4]}
	for i, n := range p.nodes {
		at, err := url.Parse(n.Address)
		fixture.NoError(t, err)
		p.ports[i], err = strconv.Atoi(at.Port())
		fixture.NoError(t, err)
	}
	return p
}

// on is the cluster for a subtest.
func (p *patroni) on(t *testing.T) *patroni {
	c := *p
	c.t = t
	return &c
}

// ask sends a request to Patroni's REST API. The status is 0 if there is no answer.
func (p *patroni) ask(node int, method, path, body string) (status int, answer string) {
	p.t.Helper()
	at := fmt.Sprintf("http://127.0.0.1:%d/%s", p.ports[node]+3, path)
	r, err := http.NewRequestWithContext(p.t.Context(), method, at, strings.NewReader(body))
	fixture.NoError(p.t, err)
	r.Header.Set("Content-Type", "application/json")
	client := http.Client{Timeout: time.Minute}
	if method == http.MethodGet {
		client.Timeout = 2 * time.Second // the node may be stopped
	}
	got, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer got.Body.Close()
	text, _ := io.ReadAll(got.Body)
	return got.StatusCode, string(text)
}

// is reports whether a node is a primary, a replica, or a sync standby.
func (p *patroni) is(node int, what string) bool {
	p.t.Helper()
	status, _ := p.ask(node, http.MethodGet, what, "")
	return status == http.StatusOK
}

// await waits until a node is a primary, a replica, or a sync standby.
func (p *patroni) await(node int, what string) {
	p.t.Helper()
	fixture.AwaitIn(p.t, 2*time.Minute, fmt.Sprintf("patroni%d is a %s", node+1, what), func() bool {
		return p.is(node, what)
	})
}

// leader returns the node that leads.
func (p *patroni) leader() (node int) {
	p.t.Helper()
	fixture.Await(p.t, "a node leads", func() bool {
		for node = range p.nodes {
			if p.is(node, "primary") {
				return true
			}
		}
		return false
	})
	return node
}

// synchronous switches the synchronous mode on or off, and waits until the cluster has it.
func (p *patroni) synchronous(on bool) {
	p.t.Helper()
	status, answer := p.ask(p.leader(), http.MethodPatch, "config", fmt.Sprintf(`{"synchronous_mode": %t}`, on))
	fixture.Must(p.t, status == http.StatusOK, "PATCH /config: %d %s", status, answer)
	p.awaitFollower(1-p.leader(), on)
}

// awaitFollower waits until a node follows and is allowed to take over.
func (p *patroni) awaitFollower(node int, synchronous bool) {
	p.t.Helper()
	if synchronous {
		p.await(node, "sync")
		return
	}
	p.await(node, "async")
}

// switchover makes the other node the leader.
func (p *patroni) switchover() {
	p.t.Helper()
	old := p.leader()
	body, err := json.Marshal(map[string]string{
		"leader": fmt.Sprintf("patroni%d", old+1), "candidate": fmt.Sprintf("patroni%d", 2-old),
	})
	fixture.NoError(p.t, err)
	status, answer := p.ask(old, http.MethodPost, "switchover", string(body))
	fixture.Must(p.t, status == http.StatusOK, "POST /switchover: %d %s", status, answer)
	p.await(1-old, "primary")
}

// database makes a database, and returns its addresses: that of all nodes, and those by way of
// HAProxy and of PgBouncer. connect_timeout is for a node that hangs: it accepts connections, and
// says nothing.
func (p *patroni) database(name string) (nodes, haproxy, bouncer string) {
	p.t.Helper()
	db, err := sql.Open("pgx", p.nodes[p.leader()].Address)
	fixture.NoError(p.t, err)
	defer db.Close()
	fixture.MustExec(p.t, db, "CREATE DATABASE "+name)
	const options = "?sslmode=disable&connect_timeout=3"
	for _, port := range p.ports { // pgx asks no other node after "database does not exist"
		at, err := open(fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s%s", port, name, options))
		fixture.NoError(p.t, err)
		fixture.Await(p.t, "the node has the database", func() bool { return at.PingContext(p.t.Context()) == nil })
		_ = at.Close()
	}
	nodes = fmt.Sprintf("postgres://postgres@127.0.0.1:%d,127.0.0.1:%d/%s%s&target_session_attrs=read-write",
		p.ports[0], p.ports[1], name, options)
	to := func(s *fixture.PrivateServer) string {
		at, err := url.Parse(s.Address)
		fixture.NoError(p.t, err)
		return fmt.Sprintf("postgres://postgres@%s/%s%s", at.Host, name, options)
	}
	return nodes, to(p.haproxy), to(p.bouncer) + "&default_query_exec_mode=exec"
}

// stopReplication stops the processes that send the log of the leader.
func (p *patroni) stopReplication() {
	p.t.Helper()
	db, err := sql.Open("pgx", p.nodes[p.leader()].Address)
	fixture.NoError(p.t, err)
	defer db.Close()
	var pid int
	fixture.NoError(p.t, db.QueryRowContext(p.t.Context(),
		"SELECT pid FROM pg_stat_replication WHERE application_name LIKE 'patroni_'").Scan(&pid))
	fixture.NoError(p.t, syscall.Kill(pid, syscall.SIGSTOP))
}

// open opens a pool of plain connections.
func open(address string) (*sql.DB, error) { return sql.Open("pgx", address) }
