package amqpbridge

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// ErrUnsafeConfig: Config.AMQP has settings that lose messages or hide errors. The error names each
// with the reason and the remedy.
var ErrUnsafeConfig = errors.New("amqpbridge: unsafe AMQP configuration")

// Config configures a Publisher. Only AMQP is required.
type Config struct {
	// AMQP is the configuration of Watermill's AMQP Pub/Sub, the same that its subscribers use, so
	// that both agree on exchanges, queues, routing keys and the format of messages. See
	// QueueConfig, PubSubConfig and TopicConfig. Publish.ConfirmDelivery and Publish.Mandatory are
	// always on. Connection.Reconnect is not used.
	AMQP amqp.Config
	// Channels is how many messages can wait for their confirm at once; core.Config.Workers is a
	// good value. Default: AMQP.Publish.ChannelPoolSize, else 32.
	Channels int
	// ConnectTimeout bounds connecting, handshake included, unless AMQP.Connection.AmqpConfig
	// brings a Dial function. Not longer than core.Config.PublishTimeout. Default: 5 s.
	ConnectTimeout time.Duration
	// DeclareQueues declares (and binds) the queue of a topic as a subscriber with the same
	// configuration would, before the topic's first message, so that messages can be published
	// before there is a subscriber, and again after a message came back because somebody had
	// deleted the queue. Needs AMQP.Queue.GenerateName, and the right to configure queues.
	DeclareQueues bool
	// AllowUnroutable takes a message that no queue wants for published, though the broker drops
	// it: for topics that may have no subscriber. Default: the topic waits for its first
	// subscriber; see ErrUnroutable.
	AllowUnroutable bool

	// MaxMessageBytes is the broker's max_message_size: an event whose payload is larger is refused
	// when it is recorded. Default: 16 MiB, that of RabbitMQ 4.
	MaxMessageBytes int

	// Decorate wraps the Watermill publisher, for metrics, tracing and the like:
	//
	//	Decorate: func(p message.Publisher) message.Publisher { return traced{p} }
	//
	// The decorator gets one message per call. Classes of errors and limits stay as they are if it
	// returns the errors that it gets, wrapped or not, and passes the message on, or a copy with
	// its context. Default: none.
	Decorate func(message.Publisher) message.Publisher

	// Bridge configures what every bridge to Watermill has. Its Classifier sees only errors that
	// this package does not know. Its CheckSize, when it is nil, becomes one that knows
	// MaxMessageBytes, unless Marshal is set: then MaxPayload, when it is 0, becomes
	// MaxMessageBytes. Set it lower when your Marshal adds to the payload and higher when it
	// compresses it.
	Bridge watermillbridge.Config
}

// QueueConfig returns Watermill's configuration for durable queues: a topic is a queue, its
// messages are shared by its subscribers. For quorum queues, which outlive the loss of a server,
// also set Queue.Arguments = amqp091.Table{"x-queue-type": "quorum"}.
func QueueConfig(uri string) amqp.Config {
	return safe(amqp.NewDurableQueueConfig(uri))
}

// PubSubConfig returns Watermill's configuration for durable publish and subscribe: a topic is a
// fanout exchange, each subscriber has a queue named by queueName, which a publisher does not need.
func PubSubConfig(uri string, queueName amqp.QueueNameGenerator) amqp.Config {
	return safe(amqp.NewDurablePubSubConfig(uri, queueName))
}

// TopicConfig returns Watermill's configuration for a durable topic exchange: a topic is a routing
// key. (The one of Watermill declares an exchange that does not outlive a restart of the broker.)
func TopicConfig(uri, exchange, queue string) amqp.Config {
	return safe(amqp.NewDurableTopicConfig(uri, exchange, queue))
}

func safe(c amqp.Config) amqp.Config {
	c.Exchange.Durable = true
	c.Publish.ConfirmDelivery = true
	c.Publish.Mandatory = true
	return c
}

// sampleTopic stands for any topic where a configuration is looked at.
const sampleTopic = "sample"

func (c *Config) validate() error {
	if err := c.AMQP.ValidatePublisher(); err != nil {
		return fmt.Errorf("amqpbridge: Config.AMQP: %w", err)
	}
	if _, err := amqp091.ParseURI(c.AMQP.Connection.AmqpURI); err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok { // has the URI in it, and that the password
			err = u.Err
		}
		return fmt.Errorf("amqpbridge: Config.AMQP.Connection.AmqpURI: %w", err)
	}
	if c.AMQP.TopologyBuilder == nil {
		return errors.New("amqpbridge: Config.AMQP.TopologyBuilder is missing: use &amqp.DefaultTopologyBuilder{}")
	}
	if c.DeclareQueues && c.AMQP.Queue.GenerateName == nil {
		return errors.New("amqpbridge: Config.DeclareQueues needs Config.AMQP.Queue.GenerateName")
	}
	if c.MaxMessageBytes < 0 {
		return errors.New("amqpbridge: Config.MaxMessageBytes is negative")
	}
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = 16 << 20
	}
	if c.Channels < 0 || c.AMQP.Publish.ChannelPoolSize < 0 || c.ConnectTimeout < 0 {
		return errors.New("amqpbridge: Config.Channels, AMQP.Publish.ChannelPoolSize or ConnectTimeout is negative")
	}
	if c.Channels == 0 {
		c.Channels = c.AMQP.Publish.ChannelPoolSize
	}
	if c.Channels == 0 {
		c.Channels = 32
	}
	if c.Channels > 2047 {
		return fmt.Errorf("amqpbridge: Config.Channels is %d: RabbitMQ allows 2047 on a connection", c.Channels)
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = 5 * time.Second
	}
	if err := errors.Join(c.unsafeSettings()...); err != nil {
		return fmt.Errorf("%w:\n%w", ErrUnsafeConfig, err)
	}
	return nil
}

// unsafeSettings returns what is wrong with c.AMQP, all of it.
func (c *Config) unsafeSettings() (problems []error) {
	refuse := func(bad bool, text string) {
		if bad {
			problems = append(problems, errors.New(text))
		}
	}
	a := &c.AMQP
	refuse(a.Publish.Transactional, "Publish.Transactional is true: confirms do the same, faster, and Watermill's "+
		"transactions hide errors; set false")
	refuse(a.Publish.Immediate, "Publish.Immediate is true: RabbitMQ closes the connection for it; set false")
	if a.Exchange.GenerateName(sampleTopic) != "" {
		refuse(!a.Exchange.Durable, "Exchange.Durable is false: a restart of the broker removes it with its "+
			"bindings; set true")
		refuse(a.Exchange.AutoDeleted, "Exchange.AutoDeleted is true: it goes with its last queue; set false")
		refuse(a.Exchange.Internal, "Exchange.Internal is true: nobody can publish to it; set false")
		refuse(a.Exchange.NoWait, "Exchange.NoWait is true: its errors come too late; set false")
	}
	if a.Queue.GenerateName != nil {
		refuse(!a.Queue.Durable, "Queue.Durable is false: a restart of the broker removes it with its messages; "+
			"set true")
		refuse(a.Queue.AutoDelete, "Queue.AutoDelete is true: messages go with the last subscriber; set false")
		refuse(a.Queue.Exclusive, "Queue.Exclusive is true: messages go with the subscriber's connection; set false")
		refuse(c.DeclareQueues && (a.Queue.NoWait || a.QueueBind.NoWait), "Queue.NoWait or QueueBind.NoWait is "+
			"true: errors come too late; set false")
	}
	if a.Connection.AmqpConfig != nil {
		refuse(a.Connection.AmqpConfig.Recovery != nil, "Connection.AmqpConfig.Recovery is set: this package "+
			"connects again itself, and knows then what was not confirmed; leave it nil")
	}
	refuse(a.Connection.AmqpConfig != nil && a.Connection.AmqpConfig.TLSClientConfig != nil &&
		a.Connection.TLSConfig != nil,
		"Connection.TLSConfig and Connection.AmqpConfig.TLSClientConfig are both set: set one")

	sample, err := a.Marshaler.Marshal(message.NewMessage("sample", []byte{}))
	refuse(err == nil && sample.DeliveryMode != amqp091.Persistent,
		"Marshaler does not mark messages as persistent: a restart of the broker loses them; use "+
			"amqp.DefaultMarshaler{}")
	return problems
}
