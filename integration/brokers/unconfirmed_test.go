package brokers_test

import (
	"errors"
	"strings"
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
	plain := func(c *amqp.Config) { c.Publish.ConfirmDelivery = false }
	transactional := func(c *amqp.Config) { c.Publish.Transactional = true }
	recovering := func(c *amqp.Config) { c.Connection.AmqpConfig = recovery }
	pooled := func(c *amqp.Config) { c.Publish.ChannelPoolSize = 2 }
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
		pub  message.Publisher
		says string // empty: it is taken
	}{
		"amqp confirms":                        {rabbit(func(*amqp.Config) {}), ""},
		"amqp without confirms":                {rabbit(plain), "ConfirmDelivery"},
		"amqp transactions":                    {rabbit(transactional), "Transactional"},
		"amqp recovery":                        {rabbit(recovering), "Recovery"},
		"amqp pool":                            {rabbit(pooled), "ChannelPoolSize"},
		"amqp shared connection":               {rabbitOn(nil), ""},
		"amqp recovery of a shared connection": {rabbitOn(recovery), "Recovery"},
		"amqp 2 confirms":                      {rabbitV2(true), ""},
		"amqp 2 without confirms":              {rabbitV2(false), "ConfirmDelivery"},
		"kafka all replicas":                   {inKafka(sarama.WaitForAll), ""},
		"kafka leader":                         {inKafka(sarama.WaitForLocal), "the leader alone"},
		"kafka nobody":                         {inKafka(sarama.NoResponse), "no confirmation"},
		"jetstream":                            {inNATS(false), ""},
		"nats":                                 {inNATS(true), "no stream"},
	} {
		t.Cleanup(func() { _ = tc.pub.Close() })
		_, err := watermillbridge.NewPublisher(tc.pub, watermillbridge.Config{})
		switch refused := errors.Is(err, watermillbridge.ErrUnconfirmed); {
		case refused != (tc.says != "") || refused != (err != nil):
			t.Errorf("%s: %v, want refused %v", name, err, tc.says != "")
		case refused && (!strings.Contains(err.Error(), tc.says) ||
			tc.says == "the leader alone" && strings.Contains(err.Error(), "no confirmation")):
			t.Errorf("%s: %v, want it to say %q", name, err, tc.says)
		}
		if _, err := watermillbridge.NewPublisher(tc.pub, watermillbridge.Config{AllowUnconfirmed: true}); err != nil {
			t.Errorf("%s, allowed: %v", name, err)
		}
	}
}
