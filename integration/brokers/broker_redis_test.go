package brokers_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge"
)

// redisBroker is Redis: a topic is a stream.
type redisBroker struct{ url string }

func (r redisBroker) topic(t *testing.T) string {
	t.Helper()
	name, client := "it-"+core.NewEventID(), topics.RedisAt(t, r.url)
	t.Cleanup(func() { client.Del(context.Background(), name) })
	return name
}

func (r redisBroker) again(t *testing.T, topic string) {
	t.Helper()
	fixture.NoError(t, topics.RedisAt(t, r.url).Del(t.Context(), topic).Err())
}

func (r redisBroker) publisher(t *testing.T, _ time.Duration) publisher {
	t.Helper()
	return topics.RedisPublisher(t, r.url, redisbridge.Config{})
}

func (r redisBroker) through(t *testing.T, timeout time.Duration) (publisher, suite.Link) {
	t.Helper()
	url, proxy := proxied(t, r.url)
	return redisBroker{url}.publisher(t, timeout), proxy
}

// refusal is a topic whose key in Redis is no stream.
func (r redisBroker) refusal(t *testing.T) suite.Refusal {
	t.Helper()
	topic, client := r.topic(t), topics.RedisAt(t, r.url)
	fixture.NoError(t, client.Set(t.Context(), topic, "text", 0).Err())
	return suite.Refusal{Publisher: r.publisher(t, 0), Topic: topic, Cure: func() {
		if err := client.Del(t.Context(), topic).Err(); err != nil {
			t.Error(err)
		}
	}}
}

func (r redisBroker) held(t *testing.T, topic string) (all []heldMessage) {
	t.Helper()
	entries, err := topics.RedisAt(t, r.url).XRange(t.Context(), topic, "-", "+").Result()
	fixture.NoError(t, err)
	for _, e := range entries {
		msg, err := redisstream.DefaultMarshallerUnmarshaller{}.Unmarshal(e.Values)
		fixture.NoError(t, err)
		all = append(all, heldMessage{msg, topic + "@" + e.ID})
	}
	return all
}
