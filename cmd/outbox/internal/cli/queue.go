package cli

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge"
)

// queueAddress is the address of --from: a broker's, and the name of a queue behind its last slash.
type queueAddress struct {
	scheme string
	broker string // the rest of the address, for openBroker
	queue  string
	name   string // broker and queue, without a password
}

// readQueueAddress reads scheme://user:password@host:1,host:2/path/queue?query.
func readQueueAddress(address string) (q queueAddress, err error) {
	if q.scheme, _, err = openerOf(address); err != nil {
		return q, usage("--from names no broker that is known: it begins with kafka://, amqp://, amqps://, nats://, " +
			"tls://, redis:// or rediss://, and its path ends with the name of the queue")
	}
	u, err := readAddress(address)
	if err != nil {
		return q, usage("--from: %w", err)
	}
	path := u.EscapedPath()
	last := strings.LastIndexByte(path, '/')
	if q.queue, err = url.PathUnescape(path[last+1:]); err != nil || q.queue == "" {
		return q, usage("--from has no queue: its path ends with the name of the queue, as " +
			"amqp://host/billing_poison, kafka://host:9092/billing_poison, nats://host/billing.poison, " +
			"redis://host/0/billing_poison")
	}
	u.RawPath = path[:max(last, 0)]
	if u.Path, err = url.PathUnescape(u.RawPath); err != nil {
		return q, usage("--from: %w", parseError(err))
	}
	q.broker, q.name = u.String(), q.scheme+"://"+u.Host+u.Path+"/"+q.queue
	return q, nil
}

// releaseTimeout is the time limit of sending a message.
const releaseTimeout = 10 * time.Second

// openQueue is a queue that was opened.
type openQueue struct {
	inbox.Queue
	close func()
}

// open opens the queue. With Kafka the group remembers the released messages.
func (q queueAddress) open(ctx context.Context, group string, s brokerSettings) (open openQueue, err error) {
	u, err := readAddress(q.broker)
	if err != nil {
		return open, usage("--from: %w", err)
	}
	switch q.scheme {
	case "kafka":
		cfg, err := kafkaConfig(u, s)
		if err != nil {
			return open, usage("--from: %w", err)
		}
		p, err := franzbridge.OpenPoisonQueue(ctx, cfg, q.queue, group)
		return openQueue{p, func() { _ = p.Close() }}, err
	case "amqp", "amqps":
		cfg, err := amqpConfig(u, s)
		if err != nil {
			return open, usage("--from: %w", err)
		}
		p, err := amqpbridge.OpenPoisonQueue(ctx, cfg, q.queue)
		return openQueue{p, func() { _ = p.Close() }}, err
	case "nats", "tls":
		cfg, err := natsConfig(u, s)
		if err != nil {
			return open, usage("--from: %w", err)
		}
		p, err := natsbridge.OpenPoisonQueue(ctx, cfg, q.queue)
		return openQueue{p, func() { _ = p.Close() }}, err
	default:
		opt, err := redisOptions(u)
		if err != nil {
			return open, usage("--from: %w", err)
		}
		client := redis.NewClient(opt)
		p, err := redisbridge.OpenPoisonQueue(ctx, client, q.queue)
		if err != nil {
			_ = client.Close()
		}
		return openQueue{p, func() { _ = client.Close() }}, err
	}
}
