package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	saslplain "github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge"
)

const brokerHelp = `  kafka://host:9092,host2:9092       a topic is a topic. user:password@ is SASL/PLAIN, or
                                     ?sasl=scram-sha-256 or scram-sha-512; ?tls=true
  amqp://user:password@host:5672/    RabbitMQ: a topic is a fanout exchange; with ?topology=queue a
                                     durable queue that is declared (&queue=quorum); with
                                     ?topology=topic&exchange=NAME a routing key. TLS: amqps://
  nats://host:4222,host2:4222        JetStream: a topic is a subject of an existing stream. TLS: tls://;
                                     ?creds=FILE
  redis://user:password@host:6379/0  a topic is a stream. TLS: rediss://
Files for TLS: ?cacertfile=FILE is the authority, &certfile=FILE&keyfile=FILE is the client's.`

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

// brokerSettings are settings that the relay and its broker share.
type brokerSettings struct {
	workers int
	timeout time.Duration // of a publish
	logger  *slog.Logger
	// existing: a queue that a topic has not got is not declared.
	existing bool
}

// connect is the time limit of a connection. It ends before the publish's limit, so that its error
// is reported.
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
		return "", nil, usage("--to names no broker that is known: it begins with kafka://, amqp://, amqps://, " +
			"nats://, tls://, redis:// or rediss://")
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
			return nil, parseError(err)
		}
		hosts[i] = u.Host
	}
	u.Host = strings.Join(hosts, ",")
	return u, nil
}

var quotedPart = regexp.MustCompile(`"[^"]*"`)

// parseError is an error of reading an address, without what it quotes of the address: of
// u:pass/word@host it would call ":pass" an invalid port.
func parseError(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return errors.New(quotedPart.ReplaceAllString(err.Error(), `"..."`))
}

// userOf is user:password@ of hosts.
func userOf(hosts string) string { return hosts[:strings.LastIndexByte(hosts, '@')+1] }

// amqpParameters are the parameters that the client of RabbitMQ uses. It ignores others.
var amqpParameters = []string{
	"auth_mechanism", "cacertfile", "certfile", "channel_max", "connection_timeout", "heartbeat", "keyfile",
	"server_name_indication",
}

// settings takes the named parameters out of a query. It leaves the parameters in passed there, and
// refuses others.
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

// tlsParameters name files in PEM form. They are called as RabbitMQ's client calls them, which takes
// them out of the address itself.
var tlsParameters = []string{"cacertfile", "certfile", "keyfile"}

// tlsOf returns the configuration with the files of an address. encrypted: the rest of the address
// asks for TLS.
func tlsOf(set map[string]string, encrypted bool) (*tls.Config, error) {
	authority, certificate, key := set["cacertfile"], set["certfile"], set["keyfile"]
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if !encrypted && authority+certificate+key != "" {
		return nil, usage("%s are for an address with TLS", strings.Join(tlsParameters, ", "))
	}
	if authority != "" {
		text, err := os.ReadFile(authority)
		if err != nil {
			return nil, usage("cacertfile: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, usage("cacertfile: %s has no certificate", authority)
		}
	}
	if certificate+key != "" {
		load := func() (*tls.Certificate, error) {
			one, err := tls.LoadX509KeyPair(certificate, key)
			return &one, err
		}
		if _, err := load(); err != nil {
			return nil, usage("certfile and keyfile: %w", err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return load() // it may have been renewed
		}
	}
	return c, nil
}

// kafkaOptions returns the options of clients of Kafka.
func kafkaOptions(u *url.URL) ([]kgo.Opt, error) {
	set, err := settings(u, nil, append([]string{"tls", "client-id", "sasl"}, tlsParameters...)...)
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
	secured, err := tlsOf(set, encrypted)
	if err != nil {
		return nil, err
	}
	if encrypted {
		all = append(all, kgo.DialTLSConfig(secured))
	}
	password, _ := u.User.Password()
	var mechanism sasl.Mechanism
	switch auth := (scram.Auth{User: u.User.Username(), Pass: password}); set["sasl"] {
	case "", "plain":
		mechanism = saslplain.Auth{User: auth.User, Pass: auth.Pass}.AsMechanism()
	case "scram-sha-256":
		mechanism = auth.AsSha256Mechanism()
	case "scram-sha-512":
		mechanism = auth.AsSha512Mechanism()
	default:
		return nil, usage("sasl=%s: it is plain, scram-sha-256 or scram-sha-512", short(set["sasl"]))
	}
	switch {
	case u.User != nil:
		all = append(all, kgo.SASL(mechanism))
	case set["sasl"] != "":
		return nil, usage("sasl=%s is with user:password@", short(set["sasl"]))
	}
	return all, nil
}

func openKafka(_ context.Context, u *url.URL, s brokerSettings) (publisher, error) {
	cfg, err := kafkaConfig(u, s)
	if err != nil {
		return nil, err
	}
	return franzbridge.NewPublisher(cfg)
}

func kafkaConfig(u *url.URL, s brokerSettings) (franzbridge.Config, error) {
	options, err := kafkaOptions(u)
	return franzbridge.Config{
		Brokers: strings.Split(u.Host, ","), PublishTimeout: s.timeout,
		Options: append(options, kgo.WithLogger(&kafkaLog{clientLog{Logger: s.logger}})),
	}, err
}

// amqpSettings are this program's settings in an address of RabbitMQ.
type amqpSettings struct {
	topology string // fanout, queue or topic
	exchange string // of topology topic
	quorum   bool   // the queues that are declared are quorum queues
}

// arguments are the arguments of declared queues.
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
	cfg, err := amqpConfig(u, s)
	if err != nil {
		return nil, err
	}
	return amqpbridge.NewPublisher(cfg)
}

func amqpConfig(u *url.URL, s brokerSettings) (cfg amqpbridge.Config, err error) {
	set, err := takeAMQP(u)
	if err != nil {
		return cfg, err
	}
	cfg = amqpbridge.Config{
		Channels: s.workers, ConnectTimeout: s.connect(), Bridge: watermillbridge.Config{Logger: s.logger},
	}
	switch set.topology {
	case "queue":
		cfg.AMQP, cfg.DeclareQueues = amqpbridge.QueueConfig(u.String()), !s.existing
		cfg.AMQP.Queue.Arguments = set.arguments()
	case "topic":
		cfg.AMQP = amqpbridge.TopicConfig(u.String(), set.exchange, "")
	default:
		cfg.AMQP = amqpbridge.PubSubConfig(u.String(), nil)
	}
	return cfg, nil
}

func openNATS(_ context.Context, u *url.URL, s brokerSettings) (publisher, error) {
	cfg, err := natsConfig(u, s)
	if err != nil {
		return nil, err
	}
	return natsbridge.NewPublisher(cfg)
}

func natsConfig(u *url.URL, s brokerSettings) (cfg natsbridge.Config, err error) {
	set, err := settings(u, nil, append([]string{"creds"}, tlsParameters...)...)
	if err != nil {
		return cfg, err
	}
	secured, err := tlsOf(set, u.Scheme == "tls")
	if err != nil {
		return cfg, err
	}
	options := []nats.Option{nats.Name("outbox relay")}
	if u.Scheme == "tls" {
		options = append(options, nats.Secure(secured))
	}
	if set["creds"] != "" {
		options = append(options, nats.UserCredentials(set["creds"]))
	}
	servers := 1 + strings.Count(u.Host, ",")
	return natsbridge.Config{
		URL: u.String(), ConnectTimeout: s.connect() / time.Duration(servers),
		Options: options, Bridge: watermillbridge.Config{Logger: s.logger},
	}, nil
}

// redisOptions returns the options of clients of Redis. Redis' client refuses unknown parameters.
func redisOptions(u *url.URL) (*redis.Options, error) {
	query, set := u.Query(), map[string]string{}
	for _, name := range tlsParameters {
		set[name] = query.Get(name)
		query.Del(name)
	}
	u.RawQuery = query.Encode()
	secured, err := tlsOf(set, u.Scheme == "rediss")
	if err != nil {
		return nil, err
	}
	opt, err := redisbridge.Options(u.String())
	if err != nil {
		return nil, err
	}
	if c := opt.TLSConfig; c != nil {
		c.RootCAs, c.GetClientCertificate = secured.RootCAs, secured.GetClientCertificate
	}
	return opt, nil
}

func openRedis(_ context.Context, u *url.URL, s brokerSettings) (publisher, error) {
	if strings.Contains(u.Host, ",") {
		return nil, usage("redis has one server: a Sentinel or a cluster needs a relay with redisbridge")
	}
	opt, err := redisOptions(u)
	if err != nil {
		return nil, err
	}
	opt.PoolSize = max(opt.PoolSize, s.workers)
	opt.MaxRetries = -1                                     // overrides the URL: the relay retries
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

// say logs text, as a warning if it is new.
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
	l.say(ctx, "redis", ops.Printable(fmt.Sprintf(format, args...)))
}

// kafkaLog is for the client of Kafka. Its lines below a warning are for its developers.
type kafkaLog struct{ clientLog }

// Level implements kgo.Logger.
func (*kafkaLog) Level() kgo.LogLevel { return kgo.LogLevelWarn }

// Log implements kgo.Logger.
func (l *kafkaLog) Log(_ kgo.LogLevel, text string, args ...any) {
	l.say(context.Background(), "kafka", ops.Printable(text), args...)
}
