package natsbridge

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

// Subscriber is a message.Subscriber of JetStream. Its methods may be called at the same time.
//
// It pulls the messages of a durable consumer, which it makes if the server has none. A new group
// begins with the oldest message of the stream. A message counts as handled when the handler has
// acknowledged it. One that is rejected, or whose process dies, is delivered again; an inbox makes
// that a duplicate.
//
// Metadata outbox_source (core.HeaderSource) is topic/0/sequence, with the sequence of the stream.
// An inbox keeps it, so lists of dead events have it as the offset.
type Subscriber struct {
	cfg     SubscriberConfig
	link    link.Link[*session]
	closing chan struct{} // closed when Close begins: no message is delivered any more
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

var _ message.Subscriber = (*Subscriber)(nil)

// NewSubscriber returns a Subscriber. It checks cfg and does not connect: Subscribe does, and fails
// while the server is away.
func NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	options, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	s := &Subscriber{cfg: cfg, link: newLink(cfg.Logger, options), closing: make(chan struct{})}
	s.link.HangUp = func(c *session) error {
		if c.conn.IsConnected() { // a rejected message whose rejection was lost comes after AckWait
			_ = c.conn.FlushTimeout(time.Second)
		}
		c.conn.Close()
		return nil
	}
	return s, nil
}

// Subscribe implements message.Subscriber. A topic is a subject, or one with wildcards, of one
// stream that exists. Its messages come until ctx ends or Close is called; then the channel is
// closed. Handlers that have a message get CloseTimeout to finish. It continues after an outage,
// and if the consumer was deleted on the server. It stops reading, with warnings, while a person
// has made the consumer unsafe.
//
// Errors: watermillbridge.ErrClosed, ErrNoStream, ErrUnsafeConsumer, and errors of the connection.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := checkFilter(topic); err != nil {
		return nil, err
	}
	consumer, err := s.consumer(ctx, topic)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, watermillbridge.ErrClosed
	}
	r := &reading{
		Subscriber: s, topic: topic, output: make(chan *message.Message),
		slots: make(chan struct{}, s.cfg.MaxAckPending), ended: make(chan struct{}),
	}
	s.running.Go(func() { r.run(ctx, consumer) })
	return r.output, nil
}

// Close implements message.Subscriber. It takes a second, and waits until no handler has a message
// any more, for CloseTimeout at most. It may be called again.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	s.mu.Unlock()
	s.running.Wait()
	return s.link.Close()
}

// consumer returns the durable consumer of a topic.
func (s *Subscriber) consumer(ctx context.Context, topic string) (jetstream.Consumer, error) {
	c, err := s.link.Connected(ctx)
	if err != nil {
		return nil, err
	}
	return s.cfg.durable(ctx, c.js, topic)
}

// checkFilter refuses a topic that is no subject to subscribe to.
func checkFilter(topic string) error {
	if topic == "" || strings.ContainsAny(topic, " \t\r\n") || strings.HasPrefix(topic, "$") {
		return fmt.Errorf("natsbridge: topic %.100q is no subject: it is empty, has a blank, or begins with $", topic)
	}
	return nil
}
