// Command gorm is an idempotent consumer on GORM and RabbitMQ: a payment is delivered three times
// and credited once.
//
//	docker run --rm -p 5672:5672 rabbitmq:4
//	go run ./examples/consumer/gorm
//
// AMQP_URL names another server than amqp://guest:guest@localhost:5672/.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/examples/consumer/internal/payments"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

// Account is a row.
type Account struct {
	ID    string
	Cents int
}

// credit handles a payment. Its writes commit together with the id of the event.
func credit(msg *message.Message) error {
	tx, err := gormoutbox.FromContext(msg.Context())
	if err != nil {
		return err
	}
	return tx.Model(&Account{ID: "ada"}).Update("cents", gorm.Expr("cents + 100")).Error
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "gorm:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	bank, err := payments.OpenBank()
	if err != nil {
		return err
	}
	db, err := gorm.Open(sqlite.Dialector{DriverName: "sqlite", Conn: bank}, &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return err
	}

	// A topic is a durable queue.
	url, topic := cmp.Or(os.Getenv("AMQP_URL"), "amqp://guest:guest@localhost:5672/"), payments.NewTopic()
	config, logger := amqpbridge.QueueConfig(url), watermill.NewSlogLogger(core.DefaultLogger())
	subscriber, err := amqp.NewSubscriber(config, logger)
	if err != nil {
		return fmt.Errorf("%w: start RabbitMQ (docker run --rm -p 5672:5672 rabbitmq:4), or set AMQP_URL", err)
	}
	defer func() { err = errors.Join(err, deleteQueue(url, topic)) }()
	if err := send(ctx, config, topic); err != nil {
		return err
	}

	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	router.AddMiddleware(inbox.Middleware(gormoutbox.Transactor(db), "bank", inbox.CreateTables()))
	router.AddConsumerHandler("credit", topic, subscriber, credit)
	return payments.Run(ctx, router, bank) // a service: router.Run(ctx)
}

// send is the other service.
func send(ctx context.Context, config amqp.Config, topic string) (err error) {
	publisher, err := amqpbridge.NewPublisher(amqpbridge.Config{AMQP: config, DeclareQueues: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, publisher.Close(ctx)) }()
	return payments.Send(ctx, publisher, topic)
}

// deleteQueue leaves nothing of this demonstration behind.
func deleteQueue(url, name string) error {
	conn, err := amqp091.Dial(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	_, err = channel.QueueDelete(name, false, false, false)
	return err
}
