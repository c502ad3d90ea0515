package brokers_test

import (
	"maps"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

// smallQueue makes a queue that refuses messages when it has most of them.
func smallQueue(t *testing.T, ch *amqp091.Channel, name string, most int, quorum bool) {
	t.Helper()
	arguments := amqp091.Table{"x-max-length": most, "x-overflow": "reject-publish"}
	maps.Copy(arguments, queueType(quorum))
	_, err := ch.QueueDeclare(name, true, false, false, false, arguments)
	fixture.NoError(t, err)
	t.Cleanup(func() { ch.QueueDelete(name, false, false, false) })
}

// A full queue takes events at the pace of its consumer. It is no event's fault that the queue is
// full: no refusal spends an attempt, and every event leaves.
func TestAMQPFullQueueWithAConsumer(t *testing.T) {
	t.Parallel()
	for name, quorum := range map[string]bool{"classic": false, "quorum": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const events, most = 80, 3 // a quorum queue takes what was sent before it is known to be full
			topic, queue := fixture.UniqueTopic("narrow"), topics.RabbitChannel(t)
			smallQueue(t, queue, topic, most, quorum)
			o := newOutage(t, core.Config{
				Publisher: topics.RabbitPublisher(t, amqpbridge.Config{
					AMQP: amqpbridge.QueueConfig(topics.RabbitURI(t)),
				}),
				Relay: relay.Config{Retry: eager, Breaker: soon},
			})
			o.publish(keyed(topic, events)...)
			o.awaitFailures(8)
			taken := map[string]bool{}
			fixture.Await(t, "the consumer has every event", func() bool {
				if d, ok, err := queue.Get(topic, true); err != nil {
					t.Fatal(err)
				} else if ok {
					taken[d.Headers[core.HeaderEventID].(string)] = true
				}
				return len(taken) == events
			})
			o.wantStatus(outboxtest.StatusDone, "every event leaves")
			for _, row := range o.repo.Rows() {
				fixture.Check(t, row.Attempts == 0, "event %s has spent %d attempts", row.Event.ID, row.Attempts)
			}
		})
	}
}

// A full queue behind an exchange lets the other queues get a copy with each attempt. So attempts
// become rare.
func TestAMQPFullQueueBehindAnExchange(t *testing.T) {
	t.Parallel()
	topic, ch := topics.Rabbit(t), topics.RabbitChannel(t)
	full, healthy := fixture.UniqueTopic("full"), fixture.UniqueTopic("healthy")
	smallQueue(t, ch, full, 1, false)
	smallQueue(t, ch, healthy, 1000, false)
	fixture.NoError(t, ch.ExchangeDeclare(topic, "fanout", true, false, false, false, nil))
	for _, name := range []string{full, healthy} {
		fixture.NoError(t, ch.QueueBind(name, "", topic, false, nil))
	}
	o := newOutage(t, core.Config{
		Publisher: topics.RabbitPublisher(t, amqpbridge.Config{
			AMQP: amqpbridge.PubSubConfig(topics.RabbitURI(t), amqp.GenerateQueueNameTopicName),
		}),
		Relay: relay.Config{Retry: eager, Breaker: soon},
	})
	o.publish(core.Event{Type: "a", Topic: topic})
	o.wantStatus(outboxtest.StatusDone, "the first event fills the queue")
	began := time.Now()
	o.publish(core.Event{Type: "a", Topic: topic})
	const tries = 4 // after 1, 2 and 4 s
	o.awaitFailures(tries)
	q, err := ch.QueueDeclarePassive(healthy, true, false, false, false, nil)
	fixture.NoError(t, err)
	if copies, took := q.Messages-1, time.Since(began); copies > tries || took < 6*time.Second {
		t.Errorf("the healthy queue has %d copies of an event after %s and %d tries", copies, took, tries)
	}
	_, err = ch.QueuePurge(full, false)
	fixture.NoError(t, err)
	o.wantStatus(outboxtest.StatusDone, "the event leaves once there is room")
}
