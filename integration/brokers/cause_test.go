package brokers_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge"
)

// publishersAt returns a publisher of each bridge to a server, without TLS.
func publishersAt(t *testing.T, address string) map[string]core.Publisher {
	t.Helper()
	watermill, err := kafkabridge.NewPublisher(kafkabridge.Config{Brokers: []string{address}})
	fixture.NoError(t, err)
	topics.CloseAtEnd(t, watermill)
	franz, err := franzbridge.NewPublisher(franzbridge.Config{Brokers: []string{address}})
	fixture.NoError(t, err)
	topics.CloseAtEnd(t, franz)
	options, err := redisbridge.Options("redis://" + address)
	fixture.NoError(t, err)
	inRedis, err := redisbridge.NewPublisher(redisbridge.Config{Client: redis.NewClient(options)})
	fixture.NoError(t, err)
	topics.CloseAtEnd(t, inRedis)
	return map[string]core.Publisher{
		"kafkabridge": watermill,
		"franzbridge": franz,
		"amqpbridge": topics.RabbitPublisher(t, amqpbridge.Config{
			AMQP: amqpbridge.QueueConfig("amqp://guest:guest@" + address),
		}),
		"natsbridge":  topics.NATSPublisher(t, natsbridge.Config{URL: "nats://" + address}),
		"redisbridge": inRedis,
	}
}

// requireTold publishes as many events at once as a relay has workers, within its time limit. The
// error of each is an outage that names the cause.
func requireTold(t *testing.T, p core.Publisher, cause string) {
	t.Helper()
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			err := publishWithin(t, p, brokerDelivery(t, "it-"+core.NewEventID(), ""), 5*time.Second)
			if class := classOf(err); class != core.ClassUnavailable || !strings.Contains(err.Error(), cause) {
				t.Errorf("class %v, %v; want unavailable and %q", class, err, cause)
			}
		})
	}
	all.Wait()
}

// A server that wants TLS is asked without it.
func TestNoTLSIsTold(t *testing.T) {
	t.Parallel()
	https := httptest.NewTLSServer(nil)
	t.Cleanup(https.Close)
	l, err := tls.Listen("tcp", "127.0.0.1:0", https.TLS)
	fixture.NoError(t, err)
	serveEach(t, l, func(c net.Conn) { _ = c.(*tls.Conn).Handshake() })
	requireEachTold(t, l.Addr().String())
}

// requireEachTold publishes to a server that wants TLS. A server of NATS would say so first, and one
// that says nothing is too slow.
func requireEachTold(t *testing.T, address string) {
	t.Helper()
	for name, p := range publishersAt(t, address) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireTold(t, p, map[bool]string{false: "TLS", true: "i/o timeout"}[name == "natsbridge"])
		})
	}
}

// serveEach serves the connections of l until the test ends.
func serveEach(t *testing.T, l net.Listener, serve func(net.Conn)) {
	t.Helper()
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				go func() {
					defer c.Close()
					serve(c)
				}()
			}
		}
	}()
}

// A server that closes each connection after the first bytes may want TLS, too.
func TestAClosedConnectionIsTold(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fixture.NoError(t, err)
	serveEach(t, l, func(c net.Conn) { _, _ = io.ReadFull(c, make([]byte, 1)) })
	requireEachTold(t, l.Addr().String())
}

// A server takes connections and says nothing. The time limit of a connection ends before that of a
// publish. (Sarama and Redis' client know no such limit.)
func TestASilentServerIsTold(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fixture.NoError(t, err)
	serveEach(t, l, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	all := publishersAt(t, l.Addr().String())
	for _, name := range []string{"franzbridge", "amqpbridge", "natsbridge"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireTold(t, all[name], "timeout")
		})
	}
}

// RabbitMQ refuses the password.
func TestAWrongPasswordIsTold(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(topics.RabbitURI(t))
	fixture.NoError(t, err)
	u.User = url.UserPassword("guest", "wrong")
	requireTold(t, topics.RabbitPublisher(t, amqpbridge.Config{AMQP: amqpbridge.QueueConfig(u.String())}),
		"username or password not allowed")
}
