package migrating_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
)

// former is the solution that a service used before the outbox.
type former interface {
	// prepare makes its tables.
	prepare()
	// write stores a message in the transaction of the business.
	write(ctx context.Context, tx *sql.Tx, topic string, msg *message.Message) error
	// publish starts the process that moves messages to Kafka.
	publish() (stop func())
	// waiting counts the messages that are not in Kafka, as the guide does.
	waiting() int64
}

// kafkaOf is the publisher of the former solution, with watermill-kafka's own configuration. It
// gives a message the key that is in its metadata.
func kafkaOf(t *testing.T) message.Publisher {
	t.Helper()
	p, err := kafka.NewPublisher(kafka.PublisherConfig{
		Brokers: []string{topics.KafkaAddress(t)},
		Marshaler: kafka.NewWithPartitioningMarshaler(func(_ string, msg *message.Message) (string, error) {
			return msg.Metadata[core.HeaderPartitionKey], nil
		}),
	}, watermill.NopLogger{})
	fixture.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// forwarding is watermill-sql with the Forwarder.
type forwarding struct {
	t    *testing.T
	pool *sql.DB
}

const (
	forwarderTopic = "to_forward"
	forwarderGroup = "forwarder"
)

func (f *forwarding) subscriber() *wsql.Subscriber {
	f.t.Helper()
	s, err := wsql.NewSubscriber(wsql.BeginnerFromStdSQL(f.pool), wsql.SubscriberConfig{
		ConsumerGroup: forwarderGroup, PollInterval: 10 * time.Millisecond,
		SchemaAdapter: wsql.DefaultPostgreSQLSchema{}, OffsetsAdapter: wsql.DefaultPostgreSQLOffsetsAdapter{},
	}, watermill.NopLogger{})
	fixture.NoError(f.t, err)
	return s
}

func (f *forwarding) prepare() {
	f.t.Helper()
	s := f.subscriber()
	fixture.NoError(f.t, s.SubscribeInitialize(forwarderTopic))
	fixture.NoError(f.t, s.Close())
}

func (f *forwarding) write(_ context.Context, tx *sql.Tx, topic string, msg *message.Message) error {
	table, err := wsql.NewPublisher(wsql.TxFromStdSQL(tx), wsql.PublisherConfig{
		SchemaAdapter: wsql.DefaultPostgreSQLSchema{},
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	return forwarder.NewPublisher(table, forwarder.PublisherConfig{ForwarderTopic: forwarderTopic}).Publish(topic, msg)
}

func (f *forwarding) publish() (stop func()) {
	f.t.Helper()
	s := f.subscriber()
	daemon, err := forwarder.NewForwarder(s, kafkaOf(f.t), watermill.NopLogger{},
		forwarder.Config{ForwarderTopic: forwarderTopic})
	fixture.NoError(f.t, err)
	ended := make(chan error, 1)
	go func() { ended <- daemon.Run(context.Background()) }()
	<-daemon.Running()
	return func() {
		f.t.Helper()
		fixture.NoError(f.t, errors.Join(daemon.Close(), <-ended, s.Close()))
	}
}

func (f *forwarding) waiting() int64 {
	f.t.Helper()
	return fixture.Count(f.t, f.pool, guide(f.t, `SELECT count(*) FROM watermill_to_forward`))
}

// polling is a hand-written table, with a loop that locks rows while it publishes.
type polling struct {
	t    *testing.T
	pool *sql.DB
}

func (p *polling) prepare() {
	p.t.Helper()
	fixture.MustExec(p.t, p.pool, `CREATE TABLE my_outbox (id bigserial PRIMARY KEY, uuid text NOT NULL UNIQUE,
		topic text NOT NULL, metadata jsonb NOT NULL, payload bytea NOT NULL, published_at timestamptz)`)
}

func (p *polling) write(ctx context.Context, tx *sql.Tx, topic string, msg *message.Message) error {
	metadata, err := json.Marshal(msg.Metadata)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO my_outbox (uuid, topic, metadata, payload) VALUES ($1, $2, $3, $4)",
		msg.UUID, topic, string(metadata), []byte(msg.Payload))
	return err
}

func (p *polling) publish() (stop func()) {
	p.t.Helper()
	to := kafkaOf(p.t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := p.publishSome(to); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	return func() {
		p.t.Helper()
		cancel()
		fixture.NoError(p.t, <-ended)
	}
}

func (p *polling) publishSome(to message.Publisher) (err error) {
	ctx := context.Background()
	tx, err := p.pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	rows, err := tx.QueryContext(ctx, `SELECT id, uuid, topic, metadata, payload FROM my_outbox
		WHERE published_at IS NULL ORDER BY id LIMIT 20 FOR UPDATE SKIP LOCKED`)
	if err != nil {
		return err
	}
	defer rows.Close()
	type row struct {
		id              int64
		uuid, topic     string
		metadata, bytes []byte
	}
	var all []row
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.id, &r.uuid, &r.topic, &r.metadata, &r.bytes); err != nil {
			return err
		}
		all = append(all, r)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, r := range all {
		msg := message.NewMessage(r.uuid, r.bytes)
		if err := json.Unmarshal(r.metadata, &msg.Metadata); err != nil {
			return err
		}
		if err := to.Publish(r.topic, msg); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE my_outbox SET published_at = now() WHERE id = $1", r.id); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		time.Sleep(5 * time.Millisecond) // the pause of the hand-written loop
	}
	return tx.Commit()
}

func (p *polling) waiting() int64 {
	p.t.Helper()
	return fixture.Count(p.t, p.pool, guide(p.t, `SELECT count(*) FROM my_outbox WHERE published_at IS NULL`))
}
