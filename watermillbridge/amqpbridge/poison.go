package amqpbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// ErrDeliveryLimit: messages of a quorum queue were looked at and given back so often that the broker
// may soon drop them, or send them to a dead letter exchange. RabbitMQ 4 does so after 20 times.
// Release them without a selection, or set delivery-limit -1 for the queue.
var ErrDeliveryLimit = errors.New("amqpbridge: the broker may soon drop messages that were given back too often")

// ErrQueueInUse: another release has the poison queue open. Two releases at once would share its
// messages, and so send the messages of a key in another order than they were parked in. Wait until
// it has ended.
var ErrQueueInUse = errors.New("amqpbridge: another release has this poison queue open: wait until it has ended")

// PoisonQueue is a queue of RabbitMQ with messages that consumers gave up. It gets one message
// after another, until it had as many as were there when it was opened. When it is closed, or when
// its process dies, the broker puts unacknowledged messages back in their places; a quorum queue of
// RabbitMQ 3 does not keep their order when the process dies. Until then no other release gets
// them, and none can open the queue: an exclusive queue, named after it with ".release" at the end,
// marks it as open. A user without the right to configure that queue opens the poison queue all the
// same, and then has to see that one release runs at a time.
type PoisonQueue struct {
	cfg  *Config
	conn *connection
	ch   *amqp091.Channel
	name string
	lock *amqp091.Channel // on which the exclusive queue was declared; nil: none
	left int              // messages that were there when it was opened
	held amqp091.Delivery // the last message, unless it was acknowledged
}

var _ inbox.Queue = (*PoisonQueue)(nil)

// OpenPoisonQueue connects, and opens the queue with that name. A missing queue is an error. Of cfg
// it uses the connection and the Marshaler of AMQP, and ConnectTimeout. The error wraps
// ErrQueueInUse if another release has the queue open, and goes on having it for three seconds.
func OpenPoisonQueue(ctx context.Context, cfg Config, name string) (*PoisonQueue, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if name == "" {
		return nil, errors.New("amqpbridge: the poison queue has no name")
	}
	q := &PoisonQueue{cfg: &cfg, name: name}
	var err error
	if q.conn, err = connect(&cfg); err != nil {
		return nil, fmt.Errorf("amqpbridge: connect to %s: %w", cfg.server(), err)
	}
	if err = q.take(ctx); err != nil {
		_ = q.Close()
		return nil, err
	}
	if q.ch, err = q.conn.conn.Channel(); err == nil {
		var there amqp091.Queue
		there, err = q.ch.QueueDeclarePassive(name, true, false, false, false, nil)
		q.left = there.Messages
	}
	if err != nil {
		_ = q.Close()
		return nil, marked(fmt.Sprintf("open the poison queue %q", name), err)
	}
	return q, nil
}

const (
	lockSuffix   = ".release"
	lockPatience = 3 * time.Second // the broker notices a process that was killed, and deletes its queue
	lockPause    = 50 * time.Millisecond
)

// take declares the exclusive queue that marks the poison queue as open.
func (q *PoisonQueue) take(ctx context.Context) error {
	waiting, stop := context.WithTimeout(ctx, lockPatience)
	defer stop()
	for {
		ch, err := q.conn.conn.Channel()
		if err != nil {
			return marked(fmt.Sprintf("open the poison queue %q", q.name), err)
		}
		if _, err = ch.QueueDeclare(q.name+lockSuffix, false, false, true, false, nil); err == nil {
			q.lock = ch
			return nil
		}
		if a, ok := errors.AsType[*amqp091.Error](err); !ok || a.Code != amqp091.ResourceLocked {
			return nil // no right to it, or a queue of others has the name
		}
		select {
		case <-time.After(lockPause):
		case <-waiting.Done():
			return cmp.Or(ctx.Err(), fmt.Errorf("%w: %q", ErrQueueInUse, q.name))
		}
	}
}

// manyDeliveries is how often a message may be given back. RabbitMQ 4 drops it after 20 times.
const manyDeliveries = 10

// Next implements inbox.Queue. Its error may wrap ErrDeliveryLimit.
func (q *PoisonQueue) Next(ctx context.Context) (inbox.Message, error) {
	if n, _ := q.held.Headers[deliveryCount].(int64); n >= manyDeliveries {
		return inbox.Message{}, fmt.Errorf("%w: %d times from queue %q: release them without a selection, or set "+
			"delivery-limit -1 for the queue", ErrDeliveryLimit, n, q.name)
	}
	if err := ctx.Err(); err != nil || q.left == 0 {
		return inbox.Message{}, errors.Join(err, io.EOF)
	}
	d, ok, err := q.ch.Get(q.name, false)
	switch {
	case err != nil:
		return inbox.Message{}, marked(fmt.Sprintf("get a message of queue %q", q.name), err)
	case !ok: // other releases have the rest
		return inbox.Message{}, io.EOF
	}
	q.left--
	q.held = d
	return q.message(d), nil
}

// deliveryCount is a header that a quorum queue adds.
const deliveryCount = "x-delivery-count"

// message returns a delivery as the Marshaler reads it. One that it cannot read has no headers, and
// stays in the queue.
func (q *PoisonQueue) message(d amqp091.Delivery) inbox.Message {
	m := inbox.Message{Payload: d.Body, Raw: d.DeliveryTag}
	msg, err := q.cfg.AMQP.Marshaler.Unmarshal(d)
	if err == nil {
		delete(msg.Metadata, deliveryCount)
		m.UUID, m.Headers, m.Payload = msg.UUID, msg.Metadata, msg.Payload
	}
	return m
}

// Ack implements inbox.Queue. RabbitMQ does not confirm it: an acknowledgement that is lost with the
// connection leaves the message in the queue.
func (q *PoisonQueue) Ack(_ context.Context, msg inbox.Message) error {
	tag, ok := msg.Raw.(uint64)
	if !ok {
		return fmt.Errorf("amqpbridge: the message is not of queue %q", q.name)
	}
	if err := q.ch.Ack(tag, false); err != nil {
		return marked(fmt.Sprintf("acknowledge a message of queue %q", q.name), err)
	}
	if tag == q.held.DeliveryTag {
		q.held = amqp091.Delivery{}
	}
	return nil
}

// Close gives back unacknowledged messages, and disconnects.
func (q *PoisonQueue) Close() error {
	var err error
	// A quorum queue does not keep the order of messages whose channel or connection ends, and has
	// the messages of an ended connection again only some time later.
	if q.ch != nil && !q.ch.IsClosed() {
		err = errors.Join(q.ch.Nack(0, true, true), q.ch.Close())
	}
	if q.lock != nil && !q.lock.IsClosed() { // the end of the connection would delete it later
		_, gone := q.lock.QueueDelete(q.name+lockSuffix, false, false, false)
		err = errors.Join(err, gone)
	}
	return cmp.Or(q.conn.close(q.cfg.ConnectTimeout), err)
}
