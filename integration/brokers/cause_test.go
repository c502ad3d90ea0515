package brokers_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"slices"
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
func requireTold(t *testing.T, p core.Publisher, causes ...string) {
	t.Helper()
	told := func(err error) bool {
		return !slices.ContainsFunc(causes, func(cause string) bool { return !strings.Contains(err.Error(), cause) })
	}
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			err := publishWithin(t, p, brokerDelivery(t, "it-"+core.NewEventID(), ""), 5*time.Second)
			if class := classOf(err); class != core.ClassUnavailable || !told(err) {
				t.Errorf("class %v, %v; want unavailable and %q", class, err, causes)
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
// publish.
func TestASilentServerIsTold(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fixture.NoError(t, err)
	serveEach(t, l, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	address := l.Addr().String()
	for name, p := range publishersAt(t, address) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireTold(t, p, address, "i/o timeout")
		})
	}
}

// A server that has answered says nothing any more.
func TestAServerThatFallsSilentIsTold(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]broker{
		"kafkabridge": kafkaBroker{addresses: []string{topics.KafkaAddress(t)}},
		"franzbridge": kafkaBroker{addresses: []string{topics.KafkaAddress(t)}, franz: true},
		"amqpbridge":  &rabbitBroker{uri: topics.RabbitURI(t)},
		"natsbridge":  natsBroker{topics.NATSURL(t)}, "redisbridge": redisBroker{topics.RedisURL(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := k.topic(t)
			p, answers := k.through(t, time.Second)
			publishUntil(t, p, brokerDelivery(t, topic, "k"), "")
			answers.Hold()
			err := publishWithin(t, p, brokerDelivery(t, topic, "k"), time.Second)
			requireClass(t, err, core.ClassUnavailable)
			_, waits, _ := strings.Cut(err.Error(), name+": publish to ")
			fixture.Check(t, strings.HasPrefix(waits, "127.0.0.1:"), "err = %v, want what it waits for", err)
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
