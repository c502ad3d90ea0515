package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
)

type rabbitBroker struct {
	uri, queue string
	conn       *amqp091.Connection
}

func openRabbitMQ(_ context.Context, uri, queue string) (broker, error) {
	conn, err := amqp091.Dial(uri)
	if err != nil {
		return nil, err
	}
	return &rabbitBroker{uri: uri, queue: queue, conn: conn}, nil
}

// publisher declares the queue with its first publish.
func (b *rabbitBroker) publisher(workers int) (brokerPublisher, error) {
	return amqpbridge.NewPublisher(amqpbridge.Config{
		AMQP: amqpbridge.QueueConfig(b.uri), Channels: workers, DeclareQueues: true,
		Bridge: watermillbridge.Config{Topic: func(core.Delivery) string { return b.queue }},
	})
}

func (b *rabbitBroker) forget(context.Context) error {
	ch, err := b.conn.Channel()
	if err != nil {
		return err
	}
	_, err = ch.QueuePurge(b.queue, false)
	return errors.Join(err, ch.Close())
}

func (b *rabbitBroker) collect(ctx context.Context, each func(payload []byte)) error {
	ctx, cancel := context.WithTimeout(ctx, collectLimit)
	defer cancel()
	ch, err := b.conn.Channel()
	if err != nil {
		return err
	}
	defer ch.Close()
	q, err := ch.QueueDeclarePassive(b.queue, true, false, false, false, nil)
	if err != nil {
		return err
	}
	messages, err := ch.Consume(b.queue, "", true, false, false, false, nil)
	if err != nil {
		return err
	}
	for n := range q.Messages {
		select {
		case m, ok := <-messages:
			if !ok {
				return fmt.Errorf("the queue cannot be read any more after %d of %d messages", n, q.Messages)
			}
			each(m.Body)
		case <-ctx.Done():
			return fmt.Errorf("%d of %d messages were read: %w", n, q.Messages, ctx.Err())
		}
	}
	return nil
}

func (b *rabbitBroker) close() error {
	ch, err := b.conn.Channel()
	if err == nil {
		_, err = ch.QueueDelete(b.queue, false, false, false)
	}
	return errors.Join(err, b.conn.Close())
}
