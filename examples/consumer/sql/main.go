// Command sql is an idempotent consumer on database/sql and Redis streams: a payment is delivered
// three times and credited once.
//
//	docker run --rm -p 6379:6379 redis:7 --appendonly yes --appendfsync always
//	go run ./examples/consumer/sql
//
// REDIS_URL names another server than redis://localhost:6379/0.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/examples/consumer/internal/payments"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge"
)

// credit handles a payment. Its writes commit together with the id of the event.
func credit(msg *message.Message) error {
	tx, err := sqltx.FromContext(msg.Context())
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(msg.Context(), "UPDATE accounts SET cents = cents + 100 WHERE id = 'ada'")
	return err
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "sql:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	db, err := payments.OpenBank()
	if err != nil {
		return err
	}

	options, err := redisbridge.Options(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379/0"))
	if err != nil {
		return err
	}
	topic, client := payments.NewTopic(), redis.NewClient(options)
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("%w: start Redis (docker run --rm -p 6379:6379 redis:7 --appendonly yes "+
			"--appendfsync always), or set REDIS_URL", err)
	}
	defer func() { err = errors.Join(err, client.Del(ctx, topic).Err()) }()
	if err := send(ctx, options, topic); err != nil {
		return err
	}

	logger := watermill.NewSlogLogger(core.DefaultLogger())
	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client:        redis.NewClient(options), // which the subscriber closes
		ConsumerGroup: "bank",                   // without a group it gets only what comes after its start
	}, logger)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	router.AddMiddleware(inbox.SQL(db, "bank", inbox.CreateTables()))
	router.AddConsumerHandler("credit", topic, subscriber, credit)
	return payments.Run(ctx, router, db) // a service: router.Run(ctx)
}

// send is the other service.
func send(ctx context.Context, options *redis.Options, topic string) (err error) {
	publisher, err := redisbridge.NewPublisher(redisbridge.Config{Client: redis.NewClient(options)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, publisher.Close(ctx)) }()
	return payments.Send(ctx, publisher, topic)
}
