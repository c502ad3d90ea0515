package brokers_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
)

// A consumer stops while its handler works on the second message. As docs/nats.md says, the next
// consumer gets that message, and not the first one. Without the option ManualAck, nats.go
// acknowledges the message, and nobody handles it. If the consumer was not made on the server
// before, the next consumer gets all messages.
func TestNATSConsumerStops(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		made   bool // the consumer is made on the server before the test subscribes
		option nats.SubOpt
		next   []int // the messages that the next consumer gets
	}{
		"as the guide says":  {true, nats.ManualAck(), []int{1}},
		"without ManualAck":  {true, nats.AckExplicit(), nil},
		"without a consumer": {false, nats.ManualAck(), []int{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := topics.NATS(t, nil)
			p := topics.NATSPublisher(t, natsbridge.Config{URL: topics.NATSURL(t)})
			ids := []string{}
			for range 2 {
				d := brokerDelivery(t, topic, "order/o-2")
				fixture.NoError(t, p.Publish(t.Context(), d))
				ids = append(ids, d.ID)
			}
			conn, err := nats.Connect(topics.NATSURL(t))
			fixture.NoError(t, err)
			defer conn.Close()
			js, err := conn.JetStream()
			fixture.NoError(t, err)
			if tc.made {
				for range 2 { // each process may do it
					_, err = js.AddConsumer(topic, &nats.ConsumerConfig{
						Durable: "billing", DeliverGroup: "billing", DeliverSubject: "deliver." + topic,
						FilterSubject: topic, AckPolicy: nats.AckExplicitPolicy, AckWait: 10 * time.Second,
						MaxAckPending: 1,
					})
					fixture.NoError(t, err)
				}
			}
			subscribe := func() (*wmnats.Subscriber, <-chan *message.Message) {
				s, err := wmnats.NewSubscriber(wmnats.SubscriberConfig{
					URL: topics.NATSURL(t), Unmarshaler: &wmnats.NATSMarshaler{}, QueueGroupPrefix: "billing",
					JetStream: wmnats.JetStreamConfig{
						DurablePrefix: "billing", SubscribeOptions: []nats.SubOpt{tc.option},
					},
				}, watermill.NopLogger{})
				fixture.NoError(t, err)
				messages, err := s.Subscribe(t.Context(), topic)
				fixture.NoError(t, err)
				return s, messages
			}
			first, messages := subscribe()
			receive(t, messages) // and acknowledges it
			select {
			case <-messages: // its handler works
			case <-time.After(time.Minute):
				t.Fatal("no second message")
			}
			fixture.NoError(t, first.Close())

			second, messages := subscribe()
			for _, n := range tc.next {
				if msg := receive(t, messages); msg.UUID != ids[n] {
					t.Errorf("got %s, want %s of %v", msg.UUID, ids[n], ids)
				}
			}
			if tc.next == nil {
				fixture.Await(t, "the server has nothing to deliver", func() bool {
					info, err := js.ConsumerInfo(topic, "billing")
					fixture.NoError(t, err)
					return info.NumPending == 0 && info.NumAckPending == 0
				})
				select {
				case msg := <-messages:
					t.Errorf("got %s", msg.UUID)
				default:
				}
			}
			fixture.NoError(t, second.Close())
		})
	}
}
