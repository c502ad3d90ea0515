// Command ent is an idempotent consumer on Ent and Kafka: a payment is delivered three times and
// credited once.
//
//	docker run --rm -p 9092:9092 apache/kafka:4.3.1
//	go run ./examples/consumer/ent
//
// KAFKA_BROKERS names other servers than localhost:9092.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/examples/consumer/internal/payments"
	"github.com/ormoutbox/ormoutbox/examples/ent/ent"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// credit handles a payment. Its writes commit together with the id of the event.
func credit(msg *message.Message) error {
	tx, err := entoutbox.FromContext[*ent.Tx](msg.Context())
	if err != nil {
		return err
	}
	// with an entity: tx.Account.UpdateOneID("ada").AddCents(100)
	_, err = tx.ExecContext(msg.Context(), "UPDATE accounts SET cents = cents + 100 WHERE id = 'ada'")
	return err
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "ent:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	bank, err := payments.OpenBank()
	if err != nil {
		return err
	}
	client, err := newClient(bank)
	if err != nil {
		return err
	}

	brokers := strings.Split(cmp.Or(os.Getenv("KAFKA_BROKERS"), "localhost:9092"), ",")
	topic, deleteTopic, err := createTopic(brokers)
	if err != nil {
		return fmt.Errorf("%w: start Kafka (docker run --rm -p 9092:9092 apache/kafka:4.3.1), "+
			"or set KAFKA_BROKERS", err)
	}
	defer func() { err = errors.Join(err, deleteTopic()) }()
	if err := send(ctx, brokers, topic); err != nil {
		return err
	}

	// The group is new, too. That of a service is a name that stays, such as "bank.credit".
	subscriber, err := kafkabridge.NewSubscriber(kafkabridge.SubscriberConfig{Brokers: brokers, Group: topic})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NewSlogLogger(core.DefaultLogger()))
	if err != nil {
		return err
	}
	router.AddMiddleware(inbox.Middleware(entoutbox.Transactor(client.Tx), "bank", inbox.CreateTables()))
	router.AddConsumerHandler("credit", topic, subscriber, credit)
	return payments.Run(ctx, router, bank) // a service: router.Run(ctx)
}

// newClient returns a client whose driver lets the inbox follow its transactions. The client is
// that of examples/ent.
func newClient(db *sql.DB) (*ent.Client, error) {
	repository, err := sqloutbox.New(db, sqloutbox.Config{Dialect: core.SQLite})
	if err != nil {
		return nil, err
	}
	outbox, err := core.New(core.Config{Repository: repository})
	if err != nil {
		return nil, err
	}
	adapter, err := entoutbox.New(entsql.OpenDB(dialect.SQLite, db), entoutbox.Config{Outbox: outbox})
	if err != nil {
		return nil, err
	}
	return ent.NewClient(ent.Driver(adapter.Driver())), nil
}

// send is the other service.
func send(ctx context.Context, brokers []string, topic string) (err error) {
	publisher, err := kafkabridge.NewPublisher(kafkabridge.Config{Brokers: brokers})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, publisher.Close(ctx)) }()
	return payments.Send(ctx, publisher, topic)
}

// createTopic makes a topic for this demonstration. remove deletes it with its consumer group.
func createTopic(brokers []string) (topic string, remove func() error, err error) {
	admin, err := sarama.NewClusterAdmin(brokers, kafkabridge.SubscriberSaramaConfig())
	if err != nil {
		return "", nil, err
	}
	topic = payments.NewTopic()
	if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false); err != nil {
		return "", nil, errors.Join(err, admin.Close())
	}
	return topic, func() error {
		return errors.Join(admin.DeleteConsumerGroup(topic), admin.DeleteTopic(topic), admin.Close())
	}, nil
}
