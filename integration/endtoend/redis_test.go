package endtoend_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge"
)

// redisBroker is Redis: a topic is a stream.
type redisBroker struct{ url string }

func (r redisBroker) publisher(t *testing.T) core.ReceiptPublisher {
	t.Helper()
	return topics.RedisPublisher(t, r.url, redisbridge.Config{})
}

func (r redisBroker) consume(t *testing.T, topic string) *consumer {
	t.Helper()
	client := topics.RedisAt(t, r.url)
	t.Cleanup(func() { client.Del(context.Background(), topic) })
	return startConsumer(t, func(ctx context.Context) (<-chan *message.Message, error) {
		out := make(chan *message.Message)
		go func() {
			defer close(out)
			for last := "0"; ctx.Err() == nil; {
				streams, err := client.XRead(ctx, &redis.XReadArgs{
					Streams: []string{topic, last}, Count: 100, Block: 100 * time.Millisecond,
				}).Result()
				if err != nil && !errors.Is(err, redis.Nil) { // the server is away
					select {
					case <-time.After(100 * time.Millisecond):
					case <-ctx.Done():
					}
				}
				for _, s := range streams {
					for _, e := range s.Messages {
						msg, err := redisstream.DefaultMarshallerUnmarshaller{}.Unmarshal(e.Values)
						if err != nil {
							msg = message.NewMessage("", nil) // the consumer will report a foreign message
						}
						select {
						case out <- placed(msg, topic+"@"+e.ID):
						case <-ctx.Done():
							return
						}
						last = e.ID
					}
				}
			}
		}()
		return out, nil
	})
}

func (r redisBroker) left(t *testing.T, topic string, c *consumer) (int, error) {
	t.Helper()
	n, err := topics.RedisAt(t, r.url).XLen(t.Context(), topic).Result()
	return int(n) - c.places(), err
}
