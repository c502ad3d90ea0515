package brokers_test

import (
	"errors"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	amqpv2 "github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// The plain bridge refuses the forms of Watermill's publishers that do not wait for the broker's
// confirmation, or wait without end after a connection was lost. It takes the others.
func TestUnconfirmedPublishersAreRefused(t *testing.T) {
	t.Parallel()
	recovery := &amqp091.Config{Locale: "en_US", Recovery: &amqp091.Recovery{}}
	rabbit := func(change func(*amqp.Config)) message.Publisher {
		c := amqp.NewDurableQueueConfig(topics.RabbitURI(t))
		c.Publish.ConfirmDelivery = true
		change(&c)
		return must[*amqp.Publisher](t)(amqp.NewPublisher(c, watermill.NopLogger{}))
	}
	rabbitOn := func(settings *amqp091.Config) message.Publisher {
		c := amqp.NewDurableQueueConfig(topics.RabbitURI(t))
		c.Connection.AmqpConfig = settings
		conn := must[*amqp.ConnectionWrapper](t)(amqp.NewConnection(c.Connection, watermill.NopLogger{}))
		t.Cleanup(func() { _ = conn.Close() })
		c.Publish.ConfirmDelivery, c.Connection = true, amqp.ConnectionConfig{}
		return must[*amqp.Publisher](t)(amqp.NewPublisherWithConnection(c, watermill.NopLogger{}, conn))
	}
	rabbitV2 := func(confirms bool) message.Publisher {
		c := amqpv2.NewDurableQueueConfig(topics.RabbitURI(t))
		c.Publish.ConfirmDelivery = confirms
		return must[*amqpv2.Publisher](t)(amqpv2.NewPublisher(c, watermill.NopLogger{}))
	}
	inKafka := func(acks sarama.RequiredAcks) message.Publisher {
		s := kafka.DefaultSaramaSyncPublisherConfig()
		s.Producer.RequiredAcks = acks
		return must[*kafka.Publisher](t)(kafka.NewPublisher(kafka.PublisherConfig{
			Brokers: []string{topics.KafkaAddress(t)}, Marshaler: kafka.DefaultMarshaler{}, OverwriteSaramaConfig: s,
		}, watermill.NopLogger{}))
	}
	inNATS := func(disabled bool) message.Publisher {
		conn, err := nats.Connect(topics.NATSURL(t))
		fixture.NoError(t, err)
		return must[*wmnats.Publisher](t)(wmnats.NewPublisherWithNatsConn(conn, wmnats.PublisherPublishConfig{
			Marshaler: &wmnats.NATSMarshaler{}, SubjectCalculator: wmnats.DefaultSubjectCalculator,
			JetStream: wmnats.JetStreamConfig{Disabled: disabled},
		}, watermill.NopLogger{}))
	}
	for name, tc := range map[string]struct {
		pub     message.Publisher
		refused bool
	}{
		"amqp confirms":                        {rabbit(func(*amqp.Config) {}), false},
		"amqp without confirms":                {rabbit(func(c *amqp.Config) { c.Publish.ConfirmDelivery = false }), true},
		"amqp transactions":                    {rabbit(func(c *amqp.Config) { c.Publish.Transactional = true }), true},
		"amqp recovery":                        {rabbit(func(c *amqp.Config) { c.Connection.AmqpConfig = recovery }), true},
		"amqp pool":                            {rabbit(func(c *amqp.Config) { c.Publish.ChannelPoolSize = 2 }), true},
		"amqp shared connection":               {rabbitOn(nil), false},
		"amqp recovery of a shared connection": {rabbitOn(recovery), true},
		"amqp 2 confirms":                      {rabbitV2(true), false},
		"amqp 2 without confirms":              {rabbitV2(false), true},
		"kafka all replicas":                   {inKafka(sarama.WaitForAll), false},
		"kafka leader":                         {inKafka(sarama.WaitForLocal), true},
		"kafka nobody":                         {inKafka(sarama.NoResponse), true},
		"jetstream":                            {inNATS(false), false},
		"nats":                                 {inNATS(true), true},
	} {
		t.Cleanup(func() { _ = tc.pub.Close() })
		_, err := watermillbridge.NewPublisher(tc.pub, watermillbridge.Config{})
		if errors.Is(err, watermillbridge.ErrUnconfirmed) != tc.refused || (err != nil) != tc.refused {
			t.Errorf("%s: %v, want refused %v", name, err, tc.refused)
		}
		if _, err := watermillbridge.NewPublisher(tc.pub, watermillbridge.Config{AllowUnconfirmed: true}); err != nil {
			t.Errorf("%s, allowed: %v", name, err)
		}
	}
}
