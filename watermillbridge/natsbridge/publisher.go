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
	p := &publisher{cfg: cfg, options: options, streams: map[string]stream{}, waits: map[*wait]struct{}{}}
	p.link = link.Link[session]{
		Bridge: "natsbridge", Logger: cfg.Bridge.Logger, Dial: p.open,
		Broken: func(s session) bool { return s.conn.IsClosed() },
		HangUp: func(s session) error { s.conn.Close(); return nil },
	}
	switch {
	case cfg.Bridge.CheckSize != nil:
	case cfg.Bridge.Marshal == nil:
		cfg.Bridge.CheckSize = p.checkSize
	// The size of its messages is not known, but most messages contain the payload.
	case cfg.Bridge.MaxPayload == 0:
		cfg.Bridge.MaxPayload = cfg.MaxMessageBytes
	}
	var inner message.Publisher = p
	if cfg.Decorate != nil {
		if inner = cfg.Decorate(p); inner == nil {
			return nil, errors.New("natsbridge: Config.Decorate returned nil")
		}
	}
	return watermillbridge.NewPublisher(tracked{inner}, cfg.Bridge)
}

// tracked puts a value into the message's context before decorators see the message. The receipt is
// read from that value. So the receipt is kept if a decorator sends a copy with the message's
// context.
type tracked struct{ message.Publisher }

// Publish implements message.Publisher.
func (t tracked) Publish(topic string, msgs ...*message.Message) error {
	for _, msg := range msgs {
		msg.SetContext(context.WithValue(msg.Context(), ackKey{}, &jetstream.PubAck{}))
	}
	return t.Publisher.Publish(topic, msgs...)
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
	cfg     Config
	options *nats.Options
	link    link.Link[session]

	mu      sync.Mutex
	failed  error           // why the connection broke, or was not made anew
	life    context.Context //nolint:containedctx // it ends with the connection, not with a call
	broke   context.CancelFunc
	streams map[string]stream // by topic
	waits   map[*wait]struct{}
}

// session is a connection. The client closes it by itself when the server refuses its credentials
// again and again: then there is a new one.
type session struct {
	conn *nats.Conn
	js   jetstream.JetStream
}

// Publish implements message.Publisher.
func (p *publisher) Publish(topic string, msgs ...*message.Message) error {
	for _, msg := range msgs {
		if err := p.publish(topic, msg); err != nil {
			return err
		}
	}
	return nil
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
	bound, done := p.begin(ctx, topic)
	defer done()
	ack, err := p.store(bound, s.js, m)
	if err != nil && bound.Err() != nil && ctx.Err() == nil {
		return core.Unavailable(fmt.Errorf("%w: subject %q", context.Cause(bound), topic))
	}
	if errors.Is(err, nats.ErrReconnectBufExceeded) { // nothing is sent while there is no connection
		return core.Unavailable(fmt.Errorf("natsbridge: subject %q: the connection is lost: %w", topic,
			p.lost(s.conn, err)))
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
func (p *publisher) store(ctx context.Context, js jetstream.JetStream, m *nats.Msg) (*jetstream.PubAck, error) {
	s, err := p.streamOf(ctx, js, m.Subject)
	if err != nil {
		return nil, err
	}
	ack, err := js.PublishMsg(ctx, m, jetstream.WithExpectStream(s.name))
	if err != nil {
		return nil, p.judge(m.Subject, s, err)
	}
	return ack, nil
}

// judge marks an error of a publish. A subject that has lost its stream, or belongs to another one
// now, is looked up again.
func (p *publisher) judge(topic string, s stream, err error) error {
	api, _ := errors.AsType[*jetstream.APIError](err)
	moved := api != nil && api.ErrorCode == codeOtherStream
	if moved || errors.Is(err, jetstream.ErrNoStreamResponse) {
		p.forget(topic)
	}
	err = fmt.Errorf("natsbridge: publish to subject %q of stream %s: %w", topic, s.name, err)
	if moved {
		return core.Unavailable(err)
	}
	return marked(err)
}

// codeOtherStream is the answer of a stream that is not the expected one.
const codeOtherStream = 10060

// marked returns err with its class, if Classify knows it.
func marked(err error) error {
	if class := Classify(err); class != core.ClassTransient {
		return class.Mark(err)
	}
	return err
}

// lost returns why there is no connection, or else err. The client has no callback for TLS and
// rights that fail when it connects again.
func (p *publisher) lost(conn *nats.Conn, err error) error {
	last := conn.LastError()
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(last, p.failed, err)
}

// broken ends the publishes that wait for an acknowledgement.
func (p *publisher) broken(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = why
	p.newLife()
}

// newLife ends the publishes that wait, and begins the life of another connection. p.mu is held.
func (p *publisher) newLife() {
	if p.broke != nil {
		p.broke()
	}
	p.life, p.broke = context.WithCancel(context.Background())
}

func connect(o *nats.Options) (*nats.Conn, jetstream.JetStream, error) {
	conn, err := o.Connect()
	if err != nil {
		return nil, nil, core.Unavailable(fmt.Errorf("natsbridge: connect: %w", err))
	}
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return nil, nil, core.Unavailable(fmt.Errorf("natsbridge: connect: %w", err))
	}
	return conn, js, nil
}

// open connects.
func (p *publisher) open() (session, error) {
	p.mu.Lock()
	p.newLife() // there is no connection, and no publish waits
	p.mu.Unlock()
	options, told, toldAgain := *p.options, p.options.DisconnectedErrCB, p.options.ReconnectErrCB
	options.DisconnectedErrCB = func(conn *nats.Conn, err error) {
		p.broken(err)
		if err != nil {
			p.cfg.Bridge.Logger.Warn("natsbridge: the connection broke; it is opened again", "err", err)
		}
		if told != nil {
			told(conn, err)
		}
	}
	options.ReconnectErrCB = func(conn *nats.Conn, err error) {
		p.mu.Lock()
		p.failed = err
		p.mu.Unlock()
		if toldAgain != nil {
			toldAgain(conn, err)
		}
	}
	toldProblem := p.options.AsyncErrorCB
	options.AsyncErrorCB = func(conn *nats.Conn, s *nats.Subscription, err error) {
		p.refused(err)
		if toldProblem != nil {
			toldProblem(conn, s, err)
		}
	}
	conn, js, err := connect(&options)
	return session{conn, js}, err
}

// Close implements message.Publisher.
func (p *publisher) Close() error { return p.link.Close() }
