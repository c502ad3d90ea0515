package redisonce_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/inbox/redisonce"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// A new message costs two round trips, a duplicate costs one, and a message in the cache costs one.
func BenchmarkRedisOnce(b *testing.B) {
	client, prefix := fixture.RedisClient(b)
	r := redisRunner(b, newRedisStore(b, client, redisonce.Config{Prefix: prefix}), time.Minute, nil)
	cache, err := redisonce.NewCache(client, redisonce.CacheConfig{Prefix: prefix, Timeout: time.Minute})
	fixture.NoError(b, err)
	do := func(b *testing.B, id string, want bool) {
		b.Helper()
		_, replayed, err := r.Do(context.Background(), once.Key{Scope: "bench", ID: id}, once.Fingerprint{},
			nothingOnce)
		if err != nil || replayed != want {
			b.Fatal(replayed, err)
		}
	}
	n := 0
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			do(b, strconv.Itoa(n), false)
			n++
		}
	})
	do(b, "known", false)
	b.Run("duplicate", func(b *testing.B) {
		for b.Loop() {
			do(b, "known", true)
		}
	})
	fixture.NoError(b, cache.Remember(context.Background(), "known"))
	b.Run("cache", func(b *testing.B) {
		for b.Loop() {
			if seen, err := cache.Seen(context.Background(), "known"); err != nil || !seen {
				b.Fatal(seen, err)
			}
		}
	})
}
