package inbox_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
)

// cache is a Cache that can fail.
type cache struct {
	mu   sync.Mutex
	keys map[string]bool
	err  error
}

func (c *cache) Seen(_ context.Context, key string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys[key], c.err
}

func (c *cache) Remember(_ context.Context, key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys[key] = true
	return c.err
}

func (c *cache) Forget(_ context.Context, keys ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		delete(c.keys, key)
	}
	return c.err
}

// A cache saves work but decides nothing: an event that it has forgotten is still a duplicate.
func TestCache(t *testing.T) {
	c := &cache{keys: map[string]bool{}}
	hits, misses := 0, 0
	w := newWorld(t, func(cfg *coreinbox.Config) {
		cfg.Cache = c
		cfg.Observer.Cached = func(_ coreinbox.Info, hit bool) {
			if hit {
				hits++
			} else {
				misses++
			}
		}
	})
	h, _ := w.times(1, errHandler)
	for n, want := range []struct{ hits, misses int }{{0, 1}, {0, 2}, {1, 2}} {
		_ = w.deliver(h, event(t.Context(), "e"))
		if hits != want.hits || misses != want.misses {
			t.Errorf("delivery %d: %d hits, %d misses, want %+v", n, hits, misses, want)
		}
	}
	clear(c.keys)
	if err := w.deliver(h, event(t.Context(), "e")); err != nil || !c.keys["inbox/billing/handler||e"] {
		t.Errorf("%v, cache %v", err, c.keys)
	}
	c.err = errors.New("redis is away")
	for range 2 {
		noError(t, w.deliver(w.handler, event(t.Context(), "f")))
	}
	w.effect("e", 1)
	w.effect("f", 1)
	w.hears("duplicate", 3)
}
