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

// The suite of the lease form over Redis. Leases that ended are remembered; keys whose time to live is over are not.
func TestRedisOnceStoreSuite(t *testing.T) {
	outboxtest.TestOnceStore(t, outboxtest.OnceHarness{ForgetsExpired: true, New: func(t *testing.T) once.Store {
		client, prefix := redisClient(t)
		return newRedisStore(t, client, redisonce.Config{Prefix: prefix})
	}})
}
