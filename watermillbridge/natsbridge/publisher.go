package natsbridge

import (
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

	mu      sync.Mutex
	conn    *nats.Conn
	js      jetstream.JetStream
	opening *attempt        // nil: nobody connects
	away    error           // why the connection that broke could not be opened again; nil: it is open
	failed  error           // why the last attempt failed
	life    context.Context //nolint:containedctx // it ends with the connection, not with a call
	broke   context.CancelFunc
	streams map[string]stream // by topic
	waits   map[*wait]struct{}
	closed  bool
}

// attempt is one attempt to connect. All who need the connection meanwhile get its outcome.
type attempt struct {
	done chan struct{}
	js   jetstream.JetStream
	err  error
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
	js, err := p.connected(ctx)
	if err != nil {
		return err
	}
	// The client would wait for an answer that was lost with its connection, or that never comes.
	bound, done := p.begin(ctx, topic)
	defer done()
	ack, err := p.store(bound, js, m)
	if err != nil && bound.Err() != nil && ctx.Err() == nil {
		return core.Unavailable(fmt.Errorf("%w: subject %q", context.Cause(bound), topic))
	}
	if err != nil {
		return p.explain(err)
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

// broken ends the publishes that wait for an acknowledgement.
func (p *publisher) broken() {
	p.mu.Lock()
	defer p.mu.Unlock()
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

// connected returns JetStream. It waits until ctx ends for an attempt to connect. The client closes a
// connection by itself when the server refuses its credentials again and again: then there is a new
// one.
func (p *publisher) connected(ctx context.Context) (jetstream.JetStream, error) {
	p.mu.Lock()
	if p.closed {
		defer p.mu.Unlock()
		return nil, core.Unavailable(watermillbridge.ErrClosed)
	}
	if p.conn != nil && !p.conn.IsClosed() {
		defer p.mu.Unlock()
		return p.js, nil
	}
	a, failed := p.opening, p.failed
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		p.opening = a
		go p.open(a)
	}
	p.mu.Unlock()
	select {
	case <-a.done:
		return a.js, a.err
	case <-ctx.Done():
	}
	if failed != nil {
		return nil, core.Unavailable(fmt.Errorf("%w; the attempt before: %w", ctx.Err(), failed))
	}
	return nil, core.Unavailable(fmt.Errorf("natsbridge: connect: %w", ctx.Err()))
}

func (p *publisher) open(a *attempt) {
	p.broken() // there is no connection, and no publish waits: this begins its life
	options, told, toldProblem := *p.options, p.options.DisconnectedErrCB, p.options.AsyncErrorCB
	options.AsyncErrorCB = func(conn *nats.Conn, s *nats.Subscription, err error) {
		p.refused(err)
		if toldProblem != nil {
			toldProblem(conn, s, err)
		}
	}
	options.DisconnectedErrCB = func(conn *nats.Conn, err error) {
		p.broken()
		if err != nil {
			p.cfg.Bridge.Logger.Warn("natsbridge: the connection broke; it is opened again", "err", err)
		}
		if told != nil {
			told(conn, err)
		}
	}
	options.ReconnectErrCB, options.ReconnectedCB = p.reconnecting(&options)
	conn, js, err := connect(&options)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer close(a.done)
	p.opening, p.failed, p.away = nil, err, nil
	switch {
	case err != nil:
		a.err = err
	case p.closed:
		conn.Close()
		a.err = core.Unavailable(watermillbridge.ErrClosed)
	default:
		p.conn, p.js, a.js = conn, js, js
	}
}

// reconnecting returns callbacks that remember why a connection is not opened again, and then call
// those of the options.
func (p *publisher) reconnecting(o *nats.Options) (failed nats.ConnErrHandler, opened nats.ConnHandler) {
	set := func(err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.away = err
	}
	toldFailed, toldOpened := o.ReconnectErrCB, o.ReconnectedCB
	return func(conn *nats.Conn, err error) {
			set(err)
			if toldFailed != nil {
				toldFailed(conn, err)
			}
		}, func(conn *nats.Conn) {
			set(nil)
			if toldOpened != nil {
				toldOpened(conn)
			}
		}
}

// explain adds the cause to an error of a connection that is opened again: the client says only that
// it keeps no messages meanwhile.
func (p *publisher) explain(err error) error {
	if !errors.Is(err, nats.ErrReconnectBufExceeded) {
		return err
	}
	p.mu.Lock()
	conn, cause := p.conn, p.away
	p.mu.Unlock()
	if conn != nil && conn.LastError() != nil { // of TLS and of rights, for which there is no callback
		cause = conn.LastError()
	}
	if cause == nil {
		return err
	}
	return fmt.Errorf("%w: not connected: %w", err, cause)
}

// Close implements message.Publisher.
func (p *publisher) Close() error {
	p.mu.Lock()
	conn := p.conn
	p.closed, p.conn, p.js = true, nil, nil
	p.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	return nil
}
