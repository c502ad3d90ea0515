package watermillbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
)

// Errors that callers branch on with errors.Is.
var (
	// ErrNoAnswer: the context ended before the Watermill publisher returned. The broker may or may
	// not have the message. The error also wraps the context's error, so a relay takes it for a
	// timeout and publishes the event again, unless the call succeeds before that: see
	// core.LatePublisher.
	ErrNoAnswer = errors.New("watermillbridge: publisher has not answered, the outcome is unknown")

	// ErrStuck: Config.MaxStuck publishes to the topic have not returned, so no more are started.
	// Its class is Unavailable. Find out why the broker or the network does not answer. When it
	// answers, publishing continues.
	ErrStuck = errors.New("watermillbridge: too many publishes without an answer")

	// ErrClosed: Publish was called after Close. Its class is Unavailable: the event stays in the
	// outbox.
	ErrClosed = errors.New("watermillbridge: publisher is closed")

	// ErrPanic: the Watermill publisher panicked. The process continues.
	ErrPanic = errors.New("watermillbridge: publisher panicked")
)

// Config configures a Publisher. The zero value is ready for use.
type Config struct {
	// Topic returns the Watermill topic of a delivery. Default: Delivery.Topic.
	Topic func(d core.Delivery) string
	// Marshal makes the message. Its context should be ctx or a child of ctx. An unmarked error
	// makes the event DEAD, because the same event would fail again. Mark an error of another cause
	// with core.Unavailable. Default: NewMessage.
	Marshal func(ctx context.Context, d core.Delivery) (*message.Message, error)
	// CloudEvents sends each event as a CloudEvent (see NewCloudEvent). An event that breaks a rule
	// of CloudEvents is refused when it is recorded. The Mapper's Binding is required here, but
	// the bridges of brokers set it. It excludes Marshal. It is copied. Default: none.
	CloudEvents *cloudevents.Mapper
	// RowIDMetadata is a further name under which a message carries the row id, for a broker that
	// deduplicates by it: "Nats-Msg-Id" for JetStream. Default: core.HeaderRowID alone.
	RowIDMetadata string
	// Classifier judges unmarked errors of the Watermill publisher. ClassTransient leaves the error
	// unmarked, so that relay.Config.Classifier judges it. Default: ClassTransient for all.
	Classifier func(error) core.Class
	// Receipt returns the place where the broker put a published message, if the publisher left it
	// in the message. Default: no receipts.
	Receipt func(msg *message.Message) string
	// MaxPayload is the largest Event.Payload, in bytes, whose message the broker takes. A larger
	// event is refused when it is recorded (see core.SizeChecker), and does not become a dead event
	// later. Set it together with a Marshal of your own, because Marshal changes the size. 0: the
	// bridge has no limit; kafkabridge and amqpbridge then use the limit of their messages.
	MaxPayload int
	// CheckSize returns an error for an event that the broker would never take because of its size.
	// The event is then refused when it is recorded, as with MaxPayload. kafkabridge and amqpbridge
	// set it if Marshal is not set, because only then do they control the message. Default: every
	// size up to MaxPayload is taken.
	CheckSize func(e core.Event) error
	// AllowUnconfirmed accepts a publisher of watermill-amqp, watermill-nats or watermill-kafka
	// that does not report which messages the broker has stored (see ErrUnconfirmed), for events
	// that may be lost.
	AllowUnconfirmed bool
	// MaxStuck is how many calls for one topic may be left behind without an answer before further
	// calls fail with ErrStuck. Calls that are running when the limit is reached may exceed it.
	// Default: 64.
	MaxStuck int
	// Logger gets warnings and errors for an operator. Default: core.DefaultLogger, which writes
	// them to slog.Default(). To silence it: slog.New(slog.DiscardHandler).
	Logger *slog.Logger
}

// Publisher publishes through a message.Publisher of Watermill, one message per call. It implements
// core.ReceiptPublisher and core.LatePublisher. It is safe for use by several goroutines.
type Publisher struct {
	pub      message.Publisher
	toBroker broker // pub, if it belongs to a bridge to a broker
	cfg      Config
	pool     sync.Pool // of *call

	mu     sync.Mutex
	closed bool
	calls  int               // calls that have not returned, stuck ones too
	topics map[string]*topic // topics with calls
	idle   chan struct{}     // closed when the Publisher is closed and calls is 0
}

// topic is shared by the calls of one topic. It is guarded by Publisher.mu.
type topic struct {
	name  string
	calls int       // calls that have not returned
	stuck int       // calls that were left behind
	acked time.Time // when the broker last took a message while another call ran
}

// broker is the publisher of a bridge to a broker. A message that a broker does not want is
// refused. So if there is no answer, the message is not at fault.
type broker interface {
	// WaitsFor returns the reason why a publish has no answer yet. It does not wait itself.
	WaitsFor() error
}

// NewPublisher returns a Publisher that publishes with pub. pub must return nil only if the broker
// has stored the message: see the package's notes on brokers. Watermill's own publishers are
// refused with ErrUnconfirmed if they return earlier. NewPublisher cannot see how other publishers
// are configured.
func NewPublisher(pub message.Publisher, cfg Config) (*Publisher, error) {
	if pub == nil {
		return nil, errors.New("watermillbridge: the Watermill publisher is nil")
	}
	if err := checkConfirmed(pub); err != nil && !cfg.AllowUnconfirmed {
		return nil, err
	}
	if cfg.MaxStuck < 0 {
		return nil, fmt.Errorf("watermillbridge: Config.MaxStuck %d is negative", cfg.MaxStuck)
	}
	if cfg.MaxPayload < 0 {
		return nil, fmt.Errorf("watermillbridge: Config.MaxPayload %d is negative", cfg.MaxPayload)
	}
	if cfg.CloudEvents != nil {
		if cfg.Marshal != nil {
			return nil, errors.New("watermillbridge: Config.CloudEvents and Config.Marshal are both set: set one; " +
				"a Marshal can call NewCloudEvent")
		}
		if err := cfg.CloudEvents.Validate(); err != nil {
			return nil, fmt.Errorf("watermillbridge: Config.CloudEvents: %w", err)
		}
		mapper := *cfg.CloudEvents
		cfg.CloudEvents = &mapper
		cfg.Marshal = func(ctx context.Context, d core.Delivery) (*message.Message, error) {
			return NewCloudEvent(ctx, d, &mapper)
		}
	}
	cfg.MaxStuck = cmp.Or(cfg.MaxStuck, 64)
	cfg.Logger = cmp.Or(cfg.Logger, core.DefaultLogger())
	p := &Publisher{pub: pub, cfg: cfg, topics: map[string]*topic{}, idle: make(chan struct{})}
	p.toBroker, _ = pub.(broker)
	p.pool.New = func() any { return &call{p: p, done: make(chan struct{}, 1)} }
	return p, nil
}

// Publish implements core.Publisher. If ctx ends first, the call to Watermill goes on in its
// goroutine, and Publish returns an error that wraps ErrNoAnswer and the context's error. A relay
// also gets a success that comes later, and marks the event as published: see PublishLate.
func (p *Publisher) Publish(ctx context.Context, d core.Delivery) error {
	_, err := p.PublishWithReceipt(ctx, d)
	return err
}

// PublishWithReceipt implements core.ReceiptPublisher. The receipt is empty without Config.Receipt.
func (p *Publisher) PublishWithReceipt(ctx context.Context, d core.Delivery) (string, error) {
	return p.PublishLate(ctx, d, nil)
}

// PublishLate implements core.LatePublisher.
func (p *Publisher) PublishLate(ctx context.Context, d core.Delivery, late func(receipt string, err error)) (string,
	error,
) {
	topic := d.Topic
	if p.cfg.Topic != nil {
		topic = p.cfg.Topic(d)
	}
	if topic == "" {
		return "", core.Permanent(errors.New("watermillbridge: no topic"))
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("watermillbridge: not published to %q: %w", topic, ended(ctx))
	}
	msg, err := p.message(ctx, d)
	if err != nil {
		return "", err
	}
	t, err := p.enter(topic)
	if err != nil {
		return "", err
	}
	if err := p.call(ctx, t, d, msg, late); err != nil {
		return "", err
	}
	return p.receipt(topic, d.ID, d.RowID, msg), nil
}

// receipt calls Config.Receipt. If that fails, the message still counts as published.
func (p *Publisher) receipt(topic, eventID string, rowID core.RowID, msg *message.Message) (receipt string) {
	if p.cfg.Receipt == nil {
		return ""
	}
	defer func() {
		if v := recover(); v != nil {
			p.cfg.Logger.Error("watermillbridge: Config.Receipt panicked; the event is published", "destination", topic,
				"event_id", eventID, "row_id", rowID.String(), "error", fmt.Errorf("%w: %v", ErrPanic, v), "stack",
				string(debug.Stack()))
		}
	}()
	return p.cfg.Receipt(msg)
}

// CheckSize implements core.SizeChecker with Config.MaxPayload and Config.CheckSize. It also
// refuses an event that Config.CloudEvents cannot send.
func (p *Publisher) CheckSize(e core.Event) error {
	if m := p.cfg.CloudEvents; m != nil {
		if err := m.Check(e); err != nil {
			return err
		}
	}
	if limit := p.cfg.MaxPayload; limit > 0 && len(e.Payload) > limit {
		return fmt.Errorf("watermillbridge: payload is %d bytes; the broker's limit is %d (MaxPayload of the bridge's "+
			"Config): store the payload elsewhere and send a reference, or set MaxPayload to what your Marshal and "+
			"the broker can take", len(e.Payload), limit)
	}
	if p.cfg.CheckSize == nil {
		return nil
	}
	return p.cfg.CheckSize(e)
}

func (p *Publisher) message(ctx context.Context, d core.Delivery) (*message.Message, error) {
	msg, err := p.marshal(ctx, d)
	if err == nil && p.cfg.RowIDMetadata != "" && !d.RowID.IsZero() {
		if msg.Metadata == nil {
			msg.Metadata = message.Metadata{}
		}
		msg.Metadata[p.cfg.RowIDMetadata] = d.RowID.String()
	}
	return msg, err
}

func (p *Publisher) marshal(ctx context.Context, d core.Delivery) (*message.Message, error) {
	if p.cfg.Marshal == nil {
		return NewMessage(ctx, d), nil
	}
	msg, err := p.cfg.Marshal(ctx, d)
	if err == nil && msg == nil {
		err = errors.New("no message")
	}
	if err != nil {
		err = fmt.Errorf("watermillbridge: marshal: %w", err)
		if _, ok := core.ClassOf(err); !ok {
			err = core.Permanent(err)
		}
	}
	return msg, err
}

// classified returns err with its class, unless that is left to the relay.
func (p *Publisher) classified(t *topic, began time.Time, err error) error {
	_, marked := core.ClassOf(err)
	switch {
	case marked:
		return err
	case p.toBroker != nil && isTimeout(err):
		if errors.Is(err, ErrNoAnswer) {
			err = fmt.Errorf("%w: %w", err, p.toBroker.WaitsFor())
		}
		if p.ackedSince(t, began) {
			return core.UnavailableForKey(err) // it concerns its key or partition alone
		}
		return core.Unavailable(err)
	case p.cfg.Classifier == nil, errors.Is(err, ErrNoAnswer):
		return err
	}
	if class := p.cfg.Classifier(err); class != core.ClassTransient {
		return class.Mark(err)
	}
	return err
}

// isTimeout reports whether err is a timeout.
func isTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout()
}

// ackedSince reports whether the broker has taken another message of the topic meanwhile.
func (p *Publisher) ackedSince(t *topic, began time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return t.acked.After(began)
}

// enter counts a call that begins.
func (p *Publisher) enter(name string) (*topic, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, core.Unavailable(ErrClosed)
	}
	t := p.topics[name]
	if t == nil {
		t = &topic{name: name}
		p.topics[name] = t
	}
	if t.stuck >= p.cfg.MaxStuck {
		return nil, core.Unavailable(fmt.Errorf("%w: %d to %q", ErrStuck, t.stuck, name))
	}
	p.calls++
	t.calls++
	return t, nil
}

// leave counts a call that returned.
func (p *Publisher) leave(t *topic, acked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls--
	t.calls--
	switch {
	case t.calls == 0:
		delete(p.topics, t.name)
	case acked && p.toBroker != nil:
		t.acked = time.Now()
	}
	if p.closed && p.calls == 0 {
		close(p.idle)
	}
}

// addStuck counts calls that are left behind (1) or have returned after all (-1). The two may come
// in any order.
func (p *Publisher) addStuck(t *topic, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.stuck += n
}

// Stuck returns the number of calls that are left behind without an answer.
func (p *Publisher) Stuck() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := 0
	for _, t := range p.topics {
		sum += t.stuck
	}
	return sum
}

// Close refuses further events, waits until ctx ends for the running calls, and closes the
// Watermill publisher. If ctx ends first, Close returns an error that wraps the context's, and the
// Watermill publisher is closed in the background. Close it after Run has returned. A second Close
// does nothing.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	if p.calls == 0 {
		close(p.idle)
	}
	p.mu.Unlock()

	select {
	case <-p.idle:
	case <-ctx.Done():
	}
	closed := make(chan error, 1)
	go func() { closed <- p.pub.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			return fmt.Errorf("watermillbridge: close: %w", err)
		}
		return nil
	case <-ctx.Done():
		p.mu.Lock()
		n := p.calls
		p.mu.Unlock()
		return fmt.Errorf("watermillbridge: close: %d calls have not returned: %w", n, ended(ctx))
	}
}
