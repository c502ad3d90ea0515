package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

const (
	rabbitTimeout = 10 * time.Second
	rabbitAnswer  = 8 << 20 // bytes of an answer of the management API
	rabbitDepth   = 8       // exchanges that are bound behind each other
)

// rabbitTarget is where the events of a topic go. The relay declares it with the first event of the
// topic: durable, and without auto-delete.
type rabbitTarget struct {
	topic    string
	exchange string // empty: to the queue
	key      string // the routing key
	kind     string // of the exchange, or of the queue
	args     amqp091.Table
}

// rabbitMQ asks RabbitMQ whether exchanges and queues keep what they have accepted. The management
// API shows it. A client can only find out whether they exist.
func (x *examination) rabbitMQ(ctx context.Context) error {
	u, err := readAddress(x.to)
	if err != nil {
		return usage("--to: %w", err)
	}
	set, err := takeAMQP(u)
	if err != nil {
		return usage("--to: %w", err)
	}
	topics, err := x.recentTopics(ctx)
	if err != nil {
		return err
	}
	var targets []rabbitTarget
	for _, topic := range topics {
		switch set.topology {
		case "fanout":
			targets = append(targets, rabbitTarget{topic: topic, exchange: topic, kind: "fanout"})
		case "topic":
			targets = append(targets, rabbitTarget{topic: topic, exchange: set.exchange, key: topic, kind: "topic"})
		default:
			t := rabbitTarget{topic: topic, key: topic, kind: "classic", args: set.arguments()}
			if set.quorum {
				t.kind = "quorum"
			}
			targets = append(targets, t)
		}
	}
	connection := amqpbridge.QueueConfig(u.String()).Connection // to any of several servers
	where, err := amqp091.ParseURI(connection.AmqpURI)
	if err != nil {
		return usage("--to: %w", parseError(err))
	}
	if x.rabbitAPI == "" {
		return x.askRabbit(connection.AmqpURI, connection.AmqpConfig, targets)
	}
	base, err := url.Parse(x.rabbitAPI)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return usage("--rabbitmq-api: it is no address as http://user:password@host:15672")
	}
	api := rabbitAPI{&x.report, base, where.Vhost, &http.Client{Timeout: rabbitTimeout}}
	return api.examine(ctx, targets)
}

// askRabbit asks a client's questions: whether exchanges and queues exist, and if they do, whether
// they are as the relay declares them. It makes none.
func (x *examination) askRabbit(address string, settings *amqp091.Config, targets []rabbitTarget) error {
	if settings == nil { // one server
		settings = &amqp091.Config{Dial: amqp091.DefaultDial(rabbitTimeout), Heartbeat: rabbitTimeout}
	}
	conn, err := amqp091.DialConfig(address, *settings)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for _, t := range targets {
		ch, err := conn.Channel() // a refusal closes it
		if err != nil {
			return err
		}
		err = t.declare(ch)
		_ = ch.Close()
		refusal, _ := errors.AsType[*amqp091.Error](err)
		switch {
		case err == nil:
		case refusal == nil:
			return err
		case refusal.Code == amqp091.NotFound:
			t.missing(&x.report)
		case slices.Contains([]int{
			amqp091.PreconditionFailed, amqp091.AccessRefused, amqp091.ResourceLocked,
		}, refusal.Code):
			t.refused(&x.report, refusal.Reason)
		default:
			return err
		}
	}
	exchanges := slices.ContainsFunc(targets, func(t rabbitTarget) bool { return t.exchange != "" })
	switch {
	case len(x.all) > 0:
	case exchanges:
		x.warn(fmt.Sprintf("RabbitMQ has the exchanges of %s; no client can see whether queues are bound to them",
			many(len(targets), "topic")),
			"an event that no queue takes is refused, and waits",
			"give doctor the management API: --rabbitmq-api http://user:password@host:15672")
	default:
		x.fine(fmt.Sprintf("RabbitMQ has the queues of %s; whether it keeps their "+
			"events, its management API tells: --rabbitmq-api", many(len(targets), "topic")))
	}
	return nil
}

// declare declares an exchange or a queue as the relay does, if one of that name exists. RabbitMQ
// compares the two, and changes nothing. It does not compare a passive declaration, which only
// finds out whether one exists.
func (t rabbitTarget) declare(ch *amqp091.Channel) (err error) {
	if t.exchange != "" {
		if err = ch.ExchangeDeclarePassive(t.exchange, t.kind, true, false, false, false, nil); err == nil {
			err = ch.ExchangeDeclare(t.exchange, t.kind, true, false, false, false, nil)
		}
		return err
	}
	if _, err = ch.QueueDeclarePassive(t.key, true, false, false, false, nil); err == nil {
		_, err = ch.QueueDeclare(t.key, true, false, false, false, t.args)
	}
	return err
}

// name names the exchange or the queue.
func (t rabbitTarget) name() string {
	if t.exchange == "" {
		return fmt.Sprintf("queue %q", short(t.key))
	}
	return fmt.Sprintf("exchange %q", short(t.exchange))
}

// refused reports that RabbitMQ does not let the relay declare its target, with the reason.
func (t rabbitTarget) refused(r *report, why string) {
	declares := "a durable " + t.kind + " queue without other arguments"
	fix := "give the relay the topology of this queue; set TTLs, limits and dead-letter exchanges by a policy, which " +
		"is not compared, and not by arguments; or let the relay publish to an exchange to which the queue is bound " +
		"(topology=topic&exchange=NAME)"
	switch {
	case t.exchange != "":
		declares = "a durable exchange of type " + t.kind
		fix = "give the relay the topology of this exchange (topology=fanout or topic in --to), or another exchange"
	case strings.Contains(why, "x-queue-type") && t.kind == "classic" && strings.Contains(why, "'quorum'"):
		fix = "the queue is a quorum queue: write queue=quorum into --to of the relay (topology=queue&queue=quorum)"
	case strings.Contains(why, "x-queue-type") && t.kind == "quorum" && !strings.Contains(why, "'stream'"):
		fix = "the queue is a classic queue: leave queue=quorum out of --to of the relay, or have consumers empty " +
			"the queue, delete it while the topic is paused, and declare it as a quorum queue"
	case strings.HasPrefix(why, "ACCESS_REFUSED"):
		fix = "give the user of the relay the right to configure this queue, or let the relay publish to an exchange " +
			"(topology=topic&exchange=NAME)"
	}
	r.fail(fmt.Sprintf("RabbitMQ does not let the relay declare %s of the topic %s: %s", t.name(), short(t.topic),
		within(200, why)),
		"the relay declares it with the first event, as "+declares+"; until RabbitMQ accepts that, the "+
			"events of the topic wait",
		fix)
}

func (t rabbitTarget) missing(r *report) {
	r.warn(fmt.Sprintf("RabbitMQ has no %s for the topic %s", t.name(), short(t.topic)),
		"its events wait until there is one, unless the publisher declares it with its first event",
		"start the consumer, which declares it, or declare it durable")
}
