package amqpbridge

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

// errUnsafeConfig: Config.AMQP has settings that lose messages or hide errors. The error names each
// setting with the reason and the remedy.
var errUnsafeConfig = errors.New("amqpbridge: unsafe AMQP configuration")

// Config configures a Publisher. Only AMQP is required.
type Config struct {
	// AMQP is the configuration of Watermill's AMQP Pub/Sub. Give the same to the subscribers, so
	// that both agree on exchanges, queues, routing keys and the format of messages. See
	// QueueConfig, PubSubConfig and TopicConfig. Publish.ConfirmDelivery and Publish.Mandatory are
	// always on. Connection.Reconnect is not used.
	AMQP amqp.Config
	// Channels is how many messages can wait for their confirm at once; relay.Config.Workers is a
	// good value. Default: AMQP.Publish.ChannelPoolSize, else 32.
	Channels int
	// ConnectTimeout bounds connecting, handshake included, unless AMQP.Connection.AmqpConfig has a
	// Dial function, as it has for several servers, where 4 s bound it. It must be shorter than
	// relay.Config.PublishTimeout, or its errors come too late to be reported. Default: 4 s.
	ConnectTimeout time.Duration
	// DeclareQueues declares and binds the queue of a topic as a subscriber with the same
	// configuration would. It does so before the topic's first message, so that messages can be
	// published before there is a subscriber. It does so again after the broker returned a message
	// because the queue was deleted. It needs AMQP.Queue.GenerateName, and the right to configure
	// queues.
	DeclareQueues bool
	// AllowUnroutable counts a message for which no queue is bound as published, although the
	// broker drops it. It is for topics that may have no subscriber. Default: the topic waits for
	// its first subscriber; see ErrUnroutable.
	AllowUnroutable bool

	// MaxMessageBytes is the broker's max_message_size. An event with a larger payload is refused
	// when it is recorded. Default: 16 MiB, the default of RabbitMQ 4.
	MaxMessageBytes int

	// Decorate wraps the Watermill publisher, for example for metrics or tracing:
	//
	//	Decorate: func(p message.Publisher) message.Publisher { return traced{p} }
	//
	// The decorator gets one message per call. It must pass the message on, or a copy with the
	// message's context, and return the error that it gets, wrapped or not. Then classes of errors
	// and limits stay the same. Default: none.
	Decorate func(message.Publisher) message.Publisher

	// Bridge configures the parts that every bridge to Watermill has. Its Classifier sees only
	// errors that this package does not classify. If its CheckSize is nil and Marshal is not set,
	// CheckSize checks MaxMessageBytes. If Marshal is set and MaxPayload is 0, MaxPayload becomes
	// MaxMessageBytes: set it lower if your Marshal adds to the payload, and higher if it
	// compresses it.
	Bridge watermillbridge.Config
}

// QueueConfig returns Watermill's configuration for durable queues: a topic is a queue, and its
// subscribers share the messages. For quorum queues, which survive the loss of a server, also set
// Queue.Arguments = amqp091.Table{"x-queue-type": "quorum"}.
//
// uri may have the servers of a cluster: amqp://user:password@rabbit-1:5672,rabbit-2:5672/.
// Publishers and subscribers then connect to the first that answers, by the Dial function of
// Connection.AmqpConfig. Keep that function when you change AmqpConfig. With amqps the certificate
// of each server must have the name of the first one, or TLSClientConfig.ServerName in AmqpConfig.
func QueueConfig(uri string) amqp.Config {
	return safe(amqp.NewDurableQueueConfig(uri))
}

// PubSubConfig returns Watermill's configuration for durable publish and subscribe: a topic is a
// fanout exchange, and each subscriber has a queue named by queueName. A publisher does not need
// queueName.
func PubSubConfig(uri string, queueName amqp.QueueNameGenerator) amqp.Config {
	return safe(amqp.NewDurablePubSubConfig(uri, queueName))
}

// TopicConfig returns Watermill's configuration for a durable topic exchange: a topic is a routing
// key. Watermill's own configuration declares an exchange that does not survive a restart of the
// broker. uri may have several servers, as for QueueConfig.
func TopicConfig(uri, exchange, queue string) amqp.Config {
	return safe(amqp.NewDurableTopicConfig(uri, exchange, queue))
}

func safe(c amqp.Config) amqp.Config {
	c.Connection = connectionTo(c.Connection.AmqpURI)
	c.Exchange.Durable = true
	c.Publish.ConfirmDelivery = true
	c.Publish.Mandatory = true
	c.Marshaler = Marshaler{}
	return c
}

// sampleTopic stands for any topic when a configuration is checked.
const sampleTopic = "sample"

func (c *Config) validate() error {
	if err := c.AMQP.ValidatePublisher(); err != nil {
		return fmt.Errorf("amqpbridge: Config.AMQP: %w", err)
	}
	if _, err := amqp091.ParseURI(c.AMQP.Connection.AmqpURI); err != nil {
		return fmt.Errorf("amqpbridge: Config.AMQP.Connection.AmqpURI: %w", link.ParseError(err))
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
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, 16<<20)
	if c.Channels < 0 || c.AMQP.Publish.ChannelPoolSize < 0 || c.ConnectTimeout < 0 {
		return errors.New("amqpbridge: Config.Channels, AMQP.Publish.ChannelPoolSize or ConnectTimeout is negative")
	}
	c.Channels = cmp.Or(c.Channels, c.AMQP.Publish.ChannelPoolSize)
	c.Channels = cmp.Or(c.Channels, 32)
	if c.Channels > 2047 {
		return fmt.Errorf("amqpbridge: Config.Channels is %d: RabbitMQ allows 2047 on a connection", c.Channels)
	}
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 4*time.Second)
	if err := errors.Join(c.unsafeSettings()...); err != nil {
		return fmt.Errorf("%w:\n%w", errUnsafeConfig, err)
	}
	return nil
}

// server is where the URI points to: the first of several servers.
func (c *Config) server() string {
	u, _ := amqp091.ParseURI(c.AMQP.Connection.AmqpURI) // validate has done it
	return net.JoinHostPort(u.Host, strconv.Itoa(u.Port))
}

// unsafeSettings returns every problem of c.AMQP.
func (c *Config) unsafeSettings() (problems link.Problems) {
	refuse := problems.Add
	a := &c.AMQP
	refuse(a.Publish.Transactional, "Publish.Transactional is true: confirms do the same, faster, and Watermill's "+
		"transactions hide errors; set false")
	refuse(a.Publish.Immediate, "Publish.Immediate is true: RabbitMQ closes the connection for it; set false")
	if a.Exchange.GenerateName(sampleTopic) != "" {
		refuse(!a.Exchange.Durable, "Exchange.Durable is false: a restart of the broker removes it with its "+
			"bindings; set true")
		refuse(a.Exchange.AutoDeleted, "Exchange.AutoDeleted is true: it goes with its last queue; set false")
		refuse(a.Exchange.Internal, "Exchange.Internal is true: clients cannot publish to it; set false")
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
			"amqpbridge.Marshaler{}")
	return problems
}
