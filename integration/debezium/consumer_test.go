package debezium_test

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
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
)

// consumer is a service with an inbox. The effect of an event is a row with its trace.
type consumer struct {
	*world
	pool                  *sql.DB
	in                    *coreinbox.Inbox
	processed, duplicates atomic.Int64
}

func newConsumer(w *world) *consumer {
	w.Helper()
	db := testdb.Postgres(w.T)
	c := &consumer{world: w, pool: db.Open(w.T)}
	fixture.MustExec(w.T, c.pool, "CREATE TABLE effects (event_id text, trace text)")
	store := fixture.NewInboxStore(w.T, c.pool, sqlinbox.Config{Dialect: db.Dialect})
	var err error
	c.in, err = coreinbox.New(coreinbox.Config{
		Consumer: "billing", Transactor: sqltx.NewTransactor(c.pool, db.Dialect), Store: store, MinAge: -1,
		Observer: &coreinbox.Observer{
			Processed: func(coreinbox.Info) { c.processed.Add(1) },
			Duplicate: func(coreinbox.Info) { c.duplicates.Add(1) },
		},
	})
	fixture.NoError(w.T, err)
	return c
}

// heard returns how many messages the inbox has processed or recognised as duplicates.
func (c *consumer) heard() int64 { return c.processed.Load() + c.duplicates.Load() }

// consume handles the messages of a topic until the test ends.
func (c *consumer) consume(topic string) {
	c.Helper()
	cfg := kafka.DefaultSaramaSubscriberConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: []string{topics.KafkaAddress(c)}, Unmarshaler: kafka.DefaultMarshaler{}, OverwriteSaramaConfig: cfg,
		ConsumerGroup: "g-" + core.NewEventID(),
	}, watermill.NopLogger{})
	fixture.NoError(c.T, err)
	r, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	fixture.NoError(c.T, err)
	r.AddMiddleware(inbox.Wrap(c.in, inbox.ReturnDead()))
	r.AddConsumerHandler("handler", topic, sub, c.handle)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.Background()) }()
	<-r.Running()
	c.Cleanup(func() {
		fixture.NoError(c.T, r.Close())
		fixture.NoError(c.T, <-ended)
	})
}

func (c *consumer) handle(msg *message.Message) error {
	d, err := watermillbridge.EventFromMessage(msg)
	if err != nil {
		return err
	}
	tx, err := sqltx.FromContext(msg.Context())
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(msg.Context(), "INSERT INTO effects VALUES ($1, $2)", d.ID, d.Headers["traceparent"])
	return err
}

// effects returns the trace of each event that had its effect once.
func (c *consumer) effects() map[string]string {
	c.Helper()
	found := map[string]string{}
	type effect struct{ id, trace string }
	for _, e := range fixture.Query(c.T, c.pool, "SELECT event_id, trace FROM effects",
		func(r *sql.Rows) (e effect, err error) { return e, r.Scan(&e.id, &e.trace) }) {
		if _, twice := found[e.id]; twice {
			c.Errorf("event %s had its effect twice", e.id)
		}
		found[e.id] = e.trace
	}
	return found
}
