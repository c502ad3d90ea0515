package redisbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
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
	p := newPublisher(cfg)
	if cfg.Bridge.CheckSize == nil {
		cfg.Bridge.CheckSize = p.checkSize
	}
	return link.NewPublisher("redisbridge", p, cfg.Bridge, cfg.Decorate, placeKey{}, func() any { return new(string) })
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
	cfg    Config
	every  time.Duration // checkEvery
	link   link.Link[*checked]
	warned atomic.Bool // warnings about the server are logged once
}

// checked is the result of a check of the servers. The client connects to them.
type checked struct {
	at      time.Time
	longest int64       // proto-max-bulk-len; 0: not known
	stale   atomic.Bool // a publish failed, so another server may answer next
}

func newPublisher(cfg Config) *publisher {
	p := &publisher{cfg: cfg, every: checkEvery}
	p.link = link.Link[*checked]{
		Bridge: "redisbridge", Address: address(cfg.Client), Logger: cfg.Bridge.Logger, Dial: p.check,
		Broken: func(c *checked) bool { return c.stale.Load() || time.Since(c.at) >= p.every },
		HangUp: func(*checked) error { return nil },
	}
	return p
}

// address is where a client connects to.
func address(client redis.UniversalClient) string {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().Addr
	case *redis.ClusterClient:
		return strings.Join(c.Options().Addrs, ",")
	}
	return "Redis"
}

// Publish implements message.Publisher.
func (p *publisher) Publish(topic string, msgs ...*message.Message) error {
	return link.Each(topic, msgs, p.publish)
}

func (p *publisher) publish(topic string, msg *message.Message) error {
	ctx := msg.Context()
	server, err := p.link.Connected(ctx)
	if err != nil {
		return err
	}
	values := entry(msg)
	if err := server.tooLong(values); err != nil {
		return core.Permanent(err)
	}
	id, err := p.add(ctx, &redis.XAddArgs{
		Stream: topic, Values: values, MaxLen: p.cfg.MaxLen, Approx: p.cfg.MaxLen > 0,
	})
	if err != nil {
		server.stale.Store(true)
		return marked(fmt.Errorf("redisbridge: publish to %s: XADD to stream %q: %w", p.link.Address, topic, err))
	}
	if place, ok := ctx.Value(placeKey{}).(*string); ok {
		*place = topic + "@" + id
	}
	return nil
}

// checkWithin bounds a check. It ends before relay.Config.PublishTimeout, so that its error is
// reported.
const checkWithin = 4 * time.Second

// check checks the servers.
func (p *publisher) check() (*checked, error) {
	ctx, cancel := context.WithTimeout(context.Background(), checkWithin)
	defer cancel()
	cfg := p.cfg
	if p.warned.Load() {
		cfg.Bridge.Logger = slog.New(slog.DiscardHandler)
	}
	longest, err := checkServers(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	p.warned.Store(true)
	return &checked{at: time.Now(), longest: longest}, nil
}

// tooLong returns an error if the server would break the connection because of the length of a
// value. It does so without an answer that the client could read, so the event would seem to meet
// an outage each time.
func (c *checked) tooLong(values []any) error {
	if c.longest == 0 {
		return nil
	}
	for i := 1; i < len(values); i += 2 {
		if v, ok := values[i].([]byte); ok && int64(len(v)) > c.longest {
			return fmt.Errorf("redisbridge: %s has %d bytes, more than proto-max-bulk-len %d of the server: store the "+
				"payload elsewhere and send a reference, or raise proto-max-bulk-len", values[i-1], len(v), c.longest)
		}
	}
	return nil
}

// checkSize is the watermillbridge.Config.CheckSize. It has the limit of the server after the first
// publish.
func (p *publisher) checkSize(e core.Event) error {
	if c, ok := p.link.Last(); ok {
		return c.tooLong([]any{fieldPayload, e.Payload})
	}
	return nil
}

// add writes an entry and waits for the replicas.
func (p *publisher) add(ctx context.Context, args *redis.XAddArgs) (id string, err error) {
	if p.cfg.Replicas == 0 {
		return p.cfg.Client.XAdd(ctx, args).Result()
	}
	pipe := p.cfg.Client.Pipeline() // WAIT covers the writes of its own connection
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

// marked returns err with its class, unless it has one or Classify returns ClassTransient.
func marked(err error) error {
	if _, ok := core.ClassOf(err); ok {
		return err
	}
	if class := Classify(err); class != core.ClassTransient {
		return class.Mark(err)
	}
	return err
}

// WaitsFor returns the reason why a publish has no answer yet.
func (p *publisher) WaitsFor() error { return p.link.WaitsFor() }

// Close implements message.Publisher.
func (p *publisher) Close() error {
	_ = p.link.Close() // later publishes fail
	if err := p.cfg.Client.Close(); !errors.Is(err, redis.ErrClosed) {
		return err
	}
	return nil
}
