package cli_test

import (
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// hangingProxy returns the address of a proxy of a server, and a function that makes it pass no more
// bytes.
func hangingProxy(t *testing.T, server string) (address string, hang func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fixture.NoError(t, err)
	var passing sync.Mutex // held by hang
	pass := func(to, from net.Conn) {
		defer to.Close()
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			passing.Lock()
			_, failed := to.Write(buf[:n])
			passing.Unlock()
			if err != nil || failed != nil {
				return
			}
		}
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			broker, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			go pass(broker, client)
			go pass(client, broker)
		}
	}()
	hung := false
	t.Cleanup(func() {
		_ = l.Close()
		if hung {
			passing.Unlock()
		}
	})
	return l.Addr().String(), func() { passing.Lock(); hung = true }
}

// A broker hangs, as RabbitMQ does in an alarm. On SIGTERM the relay ends in time and with exit code
// 0, and holds no event.
func TestRelayStopsWhileItsBrokerHangs(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	if out, errs, code := outbox(t, db, "migrate", "up"); code != 0 {
		t.Fatal(out, errs)
	}
	var in inbound
	topic := rabbitQueue(t, &in, nil)
	u, err := url.Parse(topics.RabbitURI(t))
	fixture.NoError(t, err)
	var hang func()
	u.Host, hang = hangingProxy(t, u.Host)
	u.RawQuery = "topology=queue"
	relay := startRelayWith(t, "DATABASE_URL="+address(t, db), "OUTBOX_TO="+u.String(), "OUTBOX_PUBLISH_TIMEOUT=2s")
	service := serviceOf(t, db)
	service(topic, 1)
	fixture.Await(t, "the first event arrives", func() bool { return len(in.all()) == 1 })
	hang()
	service(topic, 20)
	fixture.Await(t, "the relay notices", func() bool {
		return strings.Contains(relay.log.String(), "destination stopped")
	})
	relay.terminate()
	if n := fixture.Count(t, db.Open(t), "SELECT COUNT(*) FROM outbox_event WHERE status IN (0, 2) AND "+
		"lease_until IS NOT NULL AND claim_no <> 0"); n != 0 {
		t.Errorf("the relay kept %d events when it ended", n)
	}
	if log := relay.log.String(); !strings.Contains(log, "did not close its connection in order") {
		t.Errorf("the log does not say that the broker hung:\n%s", log)
	}
}
