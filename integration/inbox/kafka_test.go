package inbox_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// located is a middleware that says where Kafka has the message, as the documentation shows it.
func located(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		p, _ := kafka.MessagePartitionFromCtx(msg.Context())
		o, _ := kafka.MessagePartitionOffsetFromCtx(msg.Context())
		msg.Metadata.Set(core.HeaderSource, fmt.Sprintf("%s/%d/%d", message.SubscribeTopicFromCtx(msg.Context()), p, o))
		return h(msg)
	}
}

// A consumer group is rebalanced while a handler works, so its message goes to another process too.
// Every event was published twice. Each effect happens once, and the table has the topic, partition
// and offset of the message.
func TestInboxKafkaRebalance(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	topic := topics.Kafka(t, "", 2, nil)
	w := newInboxWorld(t, db, inboxSQL(db.Open(t), db.Dialect))

	const events = 20
	p := topics.KafkaPublisher(t, kafkabridge.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for range 2 {
		for n := range events {
			d := core.Delivery{Event: core.Event{
				ID: fmt.Sprintf("e%d", n), Type: "order.placed", Topic: topic,
				Key: fmt.Sprint(n), Payload: []byte("{}"),
			}}
			fixture.NoError(t, p.Publish(ctx, d))
		}
	}

	entered, goOn := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	slow := func(msg *message.Message) ([]*message.Message, error) {
		if err := w.apply(msg, "handled"); err != nil {
			return nil, err
		}
		if first.CompareAndSwap(false, true) { // the first message is handled until the group is rebalanced
			close(entered)
			<-goOn
		}
		return nil, nil
	}
	group := "g-" + core.NewEventID()
	w.kafkaRouter(topic, group, slow)
	select {
	case <-entered:
	case <-ctx.Done():
		t.Fatal("nothing was delivered")
	}
	joined := w.kafkaRouter(topic, group, w.handler)
	fixture.Await(t, "the second process gets messages", func() bool { return joined.Load() > 0 })
	close(goOn)
	fixture.Await(t, "every event has its effect", func() bool { return len(w.effects()) == events })
	fixture.Await(t, "every copy was delivered", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.heard["processed"]+w.heard["duplicate"] >= 2*events
	})
	want := map[string]int{}
	for n := range events {
		want[fmt.Sprintf("e%d handled", n)] = 1
	}
	w.wantEffects(want)
	var found int
	fixture.NoError(t, w.pool.QueryRowContext(t.Context(),
		"SELECT COUNT(*) FROM inbox_seen WHERE source LIKE '"+topic+
			"/0/%' OR source LIKE '"+topic+"/1/%'").Scan(&found))
	fixture.Check(t, found == events, "%d rows say where their message was", found)
}

// kafkaRouter consumes a topic in a group, and returns how many messages came.
func (w *inboxWorld) kafkaRouter(topic, group string, h message.HandlerFunc) *atomic.Int64 {
	w.t.Helper()
	cfg := kafka.DefaultSaramaSubscriberConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Group.Session.Timeout = 6 * time.Second
	cfg.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	cfg.Consumer.Group.Rebalance.Timeout = 2 * time.Second
	sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: []string{topics.KafkaAddress(w.t)}, Unmarshaler: kafka.DefaultMarshaler{}, OverwriteSaramaConfig: cfg,
		ConsumerGroup: group,
	}, watermill.NopLogger{})
	fixture.NoError(w.t, err)
	r, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	fixture.NoError(w.t, err)
	var came atomic.Int64
	// The count is outside of the inbox, because in the inbox a copy waits for the one that is
	// handled.
	count := func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			came.Add(1)
			return h(msg)
		}
	}
	r.AddMiddleware(count, located, w.in.Middleware)
	r.AddConsumerHandler("handler", topic, sub, func(msg *message.Message) error {
		_, err := h(msg)
		return err
	})
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.Background()) }()
	w.t.Cleanup(func() {
		fixture.NoError(w.t, r.Close())
		<-ended
		_ = sub.Close()
	})
	return &came
}
