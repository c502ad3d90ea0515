package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// releaseBroker is a broker with a topic and a poison queue.
type releaseBroker struct {
	publisher     *watermillbridge.Publisher
	topic, poison string
	subscribe     func(group string) message.Subscriber
	located       bool // the inbox knows the place in the topic at which a message was read
}

var releaseBrokers = map[string]func(t *testing.T) releaseBroker{
	"kafka": func(t *testing.T) releaseBroker {
		prefix := core.NewEventID()
		return releaseBroker{
			publisher: topics.KafkaPublisher(t, kafkabridge.Config{}),
			topic:     topics.Kafka(t, "", 3, nil), poison: topics.Kafka(t, "", 3, nil), located: true,
			subscribe: func(group string) message.Subscriber {
				s, err := kafkabridge.NewSubscriber(kafkabridge.SubscriberConfig{
					Brokers: []string{topics.KafkaAddress(t)}, Group: prefix + group,
				})
				fixture.NoError(t, err)
				return s
			},
		}
	},
	"rabbitmq": func(t *testing.T) releaseBroker {
		cfg := amqpbridge.QueueConfig(topics.RabbitURI(t))
		return releaseBroker{
			publisher: topics.RabbitPublisher(t, amqpbridge.Config{AMQP: cfg, DeclareQueues: true}),
			topic:     topics.Rabbit(t), poison: topics.Rabbit(t),
			subscribe: func(string) message.Subscriber {
				s, err := amqp.NewSubscriber(cfg, watermill.NopLogger{})
				fixture.NoError(t, err)
				return s
			},
		}
	},
}

// Events are parked, released to a consumer that is still broken, and released after its repair.
// Each event is handled once, and each key in its order.
func TestInboxRelease(t *testing.T) {
	t.Parallel()
	for name, open := range releaseBrokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.Postgres(t)
			testInboxRelease(t, db, open(t))
		})
	}
}

func testInboxRelease(t *testing.T, db testdb.DB, b releaseBroker) {
	pool := fixture.TrackedPool(t, db)
	fixture.MustExec(t, pool, "CREATE TABLE effects (event_id text PRIMARY KEY)")
	parked := b.publisher.MessagePublisher(0)
	var broken atomic.Bool
	broken.Store(true)
	var mu sync.Mutex
	var handled []string
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	fixture.NoError(t, err)
	store, err := sqlinbox.On(sqltx.NewTransactor(pool, ""), sqlinbox.Config{AutoCreate: true})
	fixture.NoError(t, err)
	in, err := coreinbox.New(coreinbox.Config{
		Consumer: "billing", Store: store, Logger: slog.New(slog.DiscardHandler),
	})
	fixture.NoError(t, err)
	router.AddMiddleware(inbox.Wrap(in, inbox.Poison(parked, b.poison)))
	router.AddConsumerHandler("invoice", b.topic, b.subscribe("invoice"), func(msg *message.Message) error {
		id := msg.Metadata[core.HeaderEventID]
		if broken.Load() {
			return core.Permanent(errors.New("no price"))
		}
		mu.Lock()
		handled = append(handled, id)
		mu.Unlock()
		tx, err := sqltx.FromContext(msg.Context())
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(msg.Context(), "INSERT INTO effects VALUES ($1)", id)
		return err
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	<-router.Running()
	defer func() {
		stop()
		fixture.NoError(t, <-ended)
	}()

	const keys, each = 3, 10
	for n := range each {
		for key := range keys {
			fixture.NoError(t, b.publisher.Publish(t.Context(), core.Delivery{Event: core.Event{
				ID: fmt.Sprintf("%d-%02d", key, n), Type: "order.placed", Topic: b.topic, Key: fmt.Sprint(key),
				Payload: []byte("{}"),
			}}))
		}
	}
	dead := func() []coreinbox.DeadEvent {
		list, err := in.ListDead(t.Context(), coreinbox.DeadQuery{})
		fixture.NoError(t, err)
		return list
	}
	fixture.Await(t, "every event is parked", func() bool { return len(dead()) == keys*each })
	for _, d := range dead() {
		if d.Topic != b.topic || d.Located != b.located {
			t.Errorf("a dead event of %+v, located: %t", d.Event, d.Located)
		}
	}

	release := func() (coreinbox.Released, error) {
		from := b.subscribe("release")
		defer func() { fixture.NoError(t, from.Close()) }()
		return inbox.Release(t.Context(), in, inbox.ReleaseRequest{
			From: from, Topic: b.poison, To: parked, Actor: "ada", Reason: "prices are there", Idle: 5 * time.Second,
		})
	}
	// On a slow machine the queue may seem to be empty before its next message comes.
	var done coreinbox.Released
	fixture.Await(t, "a release of something", func() bool {
		done, err = release()
		return err != nil || done.Sent > 0
	})
	if !errors.Is(err, coreinbox.ErrParkedAgain) || done.Sent != 1 || !strings.Contains(err.Error(), "no price") {
		t.Errorf("a broken consumer: %+v, %v", done, err)
	}
	broken.Store(false)
	done = coreinbox.Released{}
	fixture.Await(t, "a release of everything", func() bool {
		got, err := release()
		fixture.NoError(t, err)
		done.Sent, done.Processed, done.Kept = done.Sent+got.Sent, done.Processed+got.Processed, done.Kept+got.Kept
		return done.Processed >= keys*each
	})
	fixture.Check(t, done.Sent == keys*each && done.Processed == keys*each && done.Kept == 0, "released %+v", done)
	if n := fixture.Count(t, pool, "SELECT count(*) FROM effects"); n != keys*each || len(dead()) != 0 {
		t.Errorf("%d effects, %d dead events", n, len(dead()))
	}
	// The event that was released to the broken consumer was parked again, behind the others of
	// its key.
	mu.Lock()
	defer mu.Unlock()
	for key := range keys {
		var got []string
		for _, id := range handled {
			if strings.HasPrefix(id, fmt.Sprint(key)) {
				got = append(got, id)
			}
		}
		if n := len(got); n == each && got[n-1] == fmt.Sprintf("%d-00", key) {
			got = append(got[n-1:], got[:n-1]...)
		}
		fixture.Check(t, len(got) == each && slices.IsSorted(got), "key %d: %v", key, got)
	}
}
