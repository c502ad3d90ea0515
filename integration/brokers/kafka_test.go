package brokers_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// kafkaMessages subscribes to a topic from its beginning.
func kafkaMessages(t testing.TB, topic string) <-chan *message.Message {
	t.Helper()
	cfg := kafka.DefaultSaramaSubscriberConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: []string{topics.KafkaAddress(t)}, Unmarshaler: kafka.DefaultMarshaler{}, OverwriteSaramaConfig: cfg,
	}, watermill.NopLogger{})
	return subscribed(t, sub, err, topic)
}

// The partitions are those of the Java client, for a topic of 3 partitions.
func TestKafkaPartitionsLikeJava(t *testing.T) {
	t.Parallel()
	topic := topics.Kafka(t, "", 3, nil)
	p := topics.KafkaPublisher(t, kafkabridge.Config{})
	want := map[string]int32{
		"a": 1, "ab": 2, "abc": 0, "abcd": 2, "21": 0, "foobar": 0, "a-little-bit-longer-string": 2,
		"order/o-1": 0, "order/o-2": 1, "order/o-3": 1, "Grüße/ß": 1, "kunde-7": 1,
	}
	const withoutKey = 30
	for key := range want {
		fixture.NoError(t, publishWithin(t, p, brokerDelivery(t, topic, key), time.Minute))
	}
	for range withoutKey {
		fixture.NoError(t, publishWithin(t, p, brokerDelivery(t, topic, ""), time.Minute))
	}
	messages := kafkaMessages(t, topic)
	spread := map[int32]int{}
	for range len(want) + withoutKey {
		msg := receive(t, messages)
		key, hasKey := kafka.MessageKeyFromCtx(msg.Context())
		partition, _ := kafka.MessagePartitionFromCtx(msg.Context())
		switch {
		case len(key) == 0:
			fixture.Check(t, !hasKey || key == nil, "a missing key became an empty key")
			spread[partition]++
		case partition != want[string(key)]:
			t.Errorf("key %q is on partition %d, the Java client puts it on %d", key, partition, want[string(key)])
		}
	}
	fixture.Check(t, len(spread) == 3, "messages without a key are on %v, want all 3 partitions", spread)
}

func TestKafkaRefusesPermanently(t *testing.T) {
	t.Parallel()
	limit := "1024"
	topic := topics.Kafka(t, "", 1, map[string]*string{"max.message.bytes": &limit})
	p := topics.KafkaPublisher(t, kafkabridge.Config{})
	d := brokerDelivery(t, topic, "k")
	d.Payload = make([]byte, 4096)
	err := publishWithin(t, p, d, time.Minute)
	requireClass(t, err, core.ClassPermanent)
	fixture.Check(t, errors.Is(err, sarama.ErrMessageSizeTooLarge), "err = %v, want ErrMessageSizeTooLarge", err)
	requireClass(t, publishWithin(t, p, brokerDelivery(t, "no/topic name", "k"), time.Minute), core.ClassPermanent)
	if err := publishWithin(t, p, brokerDelivery(t, topic, "k"), time.Minute); err != nil {
		t.Errorf("the next message: %v", err)
	}
}

func TestKafkaTopicIsCreatedLater(t *testing.T) {
	t.Parallel()
	s := kafkabridge.SaramaConfig(0)
	s.Metadata.AllowAutoTopicCreation = false
	p := topics.KafkaPublisher(t, kafkabridge.Config{Sarama: s})
	topic := topics.KafkaName()
	err := publishWithin(t, p, brokerDelivery(t, topic, "k"), time.Minute)
	requireClass(t, err, core.ClassUnavailable)
	fixture.Check(t, errors.Is(err, sarama.ErrUnknownTopicOrPartition),
		"err = %v, want ErrUnknownTopicOrPartition", err)
	topics.Kafka(t, topic, 1, nil)
	fixture.Await(t, "a publish to the new topic", func() bool {
		return publishWithin(t, p, brokerDelivery(t, topic, "k"), time.Minute) == nil
	})
}

// kafkaThroughProxy returns a publisher whose connections all go through a proxy.
func kafkaThroughProxy(t *testing.T, timeout time.Duration,
	bridge watermillbridge.Config,
) (*watermillbridge.Publisher, *suite.Proxy) {
	t.Helper()
	proxy := suite.NewProxy(t, topics.KafkaAddress(t))
	s := kafkabridge.SaramaConfig(timeout)
	s.Net.Proxy.Enable, s.Net.Proxy.Dialer = true, proxy
	return topics.KafkaPublisher(t, kafkabridge.Config{Sarama: s, PublishTimeout: timeout, Bridge: bridge}), proxy
}

// If a broker hangs, a publish ends with its timeout. The messages that were on their way arrive
// when the broker goes on.
func TestKafkaHangs(t *testing.T) {
	t.Parallel()
	topic := topics.Kafka(t, "", 1, nil)
	const timeout = time.Minute // far longer than the two publishes below
	p, proxy := kafkaThroughProxy(t, timeout, watermillbridge.Config{MaxStuck: 2})
	fixture.NoError(t, publishWithin(t, p, brokerDelivery(t, topic, "before"), time.Minute))

	proxy.Freeze()
	began := time.Now()
	for range 2 {
		err := publishWithin(t, p, brokerDelivery(t, topic, "meanwhile"), 250*time.Millisecond)
		fixture.Check(t, errors.Is(err, watermillbridge.ErrNoAnswer) && errors.Is(err, context.DeadlineExceeded),
			"err = %v, want ErrNoAnswer and DeadlineExceeded", err)
		requireClass(t, err, core.ClassUnavailable) // no attempt is spent
	}
	if took := time.Since(began); took > timeout/2 {
		t.Errorf("two publishes with a deadline of 250 ms took %s", took)
	}
	err := publishWithin(t, p, brokerDelivery(t, topic, "meanwhile"), timeout)
	requireClass(t, err, core.ClassUnavailable)
	fixture.Check(t, errors.Is(err, watermillbridge.ErrStuck), "err = %v, want ErrStuck", err)

	proxy.Thaw()
	fixture.Await(t, "the calls return", func() bool { return p.Stuck() == 0 })
	fixture.Await(t, "a publish after the hang", func() bool {
		return publishWithin(t, p, brokerDelivery(t, topic, "after"), timeout) == nil
	})
}

// BenchmarkKafkaPublish publishes 500 bytes with 64 workers and distinct keys.
func BenchmarkKafkaPublish(b *testing.B) {
	topic := topics.Kafka(b, "", 6, nil)
	p := topics.KafkaPublisher(b, kafkabridge.Config{})
	fixture.NoError(b, publishWithin(b, p, brokerDelivery(b, topic, "first"), time.Minute))
	var n atomic.Int64
	b.SetParallelism(64 / 2)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		d := brokerDelivery(b, topic, fmt.Sprint("key-", n.Add(1)))
		d.Payload = make([]byte, 500)
		for pb.Next() {
			if err := publishWithin(b, p, d, time.Minute); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
