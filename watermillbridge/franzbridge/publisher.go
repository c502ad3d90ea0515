package franzbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
)

var (
	_ core.AsyncPublisher   = (*Publisher)(nil)
	_ core.ReceiptPublisher = (*Publisher)(nil)
	_ core.SizeChecker      = (*Publisher)(nil)
)

// Publisher publishes to Kafka. It is safe for use by several goroutines.
type Publisher struct {
	cfg     Config
	topics  sync.Map // name -> *topic
	conns   *connections
	largest func(topic string) int // the size of the largest message
	clients
}

// topic is the client's view of a topic.
type topic struct {
	acked atomic.Int64 // when it last acknowledged a message, in Unix nanoseconds
}

// NewPublisher returns a Publisher. It checks cfg and does not connect, so a process can start
// while Kafka is down. The key of a message is the event's key. A receipt has the form
// topic/partition@offset.
func NewPublisher(cfg Config) (*Publisher, error) {
	cfg.PublishTimeout = cmp.Or(cfg.PublishTimeout, defaultPublishTimeout)
	cfg.ClientID = cmp.Or(cfg.ClientID, "ormoutbox")
	mapper, err := cfg.CloudEvents.For(cloudevents.Kafka)
	if err == nil && mapper != nil {
		err = mapper.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("franzbridge: Config.CloudEvents: %w", err)
	}
	cfg.CloudEvents = mapper
	conns := &connections{brokers: strings.Join(cfg.Brokers, ",")}
	client, err := cfg.client(kgo.WithHooks(conns))
	if err != nil {
		return nil, err
	}
	return &Publisher{cfg: cfg, conns: conns, largest: batchLimit(client), clients: clients{client: client}}, nil
}

// Publish implements core.Publisher.
func (p *Publisher) Publish(ctx context.Context, d core.Delivery) error {
	_, err := p.PublishWithReceipt(ctx, d)
	return err
}

// PublishWithReceipt implements core.ReceiptPublisher. It waits for the answer to one event. A
// relay calls PublishAsync instead.
func (p *Publisher) PublishWithReceipt(ctx context.Context, d core.Delivery) (receipt string, err error) {
	done := make(chan struct{})
	var once sync.Once
	p.PublishAsync(ctx, d, func(r string, e error) {
		once.Do(func() {
			receipt, err = r, e
			close(done)
		})
	})
	<-done
	return receipt, err
}

// PublishAsync implements core.AsyncPublisher. It returns before the message is sent.
func (p *Publisher) PublishAsync(ctx context.Context, d core.Delivery, done func(receipt string, err error)) {
	if d.Topic == "" {
		done("", core.Permanent(errors.New("franzbridge: no topic")))
		return
	}
	r, err := newRecord(&d, p.cfg.CloudEvents)
	if err != nil {
		err = fmt.Errorf("franzbridge: CloudEvent of %s: %w", describe(&d), err)
		if _, marked := core.ClassOf(err); !marked {
			err = core.Permanent(err)
		}
		done("", err)
		return
	}
	p.produce(ctx, d.Topic, r, done)
}

// produce sends a record. done may be called twice.
func (p *Publisher) produce(ctx context.Context, topic string, r *kgo.Record, done func(receipt string, err error)) {
	s := &sending{p: p, topic: p.topic(topic), began: time.Now(), done: done}
	p.mu.RLock()
	defer p.mu.RUnlock()
	s.client = p.client
	// The client fails a message whose context has ended, but not at once in all of its states.
	s.stop = context.AfterFunc(ctx, func() { s.failed(context.Cause(ctx)) })
	// When the context of a message ends, the client also gives up all that waits for the same
	// partition.
	s.client.Produce(ctx, r, func(r *kgo.Record, err error) {
		if err != nil && ofBatch(err) && ctx.Err() == nil {
			go p.sendAlone(ctx, s, r)
			return
		}
		s.ended(r, err)
	})
}

func (p *Publisher) topic(name string) *topic {
	if t, ok := p.topics.Load(name); ok {
		return t.(*topic)
	}
	t, _ := p.topics.LoadOrStore(name, new(topic))
	return t.(*topic)
}

// sending is a message on its way.
type sending struct {
	p      *Publisher
	client *kgo.Client
	topic  *topic
	began  time.Time
	done   func(receipt string, err error)
	stop   func() bool
}

// ended hands the result of the client on.
func (s *sending) ended(r *kgo.Record, err error) {
	s.stop()
	if err != nil {
		s.failed(err)
		return
	}
	s.topic.acked.Store(time.Now().UnixNano())
	s.done(receipt(r), nil)
}

func (s *sending) failed(err error) {
	if errors.Is(err, kgo.ErrClientClosed) {
		err = fmt.Errorf("%w: %w", errClosed, err)
	}
	switch err = mark(err, s.topic.acked.Load() > s.began.UnixNano()); {
	case errors.Is(err, errNoAnswer):
		err = s.p.conns.explain(err)
	case errors.Is(err, kerr.UnknownTopicID):
		go s.p.renew(s.client)
		err = s.p.madeAgain(err)
	}
	s.done("", err)
}

func receipt(r *kgo.Record) string {
	if r.Offset < 0 { // the broker has recognised a copy and does not return the place of the first one
		return ""
	}
	b := make([]byte, 0, len(r.Topic)+24)
	b = append(append(b, r.Topic...), '/')
	b = append(strconv.AppendInt(b, int64(r.Partition), 10), '@')
	return string(strconv.AppendInt(b, r.Offset, 10))
}

// Close waits until ctx ends for the messages that are on their way, and closes the connections.
// Messages that are not acknowledged by then fail as unavailable, and so do later ones. Close the
// Publisher after Run has returned. An error wraps ctx's error. A second Close does nothing.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	closed, client, alone := p.closed, p.client, p.alone
	p.closed = true
	p.mu.Unlock()
	if closed {
		return nil
	}
	err := client.Flush(ctx)
	if alone != nil {
		err = errors.Join(err, alone.Flush(ctx))
		alone.Close()
	}
	client.Close()
	ended := make(chan struct{})
	go func() {
		p.replaced.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		err = cmp.Or(err, ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("franzbridge: close: %w", err)
	}
	return nil
}
