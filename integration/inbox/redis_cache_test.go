package inbox_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/inbox/redisonce"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

var _ coreinbox.Cache = (*redisonce.Cache)(nil)

// countingTransactor counts the transactions that are opened.
type countingTransactor struct {
	core.Transactor
	opened *atomic.Int64
}

func (c countingTransactor) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	c.opened.Add(1)
	return c.Transactor.RunInTx(ctx, fn)
}

// Redis is a cache in front of the table, and a duplicate that it knows costs no transaction. The
// cache never decides that a message is new: the table knows the ids that the cache has forgotten.
// A failed message is not in the cache. Without Redis the inbox goes on.
func TestRedisCacheInFrontOfTheInbox(t *testing.T) {
	t.Parallel()
	client, prefix := fixture.RedisClient(t)
	cacheKey := once.Key{Scope: once.Scope("inbox", "billing", "handler"), ID: "e"}.String()
	newCache := func(t *testing.T, cfg redisonce.CacheConfig) *redisonce.Cache {
		t.Helper()
		c, err := redisonce.NewCache(client, cfg)
		fixture.NoError(t, err)
		return c
	}
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		prefix := prefix + w.db.Name + ":"
		var opened atomic.Int64
		var cache *redisonce.Cache
		process := func(cfg *coreinbox.Config) {
			cfg.Transactor = countingTransactor{cfg.Transactor, &opened}
			cfg.Handler = "handler"
			cfg.Cache = cache
		}
		deliver := func(in *wired, h message.HandlerFunc, id string, transactions int64, want error) {
			t.Helper()
			opened.Store(0)
			if _, err := in.Middleware(h)(inboxMessage(id)); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			if got := opened.Load(); got != transactions {
				t.Errorf("%d transactions, want %d", got, transactions)
			}
		}
		cache = newCache(t, redisonce.CacheConfig{Prefix: prefix, TTL: time.Minute, Timeout: 10 * time.Second})
		in := w.another(process)
		errHandler := errors.New("out of stock")

		deliver(in, func(*message.Message) ([]*message.Message, error) { return nil, errHandler }, "e", 1, errHandler)
		deliver(in, w.handler, "e", 1, nil) // the failure is not in the cache
		deliver(in, w.handler, "e", 0, nil)
		deliver(in, w.handler, "e", 0, nil)
		name := prefix + "{" + cacheKey + "}"
		if ttl := client.PTTL(t.Context(), name).Val(); ttl <= 0 || ttl > time.Minute {
			t.Errorf("time to live %s", ttl)
		}
		if n := client.Del(t.Context(), name).Val(); n != 1 {
			t.Errorf("%d entries evicted", n)
		}
		deliver(in, w.handler, "e", 1, nil) // the table knows the id
		if got, want := cache.Stats(), (redisonce.CacheStats{Hits: 2, Misses: 3}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		w.wantEffects(map[string]int{"e handled": 1})

		// A caller that deletes a row, to have its event processed again, has to tell the cache.
		deliver(in, w.handler, "e", 0, nil)
		fixture.MustExec(t, w.pool, "DELETE FROM inbox_seen")
		deliver(in, w.handler, "e", 0, nil)
		fixture.NoError(t, cache.Forget(t.Context(), cacheKey))
		deliver(in, w.handler, "e", 1, nil)
		w.wantEffects(map[string]int{"e handled": 2})

		// While Redis is down, one call fails, and then the cache does not call it for a while.
		away := fixture.RedisAt(t, "redis://"+client.Options().Addr)
		fixture.NoError(t, away.Close())
		var err error
		cache, err = redisonce.NewCache(away, redisonce.CacheConfig{Prefix: prefix, Pause: time.Hour})
		fixture.NoError(t, err)
		in = w.another(process)
		for range 2 {
			deliver(in, w.handler, "f", 1, nil)
		}
		if got, want := cache.Stats(), (redisonce.CacheStats{Misses: 2, Errors: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		w.wantEffects(map[string]int{"e handled": 2, "f handled": 1})
	})
}
