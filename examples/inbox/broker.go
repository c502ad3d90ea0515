package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

// broker is a connection to RabbitMQ with three queues, which only this run uses.
type broker struct {
	publisher                 *watermillbridge.Publisher
	subscriber                *amqp.Subscriber
	admin                     *amqp091.Connection
	payments, credits, poison string
}

func openBroker() (*broker, error) {
	url := cmp.Or(os.Getenv("AMQP_URL"), "amqp://guest:guest@localhost:5672/")
	admin, err := amqp091.Dial(url)
	if err != nil {
		return nil, fmt.Errorf("%w: start RabbitMQ (docker run --rm -p 5672:5672 rabbitmq:4), or set AMQP_URL", err)
	}
	config := amqpbridge.QueueConfig(url) // a topic is a durable queue
	publisher, err := amqpbridge.NewPublisher(amqpbridge.Config{AMQP: config, DeclareQueues: true})
	if err != nil {
		return nil, err
	}
	subscriber, err := amqp.NewSubscriber(config, watermill.NewSlogLogger(core.DefaultLogger()))
	if err != nil {
		return nil, err
	}
	run := core.NewEventID()
	return &broker{publisher, subscriber, admin, "payments-" + run, "credits-" + run, "payments_poison-" + run}, nil
}

// drop deletes a queue and returns how many messages it had.
func (b *broker) drop(queue string) (int, error) {
	channel, err := b.admin.Channel()
	if err != nil {
		return 0, err
	}
	defer channel.Close()
	return channel.QueueDelete(queue, false, false, false)
}

func (b *broker) close(ctx context.Context) (err error) {
	for _, queue := range []string{b.payments, b.credits, b.poison} { // a queue that is gone is no error
		_, dropErr := b.drop(queue)
		err = errors.Join(err, dropErr)
	}
	return errors.Join(err, b.publisher.Close(ctx), b.subscriber.Close(), b.admin.Close())
}
