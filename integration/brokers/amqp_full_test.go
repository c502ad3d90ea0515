package brokers_test

import (
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

// A refused publish is tried again. Here the broker refuses it: a full queue of RabbitMQ takes no
// messages.
func TestAMQPRefusedPublishIsTriedAgain(t *testing.T) {
	t.Parallel()
	topic := fixture.UniqueTopic("narrow")
	queue := topics.RabbitChannel(t)
	_, err := queue.QueueDeclare(topic, true, false, false, false,
		amqp091.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	fixture.NoError(t, err)
	t.Cleanup(func() { queue.QueueDelete(topic, false, false, false) })
	take := func() string {
		var id string
		fixture.Await(t, "a message is in the queue", func() bool {
			d, ok, err := queue.Get(topic, true)
			fixture.NoError(t, err)
			id, _ = d.Headers[core.HeaderEventID].(string)
			return ok
		})
		return id
	}

	p := fixture.NewProcess(t, testdb.Postgres(t), core.Config{
		Publisher: topics.RabbitPublisher(t, amqpbridge.Config{AMQP: amqpbridge.QueueConfig(topics.RabbitURI(t))}),
		Retry: core.RetryPolicy{
			BaseDelay: 10 * time.Millisecond, MaxDelay: 50 * time.Millisecond,
			MaxAttempts: 10_000,
		},
	})
	first := p.Publish(core.Event{Type: "a", Topic: topic, Key: "k"})[0]
	p.Run()
	p.AwaitDone(1)
	second := p.Publish(core.Event{Type: "a", Topic: topic, Key: "k"})[0]
	// The destination refuses this event and takes no other one. From the fifth refusal on
	// (core.BreakerPolicy.Failures) this may be an outage, so a refusal spends no attempt.
	const spent = 4
	fixture.Await(t, "attempts grow", func() bool {
		row := p.Row(second)
		fixture.Must(t, row.Status == fixture.StatusNew || row.Status == fixture.StatusRetry,
			"refused by the broker: %+v", row)
		return row.Attempts >= spent
	})
	if got := take(); got != first {
		t.Fatalf("the queue held %s, want %s", got, first)
	}
	p.AwaitDone(2)
	if got := take(); got != second {
		t.Fatalf("the queue held %s, want %s", got, second)
	}
	if row := p.Row(second); row.Attempts != spent {
		t.Errorf("row %+v", row)
	}
}
