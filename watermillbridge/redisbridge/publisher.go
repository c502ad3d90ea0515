package redisbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// ErrReplicas: fewer replicas than Config.Replicas have the entry within Config.ReplicaTimeout. The
// entry is in the stream, and its event is published again. Its class is Unavailable.
var ErrReplicas = errors.New("redisbridge: too few replicas have the entry")

// checkEvery is how often the settings of the server are read again. They may change while it runs.
const checkEvery = time.Minute

// NewPublisher returns a Publisher for Redis streams. It checks cfg and does not connect. The first
// publish connects and checks the server, and so does a publish after a failure, and one in each
// minute. So a process can start while Redis is down. A receipt has the form stream@id.
func NewPublisher(cfg Config) (*watermillbridge.Publisher, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.Bridge.Logger = cmp.Or(cfg.Bridge.Logger, core.DefaultLogger())
	if m := cfg.Bridge.CloudEvents; m != nil && m.Binding == 0 {
		own := *m
		own.Binding = cloudevents.Kafka // CloudEvents has no binding for Redis
		cfg.Bridge.CloudEvents = &own
	}
	cfg.Bridge.MaxPayload = cmp.Or(cfg.Bridge.MaxPayload, maxString)
	cfg.Bridge.Receipt = receipt
	p := &publisher{cfg: cfg, checking: make(chan struct{}, 1), every: checkEvery}
	if cfg.Bridge.CheckSize == nil {
		cfg.Bridge.CheckSize = p.checkSize
	}
	var inner message.Publisher = p
	if cfg.Decorate != nil {
		if inner = cfg.Decorate(p); inner == nil {
			return nil, errors.New("redisbridge: Config.Decorate returned nil")
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
		msg.SetContext(context.WithValue(msg.Context(), placeKey{}, new(string)))
	}
	return t.Publisher.Publish(topic, msgs...)
}

type placeKey struct{}

func receipt(msg *message.Message) string {
	if place, ok := msg.Context().Value(placeKey{}).(*string); ok {
		return *place
	}
	return ""
}

// publisher is a message.Publisher that returns nil when Redis has the entry.
type publisher struct {
	cfg      Config
	every    time.Duration             // checkEvery
	checking chan struct{}             // capacity 1: held while the server is checked
	checked  atomic.Pointer[time.Time] // when the server was checked; nil: not since the last failure
	longest  atomic.Int64              // proto-max-bulk-len of the server; 0: not known
	warned   atomic.Bool               // warnings about the server are logged once
	closed   atomic.Bool
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
	if p.closed.Load() {
		return core.Unavailable(watermillbridge.ErrClosed)
	}
	ctx := msg.Context()
	if err := p.check(ctx); err != nil {
		return err
	}
	values := entry(msg)
	if err := p.tooLong(values); err != nil {
		return core.Permanent(err)
	}
	id, err := p.add(ctx, &redis.XAddArgs{
		Stream: topic, Values: values, MaxLen: p.cfg.MaxLen, Approx: p.cfg.MaxLen > 0,
	})
	if err != nil {
		p.checked.Store(nil) // another server may answer next
		return marked(fmt.Errorf("redisbridge: XADD to stream %q: %w", topic, err))
	}
	if place, ok := ctx.Value(placeKey{}).(*string); ok {
		*place = topic + "@" + id
	}
	return nil
}

// check checks the server unless it was checked lately. One caller at a time does it. The others
// wait, unless the check is a repeated one.
func (p *publisher) check(ctx context.Context) error {
	last := p.checked.Load()
	if last != nil && time.Since(*last) < p.every {
		return nil
	}
	select {
	case p.checking <- struct{}{}:
	default:
		if last != nil {
			return nil
		}
		select {
		case p.checking <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("redisbridge: check the server: %w", ctx.Err())
		}
	}
	defer func() { <-p.checking }()
	if now := p.checked.Load(); now != nil && now != last {
		return nil
	}
	cfg := p.cfg
	if p.warned.Load() {
		cfg.Bridge.Logger = slog.New(slog.DiscardHandler)
	}
	longest, err := checkServers(ctx, &cfg)
	if err != nil {
		p.checked.Store(nil)
		return err
	}
	p.warned.Store(true)
	p.longest.Store(longest)
	p.checked.Store(new(time.Now()))
	return nil
}

// tooLong returns an error if the server would break the connection because of the length of a
// value. It does so without an answer that the client could read, so the event would seem to meet
// an outage each time.
func (p *publisher) tooLong(values []any) error {
	longest := p.longest.Load()
	if longest == 0 {
		return nil
	}
	for i := 1; i < len(values); i += 2 {
		if v, ok := values[i].([]byte); ok && int64(len(v)) > longest {
			return fmt.Errorf("redisbridge: %s has %d bytes, more than proto-max-bulk-len %d of the server: store the "+
				"payload elsewhere and send a reference, or raise proto-max-bulk-len", values[i-1], len(v), longest)
		}
	}
	return nil
}

// checkSize is the watermillbridge.Config.CheckSize. It knows the limit of the server after the
// first publish.
func (p *publisher) checkSize(e core.Event) error { return p.tooLong([]any{fieldPayload, e.Payload}) }

// add writes an entry and waits for the replicas.
func (p *publisher) add(ctx context.Context, args *redis.XAddArgs) (id string, err error) {
	if p.cfg.Replicas == 0 {
		return p.cfg.Client.XAdd(ctx, args).Result()
	}
	pipe := p.cfg.Client.Pipeline() // WAIT is about what its own connection has written
	added := pipe.XAdd(ctx, args)
	replicas := redis.NewIntCmd(ctx, "wait", p.cfg.Replicas, p.cfg.ReplicaTimeout.Milliseconds())
	_ = pipe.Process(ctx, replicas)
	_, err = pipe.Exec(ctx)
	switch {
	case added.Err() != nil:
		return "", added.Err()
	case err != nil:
		return "", err
	case replicas.Val() < int64(p.cfg.Replicas):
		return "", core.Unavailable(fmt.Errorf("%w: %d of %d", ErrReplicas, replicas.Val(), p.cfg.Replicas))
	}
	return added.Val(), nil
}

// marked returns err with its class, if it has none and Classify knows it.
func marked(err error) error {
	if _, ok := core.ClassOf(err); ok {
		return err
	}
	if class := Classify(err); class != core.ClassTransient {
		return class.Mark(err)
	}
	return err
}

// Close implements message.Publisher.
func (p *publisher) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	return p.cfg.Client.Close()
}
