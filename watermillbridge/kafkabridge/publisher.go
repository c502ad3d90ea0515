package kafkabridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/eapache/go-resiliency/breaker"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

// NewPublisher returns a Publisher for Kafka. It checks cfg and does not connect. The first publish
// connects; if that fails, the next publish tries again. So a process can start while Kafka is down.
// The key of a message is the event's key. A receipt has the form topic/partition@offset.
func NewPublisher(cfg Config) (*watermillbridge.Publisher, error) {
	saramaConfig, err := cfg.sarama()
	if err != nil {
		return nil, err
	}
	cfg.Bridge.Logger = cmp.Or(cfg.Bridge.Logger, core.DefaultLogger())
	producers := kafka.PublisherConfig{
		Brokers: append([]string(nil), cfg.Brokers...), Marshaler: marshaler{}, OverwriteSaramaConfig: saramaConfig,
	}
	k := &publisher{
		together: newProducer(producers, cfg.Bridge.Logger), alone: newProducer(producers, cfg.Bridge.Logger),
		single: make(chan struct{}, 1), leaderless: map[partition]bool{},
	}
	cfg.Bridge.Receipt = receipt
	if cfg.Bridge.CloudEvents, err = cfg.Bridge.CloudEvents.For(cloudevents.Kafka); err != nil {
		return nil, fmt.Errorf("kafkabridge: Config.Bridge.CloudEvents: %w", err)
	}
	limit := saramaConfig.Producer.MaxMessageBytes
	link.Bound(&cfg.Bridge, limit, checkSize(limit, cfg.Bridge.RowIDMetadata, cfg.Bridge.CloudEvents))
	return link.NewPublisher("kafkabridge", k, cfg.Bridge, cfg.Decorate, sentKey{}, func() any { return &sent{} })
}

// sent has the result of sending a message. It is in the message's context.
type sent struct {
	msg         *sarama.ProducerMessage
	partitioned bool
}

type sentKey struct{}

// marshaler adds the key to the result of Watermill's own marshaler.
type marshaler struct{ kafka.DefaultMarshaler }

// Marshal implements kafka.Marshaler.
func (m marshaler) Marshal(topic string, msg *message.Message) (*sarama.ProducerMessage, error) {
	km, err := m.DefaultMarshaler.Marshal(topic, msg)
	if err != nil {
		return nil, core.Permanent(err)
	}
	if key := msg.Metadata[core.HeaderPartitionKey]; key != "" {
		km.Key = sarama.StringEncoder(key)
	}
	if s, ok := msg.Context().Value(sentKey{}).(*sent); ok {
		km.Metadata, s.msg = s, km
		km.Offset = -1 // the broker sets the offset, but not for a copy that it recognises
	}
	return km, nil
}

func receipt(msg *message.Message) string {
	s, ok := msg.Context().Value(sentKey{}).(*sent)
	if !ok || s.msg == nil || s.msg.Offset < 0 {
		return ""
	}
	return fmt.Sprintf("%s/%d@%d", s.msg.Topic, s.msg.Partition, s.msg.Offset)
}

// publisher is a message.Publisher that marks errors.
type publisher struct {
	together *producer
	// alone sends the messages of a refused batch again, each as a batch of its own. single, of
	// capacity 1, is held by the message on its way.
	alone  *producer
	single chan struct{}

	mu         sync.Mutex
	leaderless map[partition]bool
}

type partition struct {
	topic string
	n     int32
}

// Publish implements message.Publisher.
func (k *publisher) Publish(topic string, msgs ...*message.Message) error {
	for _, msg := range msgs {
		s, ok := msg.Context().Value(sentKey{}).(*sent)
		if !ok {
			s = &sent{}
			msg.SetContext(context.WithValue(msg.Context(), sentKey{}, s))
		}
		err := send(k.together, topic, msg, s)
		if ofBatch(err) && msg.Context().Err() == nil {
			err = k.sendAlone(topic, msg, s)
		}
		if err = k.judge(err, s); err != nil {
			return err
		}
	}
	return nil
}

// send sends a message. s becomes its result.
func send(by *producer, topic string, msg *message.Message, s *sent) error {
	*s = sent{} // it may have been sent before: by a decorator, or in a batch that was refused
	pub, err := by.Connected(msg.Context())
	if err != nil {
		return err
	}
	return pub.Publish(topic, msg)
}

// sendAlone sends a message again as a batch of its own. Kafka's answer then concerns this message.
func (k *publisher) sendAlone(topic string, msg *message.Message, s *sent) error {
	ctx := msg.Context()
	select {
	case k.single <- struct{}{}:
		defer func() { <-k.single }()
	case <-ctx.Done():
		return fmt.Errorf("kafkabridge: send again alone after a batch was refused: %w", ctx.Err())
	}
	return send(k.alone, topic, msg, s)
}

// judge marks err with its class. Sarama's breaker hides why a message failed. If the breaker of a
// partition opened because the partition has no leader, only that partition is unavailable.
func (k *publisher) judge(err error, s *sent) error {
	if errors.Is(err, breaker.ErrBreakerOpen) {
		err = fmt.Errorf("%w: %w", err, k.WaitsFor())
	}
	if s.msg == nil || !s.partitioned {
		return mark(err)
	}
	where := partition{s.msg.Topic, s.msg.Partition}
	k.mu.Lock()
	defer k.mu.Unlock()
	if errors.Is(err, breaker.ErrBreakerOpen) && k.leaderless[where] {
		return core.UnavailableForKey(err)
	}
	err = mark(err)
	if class, _ := core.ClassOf(err); class == core.ClassKeyUnavailable {
		k.leaderless[where] = true
	} else {
		delete(k.leaderless, where)
	}
	return err
}

// WaitsFor returns the reason why a publish has no answer yet.
func (k *publisher) WaitsFor() error { return k.together.WaitsFor() }

// Close implements message.Publisher.
func (k *publisher) Close() error { return errors.Join(k.together.Close(), k.alone.Close()) }
