package redisonce

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// CacheConfig says how a Cache uses Redis. Its zero value is documented defaults.
type CacheConfig struct {
	// Prefix of every name in Redis, as in Config. Default: "seen:".
	Prefix string
	// TTL is how long an entry is kept. It must be shorter than the retention of the table.
	// Default: 1 h.
	TTL time.Duration
	// Timeout of one call. Default: 50 ms.
	Timeout time.Duration
	// Pause is how long the Cache leaves Redis alone after an error, so that one that is down does
	// not slow everybody. Default: 1 s.
	Pause time.Duration
}

func (c CacheConfig) withDefaults() CacheConfig {
	if c.Prefix == "" {
		c.Prefix = "seen:"
	}
	if c.TTL == 0 {
		c.TTL = time.Hour
	}
	if c.Timeout == 0 {
		c.Timeout = 50 * time.Millisecond
	}
	if c.Pause == 0 {
		c.Pause = time.Second
	}
	return c
}

// Validate reports every problem of c at once. NewCache calls it.
func (c CacheConfig) Validate() error {
	c = c.withDefaults()
	var problems []error
	if p := prefixProblem(c.Prefix); p != "" {
		problems = append(problems, fmt.Errorf("redisonce: cache config: Prefix %q %s", c.Prefix, p))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"TTL", c.TTL}, {"Timeout", c.Timeout}, {"Pause", c.Pause}} {
		if d.value < time.Millisecond {
			problems = append(problems, fmt.Errorf("redisonce: cache config: %s %s is less than 1ms", d.name, d.value))
		}
	}
	return errors.Join(problems...)
}

// Cache remembers what the table of an inbox has recorded as processed, so that a duplicate costs
// no transaction: it is the Cache of inbox.Config. The table decides: only what has committed is
// remembered, and a key that the Cache does not know may be new or not. So an evicted or lost entry
// costs one look at the table, nothing else.
//
// An entry outlives its row when a person deletes that, or when the database is restored to an
// earlier moment or loses commits in a failover: call Forget, or start with another Prefix. Until
// then such an event would be passed over.
//
// Make one with NewCache; it is safe for use by several goroutines and does not close the client.
type Cache struct {
	client redis.UniversalClient
	cfg    CacheConfig
	until  atomic.Int64 // of the pause after an error, in ns since 1970

	hits, misses, errors atomic.Uint64
}

var _ inbox.Cache = (*Cache)(nil)

// NewCache returns a Cache, or every problem of cfg at once. Any client will do, a Ring too.
func NewCache(client redis.UniversalClient, cfg CacheConfig) (*Cache, error) {
	if client == nil {
		return nil, errors.New("redisonce: client is nil")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Cache{client: client, cfg: cfg.withDefaults()}, nil
}

// Seen tells whether Remember was called for key. False says nothing: ask the table.
func (c *Cache) Seen(ctx context.Context, key string) (bool, error) {
	n, err := c.do(ctx, "seen",
		func(ctx context.Context) (int64, error) { return c.client.Exists(ctx, c.name(key)).Result() })
	if err != nil || n == 0 {
		c.misses.Add(1)
		return false, err
	}
	c.hits.Add(1)
	return true, nil
}

// Remember notes that the work of key is done and committed. It does so also when the context of
// the message has ended.
func (c *Cache) Remember(ctx context.Context, key string) error {
	_, err := c.do(context.WithoutCancel(ctx), "remember", func(ctx context.Context) (int64, error) {
		return 0, c.client.Set(ctx, c.name(key), 1, c.cfg.TTL).Err()
	})
	return err
}

// Forget drops entries, for a person who wants events to be processed again. It waits for as long
// as ctx and the client allow.
func (c *Cache) Forget(ctx context.Context, keys ...string) error {
	for _, k := range keys {
		_, err := await(ctx, func() (int64, error) { return c.client.Del(ctx, c.name(k)).Result() }, nil)
		if err != nil {
			return fmt.Errorf("redisonce: forget %s: %w", k, err)
		}
	}
	return nil
}

// CacheStats counts since NewCache.
type CacheStats struct {
	Hits   uint64 // keys that were seen
	Misses uint64 // keys that were not, or could not be asked for
	Errors uint64 // calls that failed; those refused in the pause after one are not counted
}

// Stats returns the counters.
func (c *Cache) Stats() CacheStats {
	return CacheStats{Hits: c.hits.Load(), Misses: c.misses.Load(), Errors: c.errors.Load()}
}

var errPause = errors.New("redisonce: the cache leaves Redis alone for a while after an error")

// do asks within the timeout, unless there was an error just now.
func (c *Cache) do(ctx context.Context, what string, fn func(ctx context.Context) (int64, error)) (int64, error) {
	if time.Now().UnixNano() < c.until.Load() {
		return 0, errPause
	}
	callCtx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	n, err := await(callCtx, func() (int64, error) { return fn(callCtx) }, nil)
	if err == nil {
		return n, nil
	}
	if ctx.Err() == nil { // the caller's end says nothing about Redis
		c.errors.Add(1)
		c.until.Store(time.Now().Add(c.cfg.Pause).UnixNano())
	}
	return 0, fmt.Errorf("redisonce: %s: %w", what, err)
}

// cacheEscaper keeps any two texts apart.
var cacheEscaper = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

func (c *Cache) name(key string) string { return c.cfg.Prefix + "{" + cacheEscaper.Replace(key) + "}" }
