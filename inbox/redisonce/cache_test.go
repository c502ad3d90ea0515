package redisonce_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/inbox/redisonce"
)

// An error of Redis is a miss and is counted. During the pause after it, Redis is not asked.
func TestCacheErrorsAreMisses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		c, err := redisonce.NewCache(fake(func(context.Context, redis.Cmder) error {
			calls++
			return errDown
		}).client(t), redisonce.CacheConfig{Pause: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if seen, err := c.Seen(t.Context(), "k"); seen || !errors.Is(err, errDown) {
			t.Errorf("%t, %v", seen, err)
		}
		for range 3 {
			if seen, err := c.Seen(t.Context(), "k"); seen || err == nil {
				t.Errorf("in the pause: %t, %v", seen, err)
			}
			if err := c.Remember(t.Context(), "k"); err == nil {
				t.Error("remembered in the pause")
			}
		}
		if calls != 1 {
			t.Errorf("%d calls", calls)
		}
		time.Sleep(time.Second)
		if err := c.Remember(t.Context(), "k"); !errors.Is(err, errDown) || calls != 2 {
			t.Errorf("after the pause: %v, %d calls", err, calls)
		}
		if got, want := c.Stats(), (redisonce.CacheStats{Misses: 4, Errors: 2}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// A Redis that hangs costs no more than the timeout. The end of the caller's context does not count
// as an error of Redis.
func TestCacheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		c, err := redisonce.NewCache(fake(func(context.Context, redis.Cmder) error {
			<-hang
			return errDown
		}).client(t), redisonce.CacheConfig{Timeout: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Seen(ctx, "k"); !errors.Is(err, context.Canceled) || c.Stats().Errors != 0 {
			t.Errorf("%v, %+v", err, c.Stats())
		}
		start := time.Now()
		if err := c.Remember(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(start) != 20*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		if c.Stats().Errors != 1 {
			t.Errorf("%+v", c.Stats())
		}
		close(hang)
	})
}

func TestCacheKeepsKeysApart(t *testing.T) {
	seen := map[string]string{}
	var name string
	c, err := redisonce.NewCache(fake(func(_ context.Context, cmd redis.Cmder) error {
		name = fmt.Sprint(cmd.Args()[1])
		return nil
	}).client(t), redisonce.CacheConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "A", "{a}", "%7Ba%7D", "%257Ba%257D", "", "{}", "%"} {
		if _, err := c.Seen(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if before, ok := seen[name]; ok {
			t.Errorf("%q and %q are both %s", before, key, name)
		}
		seen[name] = key
	}
}
