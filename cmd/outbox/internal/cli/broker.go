package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"
	saslplain "github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge"
)

const brokerHelp = `  kafka://host:9092,host2:9092       a topic is a topic. ?tls=true; user:password@ is SASL/PLAIN.
                                     Up to 1024 events are on their way at once, with any --workers
  amqp://user:password@host:5672,host2:5672/
                                     RabbitMQ; a topic is a fanout exchange. ?topology=queue: a topic
                                     is a durable queue, which is declared, with &queue=quorum as a quorum
                                     queue; ?topology=topic&exchange=NAME: a topic is a routing key of that
                                     exchange. amqps:// is with TLS
  nats://host:4222,host2:4222        JetStream; a topic is a subject of a stream that exists
  redis://user:password@host:6379/0  a topic is a stream. rediss:// is with TLS`

// broker is the destination of the relay.
type broker struct {
	publisher
	name string // where it is, without a password
}

// publisher is a publisher that a bridge made.
type publisher interface {
	core.Publisher
	Close(ctx context.Context) error
}

// brokerSettings are those that the relay and its broker share.
type brokerSettings struct {
	workers int
	timeout time.Duration // of a publish
	logger  *slog.Logger
}

// connect is the time limit of a connection. It ends before that of the publish, which tells why.
func (s brokerSettings) connect() time.Duration { return s.timeout * 4 / 5 }

type opener func(context.Context, *url.URL, brokerSettings) (publisher, error)

// openerOf returns what opens the broker of --to.
func openerOf(address string) (scheme string, open opener, err error) {
	scheme, _, found := strings.Cut(address, "://")
	open = map[string]opener{
		"kafka": openKafka, "amqp": openAMQP, "amqps": openAMQP, "nats": openNATS, "tls": openNATS,
		"redis": openRedis, "rediss": openRedis,
	}[scheme]
	if open == nil || !found {
		return "", nil, usage("--to names no broker that is known:\n%s", brokerHelp)
	}
	return scheme, open, nil
}

// openBroker reads the address of --to. No broker has to answer yet.
func openBroker(ctx context.Context, address string, s brokerSettings) (*broker, error) {
	scheme, open, err := openerOf(address)
	if err != nil {
		return nil, err
	}
	u, err := readAddress(address)
	if err != nil {
		return nil, usage("--to: %w", err)
	}
	p, err := open(ctx, u, s)
	if err != nil {
		return nil, usage("--to: %w", err)
	}
	return &broker{publisher: p, name: scheme + "://" + u.Host}, nil
}

// readAddress reads scheme://user:password@host:1,host:2/path?query. Host of the result has all hosts.
// The form scheme://user:password@host:1,scheme://user:password@host:2/path?query means the same.
func readAddress(address string) (u *url.URL, err error) {
	scheme, rest, _ := strings.Cut(address, "://")
	servers := strings.Split(rest, ","+scheme+"://")
	last, rest := servers[len(servers)-1], ""
	if i := strings.IndexAny(last, "/?"); i >= 0 {
		last, rest = last[:i], last[i:]
	}
	servers[len(servers)-1] = last
	user := userOf(servers[0])
	for i, server := range servers {
		of := userOf(server)
		if of != "" && of != user {
			return nil, errors.New("the servers have different users")
		}
		servers[i] = strings.TrimSuffix(server[len(of):], "/")
	}
	hosts := strings.Split(strings.Join(servers, ","), ",")
	for i, host := range hosts {
		if strings.ContainsAny(host, "/?") || host == "" && len(hosts) > 1 {
			return nil, fmt.Errorf("several servers are %s://user:password@host,host2, and then the rest", scheme)
		}
		if u, err = url.Parse(scheme + "://" + user + host + rest); err != nil {
			if e, ok := errors.AsType[*url.Error](err); ok { // its text has the password
				err = e.Err
			}
			return nil, err
		}
		hosts[i] = u.Host
	}
	u.Host = strings.Join(hosts, ",")
	return u, nil
}

// userOf is user:password@ of hosts.
func userOf(hosts string) string { return hosts[:strings.LastIndexByte(hosts, '@')+1] }

// amqpParameters are the parameters that the client of RabbitMQ knows. It ignores others.
var amqpParameters = []string{
	"auth_mechanism", "cacertfile", "certfile", "channel_max", "connection_timeout", "heartbeat", "keyfile",
	"server_name_indication",
}

// settings takes the named parameters out of a query. It leaves those of passed there, and refuses
// others.
func settings(u *url.URL, passed []string, names ...string) (map[string]string, error) {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for name := range q {
		switch {
		case slices.Contains(names, name):
			values[name] = q.Get(name)
			q.Del(name)
		case !slices.Contains(passed, name):
			known := slices.Concat(names, passed)
			if len(known) == 0 {
				known = []string{"none"}
			}
			return nil, usage("parameter %q is not known: there are %s", short(name), strings.Join(known, ", "))
		}
	}
	u.RawQuery = q.Encode()
	return values, nil
}

// kafkaOptions say how clients of Kafka connect.
func kafkaOptions(u *url.URL) ([]kgo.Opt, error) {
	set, err := settings(u, nil, "tls", "client-id")
	if err != nil {
		return nil, err
	}
	var all []kgo.Opt
	if set["client-id"] != "" {
		all = append(all, kgo.ClientID(set["client-id"]))
	}
	encrypted := false
	if set["tls"] != "" {
		if encrypted, err = strconv.ParseBool(set["tls"]); err != nil { // else the password would go out in the clear
			return nil, usage("?tls=%s is neither true nor false", short(set["tls"]))
		}
	}
	if encrypted {
		all = append(all, kgo.DialTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12}))
	}
	if u.User != nil {
		password, _ := u.User.Password()
		all = append(all, kgo.SASL(saslplain.Auth{User: u.User.Username(), Pass: password}.AsMechanism()))
	}
	return all, nil
}

func openKafka(_ context.Context, u *url.URL, s brokerSettings) (publisher, error) {
	options, err := kafkaOptions(u)
	if err != nil {
		return nil, err
	}
	return franzbridge.NewPublisher(franzbridge.Config{
		Brokers: strings.Split(u.Host, ","), PublishTimeout: s.timeout,
		Options: append(options, kgo.WithLogger(&kafkaLog{clientLog{Logger: s.logger}})),
	})
}

// amqpSettings are those of this program in an address of RabbitMQ.
type amqpSettings struct {
	topology string // fanout, queue or topic
	exchange string // of topology topic
	quorum   bool   // the queues that are declared are quorum queues
}

// arguments are those with which queues are declared.
func (s amqpSettings) arguments() amqp091.Table {
	if s.quorum {
		return amqp091.Table{"x-queue-type": "quorum"}
	}
	return nil
}

// takeAMQP takes its settings out of an address.
func takeAMQP(u *url.URL) (s amqpSettings, err error) {
	set, err := settings(u, amqpParameters, "topology", "exchange", "queue")
	if err != nil {
		return s, err
	}
	s = amqpSettings{cmp.Or(set["topology"], "fanout"), set["exchange"], set["queue"] == "quorum"}
	switch queue := set["queue"]; {
	case s.topology == "topic" && s.exchange == "":
		return s, usage("topology=topic is with exchange=NAME")
	case !slices.Contains([]string{"fanout", "queue", "topic"}, s.topology):
		return s, usage("topology=%s: it is fanout, queue, or topic with exchange=NAME", short(s.topology))
	case !slices.Contains([]string{"", "classic", "quorum"}, queue):
		return s, usage("queue=%s: it is classic or quorum", short(queue))
	case queue != "" && s.topology != "queue":
		return s, usage("queue=%s is with topology=queue: no other topology declares queues", queue)
	}
	return s, nil
}

func openAMQP(_ context.Context, u *url.URL, s brokerSettings) (publisher, error) {
	set, err := takeAMQP(u)
	if err != nil {
		return nil, err
	}
	cfg := amqpbridge.Config{
		Channels: s.workers, ConnectTimeout: s.connect(), Bridge: watermillbridge.Config{Logger: s.logger},
	}
	switch set.topology {
	case "queue":
		cfg.AMQP, cfg.DeclareQueues = amqpbridge.QueueConfig(u.String()), true
		cfg.AMQP.Queue.Arguments = set.arguments()
	case "topic":
		cfg.AMQP = amqpbridge.TopicConfig(u.String(), set.exchange, "")
	default:
		cfg.AMQP = amqpbridge.PubSubConfig(u.String(), nil)
	}
	return amqpbridge.NewPublisher(cfg)
}

func openNATS(_ context.Context, u *url.URL, s brokerSettings) (publisher, error) {
	if _, err := settings(u, nil); err != nil {
		return nil, err
	}
	servers := 1 + strings.Count(u.Host, ",")
	return natsbridge.NewPublisher(natsbridge.Config{
		URL: u.String(), ConnectTimeout: s.connect() / time.Duration(servers),
		Options: []nats.Option{nats.Name("outbox relay")}, Bridge: watermillbridge.Config{Logger: s.logger},
	})
}

func openRedis(_ context.Context, u *url.URL, s brokerSettings) (publisher, error) {
	if strings.Contains(u.Host, ",") {
		return nil, usage("redis has one server: a Sentinel or a cluster needs a relay with redisbridge")
	}
	opt, err := redisbridge.Options(u.String())
	if err != nil {
		return nil, err
	}
	opt.PoolSize = max(opt.PoolSize, s.workers)
	opt.MaxRetries = -1                                     // whatever the URL says: the relay retries
	redis.SetLogger(&redisLog{clientLog{Logger: s.logger}}) // else it writes lines of its own to the standard error
	return redisbridge.NewPublisher(redisbridge.Config{
		Client: redis.NewClient(opt), Bridge: watermillbridge.Config{Logger: s.logger},
	})
}

// clientLog is the log of a client, which is mostly about connections that it opens again. While
// its server is away, the client logs the same line for each connection. clientLog keeps one a
// minute, because the relay logs the outage itself.
type clientLog struct {
	*slog.Logger

	mu   sync.Mutex
	text string
	at   time.Time
}

// say logs text, as a warning if it is news.
func (l *clientLog) say(ctx context.Context, client, text string, args ...any) {
	level := slog.LevelWarn
	l.mu.Lock()
	if text == l.text && time.Since(l.at) < time.Minute {
		level = slog.LevelDebug
	} else {
		l.text, l.at = text, time.Now()
	}
	l.mu.Unlock()
	l.Log(ctx, level, text, append([]any{"component", client}, args...)...)
}

// redisLog is for the client of Redis, whose log has no levels.
type redisLog struct{ clientLog }

func (l *redisLog) Printf(ctx context.Context, format string, args ...any) {
	l.say(ctx, "redis", singleLine(fmt.Sprintf(format, args...)))
}

// kafkaLog is for the client of Kafka. Its lines below a warning are for its developers.
type kafkaLog struct{ clientLog }

// Level implements kgo.Logger.
func (*kafkaLog) Level() kgo.LogLevel { return kgo.LogLevelWarn }

// Log implements kgo.Logger.
func (l *kafkaLog) Log(_ kgo.LogLevel, text string, args ...any) {
	l.say(context.Background(), "kafka", singleLine(text), args...)
}
