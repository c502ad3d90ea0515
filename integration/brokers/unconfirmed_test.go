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

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// The plain bridge refuses the forms of Watermill's publishers that wait for no confirmation of the
// broker, and takes the others.
func TestUnconfirmedPublishersAreRefused(t *testing.T) {
	t.Parallel()
	rabbit := func(confirms, transactions bool) message.Publisher {
		c := amqp.NewDurableQueueConfig(topics.RabbitURI(t))
		c.Publish.ConfirmDelivery, c.Publish.Transactional = confirms, transactions
		return must[*amqp.Publisher](t)(amqp.NewPublisher(c, watermill.NopLogger{}))
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
		"amqp confirms":           {rabbit(true, false), ""},
		"amqp without confirms":   {rabbit(false, false), "no confirmation"},
		"amqp transactions":       {rabbit(false, true), "Publish.ConfirmDelivery"},
		"amqp 2 confirms":         {rabbitV2(true), ""},
		"amqp 2 without confirms": {rabbitV2(false), "no confirmation"},
		"kafka all replicas":      {inKafka(sarama.WaitForAll), ""},
		"kafka leader":            {inKafka(sarama.WaitForLocal), "the leader alone"},
		"kafka nobody":            {inKafka(sarama.NoResponse), "no confirmation"},
		"jetstream":               {inNATS(false), ""},
		"nats":                    {inNATS(true), "no stream"},
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
