package amqpbridge

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rabbitmq/amqp091-go"

	"github.com/ormoutbox/ormoutbox/core"
)

// Errors that callers branch on with errors.Is.
var (
	// ErrUnroutable: the broker returned the message because no queue is bound for it. Its class is
	// Unroutable: the topic is stopped until its first consumer has declared a queue. An event that
	// is returned after other events of its topic were accepted is DEAD. Declare and bind a queue
	// (see Config.DeclareQueues), or set Config.AllowUnroutable.
	ErrUnroutable = errors.New("amqpbridge: no queue wants the message")

	// ErrNack: the broker did not take the message, for example because a queue with
	// overflow=reject-publish is full, or a quorum queue has no quorum. Its class is Unavailable: a
	// nack is not the event's fault. The topic waits 1 s, and twice as long after each further nack,
	// 30 s at most, until the broker takes a message.
	ErrNack = errors.New("amqpbridge: the broker refused the message")

	// ErrBlocked: the broker has blocked publishers because it is short of memory or disk. Its
	// class is Unavailable.
	ErrBlocked = errors.New("amqpbridge: the broker has blocked publishers")
)

// marked returns err, the error that ended the use of the connection or of a channel, marked with
// its class. Such an error is never the event's fault, except when the message is too large.
func marked(doing string, err error) error {
	var a *amqp091.Error
	tooLarge := errors.As(err, &a) &&
		(a.Code == amqp091.ContentTooLarge || a.Code == amqp091.PreconditionFailed && strings.Contains(a.Reason,
			"message size"))
	err = fmt.Errorf("amqpbridge: %s: %w", doing, err)
	if tooLarge {
		return core.Permanent(err)
	}
	return core.Unavailable(err)
}

// unroutable makes an error of a returned message.
func unroutable(r amqp091.Return) error {
	return core.Unroutable(fmt.Errorf("%w: exchange %q, routing key %q: %d %s: declare and bind a queue, or set "+
		"DeclareQueues of amqpbridge.Config", ErrUnroutable, r.Exchange, r.RoutingKey, r.ReplyCode, r.ReplyText))
}
