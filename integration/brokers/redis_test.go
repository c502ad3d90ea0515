package brokers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge"
)

// redisMessages subscribes with Watermill's subscriber.
func redisMessages(t testing.TB, topic string) <-chan *message.Message {
	t.Helper()
	sub, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: topics.RedisAt(t, topics.RedisURL(t)), ConsumerGroup: "billing",
	}, watermill.NopLogger{})
	return subscribed(t, sub, err, topic)
}

func TestRedisRoundTrip(t *testing.T) {
	t.Parallel()
	topic := topics.Redis(t)
	p := topics.RedisPublisher(t, topics.RedisURL(t), redisbridge.Config{})
	d := brokerDelivery(t, topic, "order/o-2")
	d.Headers["long"] = strings.Repeat("ö", 5000)
	for i := range 20 { // more names than a small map of MessagePack has
		d.Headers[fmt.Sprint("h", i)] = strings.Repeat("x", i*20)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	receipt, err := p.PublishWithReceipt(ctx, d)
	fixture.NoError(t, err)
	messages := redisMessages(t, topic)
	msg := receive(t, messages)
	requireDelivery(t, msg, d)
	fixture.Check(t, msg.UUID == d.ID, "UUID = %q, want the event's id", msg.UUID)
	entries, err := topics.RedisAt(t, topics.RedisURL(t)).XRange(ctx, topic, "-", "+").Result()
	fixture.Check(t, err == nil && len(entries) == 1 && receipt == topic+"@"+entries[0].ID,
		"receipt %q of %v, %v", receipt, entries, err)
	fixture.NoError(t, p.MessagePublisher(0).Publish(topic, message.NewMessage("plain", nil)))
	if msg := receive(t, messages); msg.UUID != "plain" || len(msg.Metadata) != 0 || len(msg.Payload) != 0 {
		t.Errorf("%+v", msg)
	}
}

func TestCloudEventsThroughRedis(t *testing.T) {
	t.Parallel()
	topic := topics.Redis(t)
	p := topics.RedisPublisher(t, topics.RedisURL(t), redisbridge.Config{Bridge: watermillbridge.Config{
		CloudEvents: &cloudevents.Mapper{Source: "/orders"},
	}})
	d := brokerDelivery(t, topic, "order/o-1")
	fixture.NoError(t, publishWithin(t, p, d, time.Minute))
	msg := receive(t, redisMessages(t, topic))
	requireCloudEvent(t, cloudevents.Kafka, cloudevents.Message{Headers: msg.Metadata, Body: msg.Payload}, d)
}

// The publisher refuses a server that evicts streams, until its settings are changed. It refuses a
// replica. After each failure it checks the server again.
func TestRedisServers(t *testing.T) {
	t.Parallel()
	server, replica := fixture.StartPrivate(t, "redis"), fixture.StartPrivate(t, "redis")
	client := topics.RedisAt(t, server.Address)
	set := func(name, value string) {
		t.Helper()
		fixture.NoError(t, client.ConfigSet(t.Context(), name, value).Err())
	}
	d := brokerDelivery(t, "orders", "k")
	var log bytes.Buffer
	p := topics.RedisPublisher(t, server.Address, redisbridge.Config{Bridge: watermillbridge.Config{
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}})
	set("maxmemory-policy", "allkeys-lru")
	err := publishWithin(t, p, d, time.Minute)
	fixture.Check(t, errors.Is(err, redisbridge.ErrUnsafeServer) && strings.Contains(err.Error(), "noeviction"),
		"err = %v, want ErrUnsafeServer", err)
	requireClass(t, err, core.ClassUnavailable)
	if err := redisbridge.Check(t.Context(), redisbridge.Config{Client: client}); !errors.Is(err,
		redisbridge.ErrUnsafeServer) {
		t.Errorf("Check: %v", err)
	}
	fixture.Check(t, client.Exists(t.Context(), "orders").Val() == 0, "an entry was written")
	allowed := topics.RedisPublisher(t, server.Address, redisbridge.Config{AllowUnsafeServer: true})
	publishOnce(t, allowed, brokerDelivery(t, "allowed", "k"), "")
	set("maxmemory-policy", "noeviction")
	publishOnce(t, p, d, "")
	if !strings.Contains(log.String(), "appendfsync=everysec") || strings.Count(log.String(), "level=WARN") != 1 {
		t.Errorf("warnings: %s", log.String())
	}

	// The replica that Config.Replicas waits for.
	host, port, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(server.Address, "redis://"), "/0"), ":")
	follower := topics.RedisAt(t, replica.Address)
	fixture.NoError(t, follower.Do(t.Context(), "replicaof", host, port).Err())
	fixture.Await(t, "the replica follows", func() bool {
		return strings.Contains(follower.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	waiting := topics.RedisPublisher(t, server.Address, redisbridge.Config{
		Replicas: 1, ReplicaTimeout: 500 * time.Millisecond,
	})
	publishUntil(t, waiting, brokerDelivery(t, "orders", "k"), "")
	if n, m := client.XLen(t.Context(), "orders").Val(), follower.XLen(t.Context(), "orders").Val(); n != m {
		t.Errorf("%d entries, %d on the replica", n, m)
	}
	err = publishWithin(t, topics.RedisPublisher(t, replica.Address, redisbridge.Config{}), d, time.Minute)
	fixture.Check(t, errors.Is(err, redisbridge.ErrUnsafeServer) && strings.Contains(err.Error(), "replica of "+host),
		"a replica: %v", err)
	replica.Kill(t)
	err = publishWithin(t, waiting, brokerDelivery(t, "orders", "k"), time.Minute)
	fixture.Check(t, errors.Is(err, redisbridge.ErrReplicas), "err = %v, want ErrReplicas", err)
	requireClass(t, err, core.ClassUnavailable)

	// After a failure the server is checked again: it may be another one.
	set("maxmemory-policy", "allkeys-lru")
	set("min-replicas-to-write", "1")
	publishOnce(t, p, d, "unavailable")
	set("min-replicas-to-write", "0")
	if err := publishWithin(t, p, d, time.Minute); !errors.Is(err, redisbridge.ErrUnsafeServer) {
		t.Errorf("after a failure: %v", err)
	}
}

// A server closes the connection when a value is too long for it. The event is dead at once, and
// the events behind it do not meet an outage.
func TestRedisLongValues(t *testing.T) {
	t.Parallel()
	server := fixture.StartPrivate(t, "redis")
	client := topics.RedisAt(t, server.Address)
	p := topics.RedisPublisher(t, server.Address, redisbridge.Config{})
	publishOnce(t, p, brokerDelivery(t, "orders", "k"), "")
	fixture.NoError(t, client.ConfigSet(t.Context(), "proto-max-bulk-len", "1mb").Err())
	d := brokerDelivery(t, "orders", "k")
	if d.Payload = make([]byte, 1<<20); publishWithin(t, p, d, time.Minute) != nil {
		t.Error("a value of the longest length is refused")
	}
	d.Payload = make([]byte, 5<<20)
	if publishWithin(t, p, d, time.Minute) == nil { // p may not know of the change yet
		t.Error("a value that is too long was published")
	}
	err := publishWithin(t, p, d, time.Minute)
	requireClass(t, err, core.ClassPermanent)
	if refused := p.CheckSize(d.Event); err == nil || refused == nil ||
		!strings.Contains(refused.Error(), "proto-max-bulk-len 1048576") {
		t.Errorf("%v, and when it is recorded %v", err, refused)
	}
	publishOnce(t, p, brokerDelivery(t, "orders", "k"), "")
}

// Old entries are deleted only if MaxLen is set.
func TestRedisTrims(t *testing.T) {
	t.Parallel()
	client := topics.RedisAt(t, topics.RedisURL(t))
	for limit, most := range map[int64]int64{0: 1000, 100: 300} {
		topic := topics.Redis(t)
		p := topics.RedisPublisher(t, topics.RedisURL(t), redisbridge.Config{MaxLen: limit})
		for range 1000 {
			fixture.NoError(t, publishWithin(t, p, brokerDelivery(t, topic, ""), time.Minute))
		}
		if n := client.XLen(t.Context(), topic).Val(); n > most || limit == 0 && n != 1000 || n < limit {
			t.Errorf("MaxLen %d: %d entries", limit, n)
		}
	}
}
