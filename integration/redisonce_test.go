package integration

import (
	"context"
	"crypto/rand"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/inbox/redisonce"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// redisAt returns a client of the server with that address.
func redisAt(t testing.TB, address string) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(address)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatalf("%s: %v (start the servers with `make services-up`)", address, err)
	}
	return client
}

// redisClient returns a client of the server of OUTBOX_TEST_REDIS and a prefix that nobody else has. What is under it is deleted when the test ends.
func redisClient(t testing.TB) (client *redis.Client, prefix string) {
	t.Helper()
	client = redisAt(t, testdb.Server(t, "OUTBOX_TEST_REDIS"))
	prefix = "test-" + rand.Text() + ":"
	t.Cleanup(func() {
		ctx := context.Background()
		for keys := client.Scan(ctx, 0, prefix+"*", 1000).Iterator(); keys.Next(ctx); {
			client.Del(ctx, keys.Val())
		}
	})
	return client, prefix
}

func newRedisStore(t testing.TB, client redis.UniversalClient, cfg redisonce.Config) *redisonce.Store {
	t.Helper()
	s, err := redisonce.New(client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func redisHarness(open func(t *testing.T) (client redis.UniversalClient, prefix string)) outboxtest.OnceHarness {
	h := onceHarness(func(t *testing.T) (once.Store, func(*testing.T, once.Key)) {
		client, prefix := open(t)
		s := newRedisStore(t, client, redisonce.Config{Prefix: prefix})
		return s, func(t *testing.T, key once.Key) {
			t.Helper()
			noError(t, client.Del(t.Context(), s.Name(key)).Err())
		}
	})
	h.ForgetsExpired = true
	return h
}

// The suite of the lease form over Redis. Leases that ended are remembered; keys whose time to live is over are not.
func TestRedisOnceStoreSuite(t *testing.T) {
	outboxtest.TestOnceStore(t, redisHarness(func(t *testing.T) (redis.UniversalClient, string) {
		t.Helper()
		client, prefix := redisClient(t)
		return client, prefix
	}))
}

// The same with a client that sends each command twice, as one does whose connection breaks before it has read the answer.
func TestRedisOnceStoreSuiteTwice(t *testing.T) {
	outboxtest.TestOnceStore(t, redisHarness(func(t *testing.T) (redis.UniversalClient, string) {
		t.Helper()
		client, prefix := redisClient(t)
		client.AddHook(twice{})
		return client, prefix
	}))
}

// twice sends each script twice and keeps the second answer. Not that of Release: another may hold the key by then, and the second answer is
// that the claim is lost, as it has to be.
type twice struct{}

func (twice) DialHook(next redis.DialHook) redis.DialHook { return next }
func (twice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if release := len(cmd.Args()) == 6; !release { // EVALSHA, digest, 1, name, owner, fence
			_ = next(ctx, cmd)
		}
		return next(ctx, cmd)
	}
}

func (twice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
