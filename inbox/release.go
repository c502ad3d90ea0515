package inbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
)

// keptBy is metadata of a message that was put at the end of the poison queue. The value is the id of
// the run.
const keptBy = "kept_by"

// ReleaseRequest selects the messages of a poison queue to release. From, Topic, To, Actor and
// Reason are required.
type ReleaseRequest struct {
	// From reads the poison queue, and removes a message from it when the message is acknowledged.
	// With Kafka use a consumer group of its own, which remembers released messages
	// (kafkabridge.NewSubscriber); with RabbitMQ, the queue itself. The caller closes it.
	From message.Subscriber
	// Topic is the poison queue.
	Topic string
	// To sends a message to the topic from which it was consumed. With Kafka it is the
	// MessagePublisher of a kafkabridge publisher. It also puts messages that are not selected back
	// into the queue.
	To message.Publisher

	Actor  string // the person or the program that asks
	Reason string // why the messages are released

	// Limit is how many messages are released at most. 0: all.
	Limit int
	// Select returns false for a message that stays in the queue. Later messages of its key stay
	// too, so that the order of the key is kept. Raw of the Message is the *message.Message.
	// Default: all are released.
	Select func(coreinbox.Parked) bool
	// Wait is how long Release waits until a released message is processed. Default: 1 minute.
	Wait time.Duration
	// Idle is how long the queue sends nothing until Release takes it for empty, and ends. It must
	// be longer than From needs to connect. Default: 10 s.
	Idle time.Duration
}

// Release is the Release of in, for a poison queue of any broker that Watermill has a subscriber
// for. For RabbitMQ, Kafka, NATS JetStream and Redis streams the bridges have queues with a known
// end, whose messages keep their places: call in.Release with them, or the command `outbox inbox
// release`.
//
// A subscriber has one message at a time. So Release takes the queue for empty when nothing comes
// within Idle, and messages that are kept move to the end of the queue.
func Release(ctx context.Context, in *coreinbox.Inbox, req ReleaseRequest) (done coreinbox.Released, err error) {
	if err := req.check(); err != nil {
		return done, err
	}
	q := &subscribed{
		from: req.From, to: req.To, topic: req.Topic, idle: cmp.Or(req.Idle, 10*time.Second), id: rand.Text(),
	}
	close, err := q.open(ctx)
	if err != nil {
		return done, err
	}
	defer close()
	return in.Release(ctx, coreinbox.ReleaseRequest{
		From: q, To: sender{req.To}, Actor: req.Actor, Reason: req.Reason, Limit: req.Limit, Select: req.Select,
		Wait: req.Wait,
	})
}

func (req ReleaseRequest) check() error {
	var problems []error
	bad := func(bad bool, text string) {
		if bad {
			problems = append(problems, fmt.Errorf("%w: ReleaseRequest.%s", coreinbox.ErrInvalidRequest, text))
		}
	}
	bad(isNil(req.From), "From is nil")
	bad(req.Topic == "", "Topic is empty")
	bad(isNil(req.To), "To is nil")
	bad(req.Idle < 0, "Idle is negative")
	rest := coreinbox.ReleaseRequest{
		From: &subscribed{}, To: sender{}, Actor: req.Actor, Reason: req.Reason, Limit: req.Limit, Wait: req.Wait,
	}
	return errors.Join(append(problems, rest.Validate())...)
}

// subscribed is a coreinbox.Queue made of a subscriber.
type subscribed struct {
	from  message.Subscriber
	to    message.Publisher
	topic string
	idle  time.Duration
	id    string // of this run

	messages <-chan *message.Message
	last     *message.Message // the last result of Next, until it is acknowledged
}

// open subscribes. close gives back unacknowledged messages.
func (q *subscribed) open(ctx context.Context) (close func(), err error) {
	reading, stop := context.WithCancel(ctx)
	q.messages, err = q.from.Subscribe(reading, q.topic)
	if err != nil {
		stop()
		return nil, fmt.Errorf("inbox: read the poison queue %q: %w", q.topic, err)
	}
	return func() {
		stop()
		if q.last != nil {
			q.last.Nack()
		}
		drain(q.messages)
	}, nil
}

// Next implements coreinbox.Queue.
func (q *subscribed) Next(ctx context.Context) (coreinbox.Message, error) {
	if err := q.keep(ctx); err != nil {
		return coreinbox.Message{}, err
	}
	msg, err := q.next(ctx)
	if err != nil {
		return coreinbox.Message{}, err
	}
	q.last = msg
	if msg.Metadata[keptBy] == q.id { // the whole queue was read once
		return coreinbox.Message{}, io.EOF
	}
	return MessageOf(msg), nil
}

func (q *subscribed) next(ctx context.Context) (*message.Message, error) {
	idle := time.NewTimer(q.idle)
	defer idle.Stop()
	select {
	case msg, open := <-q.messages:
		if !open && ctx.Err() == nil {
			return nil, fmt.Errorf("inbox: the subscriber of the poison queue %q was closed", q.topic)
		}
		if open && ctx.Err() != nil {
			msg.Nack()
		}
		return msg, ctx.Err()
	case <-idle.C:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// keep puts the last message at the end of the queue, unless it was acknowledged.
func (q *subscribed) keep(ctx context.Context) error {
	if q.last == nil {
		return nil
	}
	out := q.last.Copy()
	out.SetContext(ctx)
	delete(out.Metadata, natsMsgID)
	delete(out.Metadata, core.HeaderSource)
	out.Metadata.Set(keptBy, q.id)
	if err := q.to.Publish(q.topic, out); err != nil {
		return fmt.Errorf("inbox: keep a message in the poison queue %q: %w", q.topic, err)
	}
	q.last.Ack()
	q.last = nil
	return nil
}

// Ack implements coreinbox.Queue.
func (q *subscribed) Ack(context.Context, coreinbox.Message) error {
	q.last.Ack()
	q.last = nil
	return nil
}

// sender is a coreinbox.Sender made of a publisher.
type sender struct{ to message.Publisher }

// Send implements coreinbox.Sender.
func (s sender) Send(ctx context.Context, topic string, msg coreinbox.Message) error {
	out := message.NewMessage(msg.UUID, msg.Payload)
	out.Metadata = msg.Headers
	out.SetContext(ctx)
	return s.to.Publish(topic, out)
}

// drain gives back messages that a subscriber still delivers after it was stopped.
func drain(msgs <-chan *message.Message) {
	end := time.NewTimer(10 * time.Second)
	defer end.Stop()
	for {
		select {
		case msg, open := <-msgs:
			if !open {
				return
			}
			msg.Nack()
		case <-end.C:
			return
		}
	}
}
