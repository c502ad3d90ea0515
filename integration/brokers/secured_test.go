package brokers_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// securedWay is a way in which secured servers accept nothing for a while.
type securedWay struct {
	name       string
	begin, end func()
	says       string // a pattern of what a row of each flow says meanwhile; "": the events leave meanwhile
}

// securedFlow is a service with a relay to secured servers, as a team would configure it.
type securedFlow struct {
	*fixture.Process
	name, topic string
	held        func(t *testing.T) []heldMessage
	cfg         core.Config
	stop        func()
}

func newSecuredFlow(
	t *testing.T, name, topic string, p core.Publisher, held func(t *testing.T) []heldMessage,
) *securedFlow {
	t.Helper()
	f := &securedFlow{name: name, topic: topic, held: held, cfg: core.Config{
		Publisher: p, Relay: relay.Config{
			Retry: eager, Breaker: soon, PollInterval: 200 * time.Millisecond,
			ShutdownTimeout: 20 * time.Second,
		}, Observer: &core.Observer{Published: func(i core.PublishInfo) {
			if i.Result == core.PublishRetry || i.Result == core.PublishDead {
				t.Errorf("%s: an attempt was spent: %v", name, i.Err)
			}
		}},
	}}
	f.Process = fixture.NewProcess(t, testdb.SQLite(t), f.cfg)
	f.cfg.Repository = f.Repository
	f.stop = f.Run()
	return f
}

// checkSecured goes through the ways. No event is lost, those of a key stay in order, no event
// spends an attempt, a row says the cause, and the relay ends in time and begins again meanwhile.
func checkSecured(t *testing.T, flows []*securedFlow, ways []securedWay) {
	t.Helper()
	publish := func() {
		t.Helper()
		for _, f := range flows {
			for range 3 {
				f.Publish(keyed(f.topic, 6)...)
			}
		}
	}
	publish()
	awaitSecured(t, flows, "the first events")
	for _, way := range ways {
		began := time.Now()
		publish()
		way.begin()
		publish()
		if way.says == "" {
			awaitSecured(t, flows, way.name+": events leave meanwhile")
		} else {
			for _, f := range flows {
				f.awaitCause(way)
				f.restart(way)
			}
		}
		publish()
		way.end()
		awaitSecured(t, flows, way.name+": it is over")
		t.Logf("%s: %s", way.name, time.Since(began).Round(time.Millisecond))
	}
	for _, f := range flows {
		f.compare()
	}
}

func awaitSecured(t *testing.T, flows []*securedFlow, what string) {
	t.Helper()
	for _, f := range flows {
		var open fixture.StoredRow
		defer func() {
			if t.Failed() {
				t.Logf("%s: a row is %d after %d attempts: %s %s", f.name, open.Status, open.Attempts, open.ErrorCode,
					open.Error)
			}
		}()
		fixture.AwaitIn(t, 2*time.Minute, f.name+": "+what, func() bool {
			for _, row := range f.Rows() {
				if row.Status != fixture.StatusDone {
					open = row
					return row.Status == fixture.StatusDead
				}
			}
			return true
		})
	}
}

// awaitCause waits until a row says why nothing is published.
func (f *securedFlow) awaitCause(way securedWay) {
	f.T.Helper()
	pattern, other := regexp.MustCompile(way.says), ""
	defer func() {
		if f.T.Failed() {
			f.T.Logf("%s, %s: a row says: %s", f.name, way.name, other)
		}
	}()
	fixture.Await(f.T, f.name+", "+way.name+": a row says "+way.says, func() bool {
		for _, row := range f.Rows() {
			if row.Status == fixture.StatusDone || row.Error == "" {
				continue
			}
			if pattern.MatchString(row.Error) {
				return true
			}
			other = row.Error
		}
		return false
	})
}

// restart ends the relay, as SIGTERM does, and begins another one.
func (f *securedFlow) restart(way securedWay) {
	f.T.Helper()
	began := time.Now()
	f.stop()
	took := time.Since(began)
	fixture.Check(
		f.T,
		took < f.cfg.Relay.(relay.Config).ShutdownTimeout,
		"%s, %s: Run ended after %s",
		f.name,
		way.name,
		took,
	)
	f.NewOutbox(f.cfg)
	f.stop = f.Run()
}

// compare compares the rows with the messages that the broker has.
func (f *securedFlow) compare() {
	f.T.Helper()
	rows, copies, last := map[string]fixture.StoredRow{}, map[string]int{}, map[string]int64{}
	for _, row := range f.Rows() {
		rows[row.EventID] = row
		fixture.Check(f.T, row.Attempts == 0 && row.Status == fixture.StatusDone,
			"%s: a row is %d after %d attempts: %s", f.name, row.Status, row.Attempts, row.Error)
		if first, ok := last[row.Key]; !ok || row.KeySeq <= first {
			last[row.Key] = row.KeySeq - 1
		}
	}
	for _, h := range f.held(f.T) {
		row, ok := rows[h.UUID]
		fixture.Must(f.T, ok, "%s: the broker has a message without a row: %s", f.name, h.UUID)
		copies[h.UUID]++
		if copies[h.UUID] == 1 {
			fixture.Check(f.T, row.KeySeq == last[row.Key]+1, "%s: key %s: %d follows %d", f.name, row.Key, row.KeySeq,
				last[row.Key])
			last[row.Key] = row.KeySeq
		}
	}
	most := 0
	for id := range rows {
		fixture.Check(f.T, copies[id] > 0, "%s: event %s is done and not at the broker", f.name, id)
		most = max(most, copies[id])
	}
	f.T.Logf("%s: %d events, at most %d copies of one", f.name, len(rows), most)
}

// certificates are those that scripts/services has made for secured servers.
type certificates struct {
	t      *testing.T
	folder string
	shown  atomic.Pointer[tls.Certificate] // by the client
}

func certificatesOf(t *testing.T, s *fixture.PrivateServer) *certificates {
	t.Helper()
	c := &certificates{t: t, folder: s.Folder("certificates")}
	c.show("client")
	return c
}

// always is the configuration of a client whose certificate stays the same.
func (c *certificates) always(name string) *tls.Config {
	c.t.Helper()
	other := &certificates{t: c.t, folder: c.folder}
	other.show(name)
	return other.config()
}

func (c *certificates) file(name string) string { return filepath.Join(c.folder, name) }

// show makes the client show another certificate: "client" or "expired".
func (c *certificates) show(name string) {
	c.t.Helper()
	one, err := tls.LoadX509KeyPair(c.file(name+".crt"), c.file(name+".key"))
	fixture.NoError(c.t, err)
	c.shown.Store(&one)
}

// config is a client's configuration, which shows the certificate of the day.
func (c *certificates) config() *tls.Config {
	c.t.Helper()
	text, err := os.ReadFile(c.file("ca.crt"))
	fixture.NoError(c.t, err)
	authority := x509.NewCertPool()
	fixture.Must(c.t, authority.AppendCertsFromPEM(text), "no certificate in ca.crt")
	return &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: authority, ServerName: "127.0.0.1",
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return c.shown.Load(), nil
		},
	}
}

// withUser adds a user and the password to an address.
func withUser(t *testing.T, address, user string) string {
	t.Helper()
	u, err := url.Parse(address)
	fixture.NoError(t, err)
	u.User = url.UserPassword(user, "secret")
	return u.String()
}

// network has the connections of a test's clients.
type network struct {
	mu    sync.Mutex
	conns []net.Conn
}

// Dial connects.
func (n *network) Dial(network, address string) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, 2*time.Second)
	if err == nil {
		n.mu.Lock()
		n.conns = append(n.conns, conn)
		n.mu.Unlock()
	}
	return conn, err
}

// Cut closes all connections.
func (n *network) Cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, conn := range n.conns {
		_ = conn.Close()
	}
	n.conns = nil
}
