package redisonce_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/inbox/redisonce"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

func newRedisStore(t testing.TB, client redis.UniversalClient, cfg redisonce.Config) *redisonce.Store {
	t.Helper()
	s, err := redisonce.New(client, cfg)
	fixture.NoError(t, err)
	return s
}

func redisHarness(open func(t *testing.T) (client redis.UniversalClient, prefix string)) suite.OnceHarness {
	h := fixture.OnceHarness(func(t *testing.T) (once.Store, func(*testing.T, once.Key)) {
		client, prefix := open(t)
		s := newRedisStore(t, client, redisonce.Config{Prefix: prefix})
		return s, func(t *testing.T, key once.Key) {
			t.Helper()
			fixture.NoError(t, client.Del(t.Context(), s.Name(key)).Err())
		}
	})
	h.ForgetsExpired = true
	return h
}

// The suite of the lease form over Redis. Redis keeps keys whose lease has ended, but not keys
// whose time to live is over.
func TestRedisOnceStoreSuite(t *testing.T) {
	t.Parallel()
	suite.TestOnceStore(t, redisHarness(func(t *testing.T) (redis.UniversalClient, string) {
		t.Helper()
		client, prefix := fixture.RedisClient(t)
		return client, prefix
	}))
}

// The suite also passes with a client that sends each command twice, like a client whose connection
// breaks before it has read the answer.
func TestRedisOnceStoreSuiteTwice(t *testing.T) {
	t.Parallel()
	suite.TestOnceStore(t, redisHarness(func(t *testing.T) (redis.UniversalClient, string) {
		t.Helper()
		client, prefix := fixture.RedisClient(t)
		client.AddHook(twice{})
		return client, prefix
	}))
}

// twice sends each script twice and keeps the second answer. Release is the exception: another
// holder may have the key by then, and the second answer must be that the claim is lost.
type twice struct{}

func (twice) DialHook(next redis.DialHook) redis.DialHook { return next }

func (twice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if release := len(cmd.Args()) == 7; !release { // EVALSHA, digest, 1, name, owner, fence, attempts
			_ = next(ctx, cmd)
		}
		return next(ctx, cmd)
	}
}

func (twice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
