package amqpbridge

import (
	"cmp"
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

// NewPublisher returns a Publisher for RabbitMQ. It checks cfg and does not connect. The first
// publish connects, and so does a publish after the connection broke. So a process can start while
// the broker is down.
func NewPublisher(cfg Config) (*watermillbridge.Publisher, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.Bridge.Logger = cmp.Or(cfg.Bridge.Logger, core.DefaultLogger())
	p := &publisher{cfg: cfg, logger: watermill.NewSlogLogger(cfg.Bridge.Logger)}
	p.link = link.Link[*connection]{
		Bridge: "amqpbridge", Address: cfg.server(), Logger: cfg.Bridge.Logger,
		Dial:   func() (*connection, error) { return connect(&p.cfg) },
		Broken: func(c *connection) bool { return c.conn.IsClosed() },
		HangUp: func(c *connection) error { return c.close(p.cfg.ConnectTimeout) },
	}
	var err error
	cfg.Bridge.CloudEvents, err = cfg.Bridge.CloudEvents.For(cloudevents.AMQP, cloudevents.AMQPUnderscore)
	if err != nil {
		return nil, fmt.Errorf("amqpbridge: Config.Bridge.CloudEvents: %w", err)
	}
	link.Bound(&cfg.Bridge, cfg.MaxMessageBytes, checkSize(cfg.MaxMessageBytes, cfg.Bridge.CloudEvents))
	return link.NewPublisher("amqpbridge", p, cfg.Bridge, cfg.Decorate, nil, nil)
}

// checkSize returns the watermillbridge.Config.CheckSize for a broker that takes bodies of at most
// limit bytes. mapper may be nil.
func checkSize(limit int, mapper *cloudevents.Mapper) func(core.Event) error {
	return func(e core.Event) error {
		size := len(e.Payload)
		if mapper != nil && mapper.Mode == cloudevents.ModeStructured && size > limit/2 {
			if m, err := mapper.Message(core.Delivery{Event: e}); err == nil { // err is left to the bridge
				size = len(m.Body)
			}
		}
		if size <= limit {
			return nil
		}
		return fmt.Errorf("amqpbridge: the payload has %d bytes, more than Config.MaxMessageBytes %d: store it "+
			"elsewhere and send a reference, "+
			"or raise Config.MaxMessageBytes together with max_message_size of the broker", size, limit)
	}
}

// publisher is a message.Publisher that returns nil when the broker has confirmed the message and
// has not returned it. Watermill's own publisher ignores returned messages.
type publisher struct {
	cfg      Config
	logger   watermill.LoggerAdapter
	refusals refusals
	link     link.Link[*connection]
}

// Publish implements message.Publisher.
func (p *publisher) Publish(topic string, msgs ...*message.Message) error {
	return link.Each(topic, msgs, p.publish)
}

func (p *publisher) publish(topic string, msg *message.Message) error {
	publishing, err := p.marshal(msg)
	if err != nil {
		return core.Permanent(fmt.Errorf("amqpbridge: marshal: %w", err))
	}
	exchange, key := p.cfg.AMQP.Exchange.GenerateName(topic), p.cfg.AMQP.Publish.GenerateRoutingKey(topic)
	if len(exchange) > 255 || len(key) > 255 {
		return core.Permanent(fmt.Errorf("amqpbridge: exchange or routing key of topic %q has more than 255 bytes",
			topic))
	}
	if err := p.refusals.err(topic); err != nil {
		return err
	}
	c, err := p.link.Connected(msg.Context())
	if err != nil {
		return err
	}
	row := msg.Metadata[core.HeaderRowID]
	if row != "" {
		row = topic + " " + row
	}
	return c.unlessBlocked(row, func() error {
		return p.send(msg.Context(), c, topic, exchange, key, publishing)
	})
}

// send sends a message and waits for the broker's answer. It returns also when the channel closes;
// the bridge bounds the wait.
func (p *publisher) send(ctx context.Context, c *connection, topic, exchange, key string,
	publishing amqp091.Publishing,
) error {
	ch, err := c.acquire(ctx)
	if err != nil {
		return err
	}
	defer c.release(ch)
	if err := p.declare(c, ch, topic, exchange); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil { // the context has ended, and nothing is sent yet
		return fmt.Errorf("amqpbridge: not sent: %w", err)
	}
	confirm, err := ch.PublishWithDeferredConfirm(exchange, key, !p.cfg.AllowUnroutable, false, publishing)
	if err != nil {
		_ = ch.Close()
		return marked("publish", err)
	}
	<-confirm.Done()
	return p.outcome(c, ch, topic, confirm.Acked())
}

// outcome reads the broker's answer to the message.
func (p *publisher) outcome(c *connection, ch *channel, topic string, acked bool) error {
	if acked {
		p.refusals.ack(topic)
		select {
		case r, ok := <-ch.returns:
			if ok && p.cfg.DeclareQueues { // the queue or its binding was deleted
				c.declared.Delete(topic)
				return core.Unavailable(fmt.Errorf("the queue is declared again with the next message: %w",
					unroutable(r)))
			}
			if ok { // otherwise the channel closed after the confirm
				return unroutable(r)
			}
		default:
		}
		return nil
	}
	if !ch.IsClosed() {
		return p.refusals.nack(topic)
	}
	var err error = amqp091.ErrClosed
	select {
	case e, ok := <-ch.closes:
		if ok && e != nil {
			err = e
			if e.Code == amqp091.NotFound { // the exchange was deleted
				c.declared.Delete(topic)
			}
		}
	default:
	}
	return marked("publish", err)
}

func (p *publisher) marshal(msg *message.Message) (amqp091.Publishing, error) {
	publishing, err := p.cfg.AMQP.Marshaler.Marshal(msg)
	if err != nil {
		return publishing, err
	}
	if err := publishing.Headers.Validate(); err != nil {
		return publishing, err
	}
	publishing.DeliveryMode = amqp091.Persistent
	publishing.MessageId = cmp.Or(publishing.MessageId, msg.Metadata[core.HeaderRowID], msg.UUID)
	publishing.ContentType = cmp.Or(publishing.ContentType, msg.Metadata[core.HeaderContentType])
	return publishing, nil
}

// declare declares the topic's exchange, and its queue if configured, once per connection.
func (p *publisher) declare(c *connection, ch *channel, topic, exchange string) error {
	if _, declared := c.declared.Load(topic); declared {
		return nil
	}
	var err error
	switch {
	case p.cfg.DeclareQueues:
		params := amqp.BuildTopologyParams{
			Topic: topic, QueueName: p.cfg.AMQP.Queue.GenerateName(topic),
			ExchangeName: exchange,
		}
		if p.cfg.AMQP.QueueBind.GenerateRoutingKey != nil {
			params.RoutingKey = p.cfg.AMQP.QueueBind.GenerateRoutingKey(topic)
		}
		err = p.cfg.AMQP.TopologyBuilder.BuildTopology(ch.Channel, params, p.cfg.AMQP, p.logger)
	case exchange != "":
		err = p.cfg.AMQP.TopologyBuilder.ExchangeDeclare(ch.Channel, exchange, p.cfg.AMQP)
	}
	if err != nil {
		return marked(fmt.Sprintf("declare the topology of topic %q", topic), err)
	}
	c.declared.Store(topic, true)
	return nil
}

// WaitsFor returns the reason why a publish has no answer yet.
func (p *publisher) WaitsFor() error { return p.link.WaitsFor() }

// Close implements message.Publisher.
func (p *publisher) Close() error { return p.link.Close() }
