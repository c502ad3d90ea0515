// Command mailer is a consumer that sends a mail, with RabbitMQ as the broker and SQLite as the
// database.
//
//	go run ./examples/mailer serve                      # consumes "customers" and sends mails
//	go run ./examples/mailer register ada@example.com   # stores a customer and publishes the event
//
// A broker may deliver an event again. The inbox processes it once: its id and the decision to send
// the mail commit together. The mail itself is an effect, which is tried until the mail server
// takes it, with the same Message-ID each time.
//
// AMQP_URL, SMTP_ADDR, DATABASE and TOPIC name the servers, the file and the queue. Defaults:
// amqp://guest:guest@localhost:5672/, localhost:25, mailer.db, customers.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/smtp"
	"os"
	"os/signal"
	"syscall"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

var topic = cmp.Or(os.Getenv("TOPIC"), "customers")

// Customer is a row.
type Customer struct {
	ID    uint
	Email string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "serve":
		err = serve(ctx)
	case len(os.Args) == 3 && os.Args[1] == "register":
		err = register(ctx, os.Args[2])
	default:
		err = errors.New("usage: mailer serve | mailer register EMAIL")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mailer:", err)
		os.Exit(1)
	}
}

// register is the other service: it stores the customer and publishes the event with the commit.
func register(ctx context.Context, email string) (err error) {
	db, err := open()
	if err != nil {
		return err
	}
	publisher, err := amqpbridge.NewPublisher(amqpbridge.Config{AMQP: rabbit()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, publisher.Close(context.WithoutCancel(ctx))) }()
	outbox := gormoutbox.Plugin(gormoutbox.Config{Publisher: publisher, AutoCreate: true})
	if err := errors.Join(db.Use(outbox), db.AutoMigrate(&Customer{})); err != nil {
		return err
	}
	err = db.Transaction(func(tx *gorm.DB) error {
		customer := Customer{Email: email}
		if err := tx.Create(&customer).Error; err != nil {
			return err
		}
		return gormoutbox.Publish(tx.Statement.Context, tx, core.Event{
			Type: "customer.registered", Topic: topic, AggregateType: "customer", AggregateID: fmt.Sprint(customer.ID),
			Data: customer,
		})
	})
	if err != nil {
		return err
	}
	if err := outbox.Drain(ctx); err != nil { // a service has Run instead
		return err
	}
	fmt.Println("registered", email)
	return nil
}

// serve consumes registrations and sends a mail for each.
func serve(ctx context.Context) (err error) {
	db, err := open()
	if err != nil {
		return err
	}
	pool, err := db.DB()
	if err != nil {
		return err
	}
	store, err := sqlcommand.New(pool, sqlcommand.Config{})
	if err != nil {
		return err
	}
	if err := store.Migrate(ctx); err != nil { // the table of effects
		return err
	}

	// The worker executes effects. The relay of this process gives them to the worker after their
	// transaction has committed.
	worker, err := command.NewWorker(command.WorkerConfig{
		Store: store, Handlers: map[string]command.Handler{"mail": sendMail},
	})
	if err != nil {
		return err
	}
	effects := core.NewRouter()
	worker.AddTo(effects)
	outbox := gormoutbox.Plugin(gormoutbox.Config{Publisher: effects, AutoCreate: true})
	if err := db.Use(outbox); err != nil {
		return err
	}
	mails, err := command.NewQueue(command.QueueConfig{Store: store, Outbox: outbox.Outbox()})
	if err != nil {
		return err
	}

	subscriber, err := amqp.NewSubscriber(rabbit(), watermill.NopLogger{})
	if err != nil {
		return err
	}
	poison, err := amqpbridge.NewPublisher(amqpbridge.Config{AMQP: rabbit(), DeclareQueues: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, poison.Close(context.WithoutCancel(ctx))) }()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddMiddleware(inbox.Middleware(gormoutbox.Transactor(db), "mailer",
		inbox.CreateTables(),
		inbox.Poison(poison.MessagePublisher(0), "mailer_poison")))
	router.AddConsumerHandler("welcome", topic, subscriber,
		func(msg *message.Message) error { return welcome(msg, mails) })

	done := make(chan error, 3)
	go func() { done <- outbox.Run(ctx) }()
	go func() { done <- worker.Run(ctx) }()
	go func() { done <- router.Run(ctx) }()
	return errors.Join(<-done, <-done, <-done)
}

// welcome decides that a mail has to be sent. It does not send the mail, because a mail cannot be
// rolled back.
func welcome(msg *message.Message, mails *command.Queue) error {
	event, err := watermillbridge.EventFromMessage(msg)
	if err != nil {
		return core.Permanent(err)
	}
	var customer Customer
	if err := json.Unmarshal(event.Payload, &customer); err != nil {
		return core.Permanent(err)
	}
	_, _, err = mails.Enqueue(msg.Context(), nil, command.Effect{ // nil: in the transaction of the inbox
		Channel: "mail", Key: "welcome:" + event.ID, Payload: []byte(customer.Email),
	})
	return err
}

// sendMail is called until it returns nil. By its Message-ID the mail server, and readers of the
// log, recognise a second attempt.
func sendMail(_ context.Context, e command.Effect) (string, error) {
	id := "<" + e.IdempotencyKey() + "@mailer.example>"
	text := fmt.Sprintf("From: shop@example.com\r\nTo: %s\r\nMessage-ID: %s\r\nSubject: Welcome\r\n\r\nWelcome!\r\n",
		e.Payload, id)
	err := smtp.SendMail(cmp.Or(os.Getenv("SMTP_ADDR"), "localhost:25"), nil, "shop@example.com",
		[]string{string(e.Payload)}, []byte(text))
	if err == nil {
		fmt.Println("sent a mail to", string(e.Payload))
	}
	return id, err // a refused connection is an outage, and costs no attempt
}

// rabbit has a durable queue for each topic.
func rabbit() amqp.Config {
	return amqpbridge.QueueConfig(cmp.Or(os.Getenv("AMQP_URL"), "amqp://guest:guest@localhost:5672/"))
}

func open() (*gorm.DB, error) {
	dsn := "file:" + cmp.Or(os.Getenv("DATABASE"), "mailer.db") +
		"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate"
	return gorm.Open(sqlite.Dialector{DriverName: "sqlite", DSN: dsn}, &gorm.Config{Logger: logger.Discard})
}
