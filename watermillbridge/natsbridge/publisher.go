package natsbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

// ErrDisconnected: the connection broke before the acknowledgement came, so the outcome is unknown.
// Its class is Unavailable. The event is published again, and the stream recognises a copy.
var ErrDisconnected = errors.New("natsbridge: the connection broke before the acknowledgement")

// NewPublisher returns a Publisher for JetStream. It checks cfg and does not connect. The first
// publish connects; if that fails, the next publish tries again. So a process can start while NATS
// is down. A receipt has the form stream@sequence.
func NewPublisher(cfg Config) (*watermillbridge.Publisher, error) {
	options, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	if cfg.Bridge.CloudEvents, err = cfg.Bridge.CloudEvents.For(cloudevents.NATS); err != nil {
		return nil, fmt.Errorf("natsbridge: Config.Bridge.CloudEvents: %w", err)
	}
	cfg.Bridge.Receipt = receipt
	p := &publisher{cfg: cfg, streams: map[string]stream{}}
	p.link = newLink(cfg.Bridge.Logger, options)
	link.Bound(&cfg.Bridge, cfg.MaxMessageBytes, p.checkSize)
	return link.NewPublisher("natsbridge", p, cfg.Bridge, cfg.Decorate, ackKey{}, func() any {
		return &jetstream.PubAck{}
	})
}

type ackKey struct{}

func receipt(msg *message.Message) string {
	ack, ok := msg.Context().Value(ackKey{}).(*jetstream.PubAck)
	if !ok || ack.Stream == "" {
		return ""
	}
	return fmt.Sprintf("%s@%d", ack.Stream, ack.Sequence)
}

// publisher is a message.Publisher that returns nil when a stream has stored the message.
type publisher struct {
	cfg  Config
	link link.Link[*session]

	mu      sync.Mutex
	streams map[string]stream // by topic
}

// Publish implements message.Publisher.
func (p *publisher) Publish(topic string, msgs ...*message.Message) error {
	return link.Each(topic, msgs, p.publish)
}

func (p *publisher) publish(topic string, msg *message.Message) error {
	if err := checkSubject(topic); err != nil {
		return err
	}
	m, err := natsMessage(topic, msg)
	if err != nil {
		return err
	}
	ctx := msg.Context()
	s, err := p.link.Connected(ctx)
	if err != nil {
		return err
	}
	// The client would wait for an answer that was lost with its connection, or that never comes.
	bound, w := s.begin(ctx, topic)
	ack, err := p.store(bound, s, w, m)
	why := context.Cause(bound) // why it ended early, or nil
	s.end(w, err)
	if err != nil && why != nil && ctx.Err() == nil {
		return core.Unavailable(fmt.Errorf("%w: subject %q", why, topic))
	}
	if errors.Is(err, nats.ErrReconnectBufExceeded) { // nothing is sent while there is no connection
		return core.Unavailable(fmt.Errorf("natsbridge: subject %q: the connection is lost: %w", topic, s.lost(err)))
	}
	if err != nil {
		return err
	}
	if kept, ok := ctx.Value(ackKey{}).(*jetstream.PubAck); ok {
		*kept = *ack
	}
	return nil
}

// store has the stream of the subject store a message.
func (p *publisher) store(ctx context.Context, c *session, w *wait, m *nats.Msg) (*jetstream.PubAck, error) {
	s, err := p.streamOf(ctx, c.js, m.Subject)
	if err != nil {
		return nil, err
	}
	c.knows(w)
	ack, err := c.js.PublishMsg(ctx, m, jetstream.WithExpectStream(s.name))
	if err != nil {
		return nil, p.judge(cmp.Or(c.server(), p.link.Address), m.Subject, s, err)
	}
	return ack, nil
}

// judge marks an error of a publish. A subject that has lost its stream, or belongs to another one
// now, is looked up again.
func (p *publisher) judge(server, topic string, s stream, err error) error {
	api, _ := errors.AsType[*jetstream.APIError](err)
	moved := api != nil && api.ErrorCode == codeOtherStream
	if moved || errors.Is(err, jetstream.ErrNoStreamResponse) {
		p.forget(topic)
	}
	err = fmt.Errorf("natsbridge: publish to %s: subject %q of stream %s: %w", server, topic, s.name, err)
	if moved {
		return core.Unavailable(err)
	}
	return marked(err)
}

// codeOtherStream is the answer of a stream that is not the expected one.
const codeOtherStream = 10060

// marked returns err with its class, unless Classify returns ClassTransient.
func marked(err error) error {
	if class := Classify(err); class != core.ClassTransient {
		return class.Mark(err)
	}
	return err
}

// WaitsFor returns the reason why a publish has no answer yet.
func (p *publisher) WaitsFor() error {
	if s, ok := p.link.Last(); ok {
		if err := s.waitsFor(); err != nil {
			return err
		}
	}
	return p.link.WaitsFor()
}

// Close implements message.Publisher.
func (p *publisher) Close() error { return p.link.Close() }
