package redisonce_test

import (
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/inbox/redisonce"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// A key whose holder died is forgotten after its lease and its time to live. Redis would fill up
// otherwise.
func TestRedisHeldKeyExpires(t *testing.T) {
	t.Parallel()
	client, prefix := fixture.RedisClient(t)
	s := newRedisStore(t, client, redisonce.Config{Prefix: prefix})
	key := once.Key{Scope: "orders", ID: "1"}
	const lease, ttl = time.Hour, 24 * time.Hour
	got, err := s.Acquire(t.Context(), once.Request{Key: key, Owner: "a", Lease: lease, TTL: ttl})
	fixture.NoError(t, err)
	fixture.Must(t, got.State == once.Fresh, "a new key is %s", got.State)
	left, err := client.PTTL(t.Context(), s.Name(key)).Result()
	fixture.NoError(t, err)
	fixture.Check(t, left > lease && left <= lease+ttl, "the key expires after %s, want at most %s", left, lease+ttl)
}
