package redisonce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// CacheConfig configures a Cache. The zero value has the documented defaults.
type CacheConfig struct {
	// Prefix of every name in Redis, as in Config. Default: "seen:".
	Prefix string
	// TTL is how long an entry is kept. It must be shorter than the retention of the table.
	// Default: 1 h.
	TTL time.Duration
	// Timeout of one call. Default: 50 ms.
	Timeout time.Duration
	// Pause is how long the Cache does not ask Redis after an error, so that an outage of Redis
	// does not slow every message. Default: 1 s.
	Pause time.Duration
}

func (c CacheConfig) withDefaults() CacheConfig {
	c.Prefix = cmp.Or(c.Prefix, "seen:")
	c.TTL = cmp.Or(c.TTL, time.Hour)
	c.Timeout = cmp.Or(c.Timeout, 50*time.Millisecond)
	c.Pause = cmp.Or(c.Pause, time.Second)
	return c
}

// Validate reports every problem of c at once. [NewCache] calls it.
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

// Cache remembers which events the table of an inbox has recorded as processed, so that a duplicate
// costs no transaction. It is the Cache of inbox.Config. The table decides: an event is added only
// after its commit, and an event without an entry may be new or not. So a lost entry costs only one
// query of the table.
//
// An entry outlives its row when a person deletes the row, or when the database is restored to an
// earlier moment or loses commits in a failover. Call Forget then, or start with another Prefix.
// Until then, at most for the TTL, the event of that entry counts as processed.
//
// Make one with [NewCache]; it is safe for use by several goroutines and does not close the client.
type Cache struct {
	client redis.UniversalClient
	cfg    CacheConfig
	until  atomic.Int64 // end of the pause after an error, in ns since 1970

	hits, misses, errors atomic.Uint64
}

var _ inbox.Cache = (*Cache)(nil)

// NewCache returns a Cache, or every problem of cfg at once. It works with any client, also with a
// Ring.
func NewCache(client redis.UniversalClient, cfg CacheConfig) (*Cache, error) {
	if client == nil {
		return nil, errors.New("redisonce: client is nil")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Cache{client: client, cfg: cfg.withDefaults()}, nil
}

// Seen reports whether Remember was called for key. After false, ask the table.
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

// Remember notes that the work of key is done and committed. It also does so when the context of
// the message has ended.
func (c *Cache) Remember(ctx context.Context, key string) error {
	_, err := c.do(context.WithoutCancel(ctx), "remember", func(ctx context.Context) (int64, error) {
		return 0, c.client.Set(ctx, c.name(key), 1, c.cfg.TTL).Err()
	})
	return err
}

// Forget deletes entries. Redrive of an inbox calls it. Call it yourself after you have deleted
// rows to have their events processed again. It waits for as long as ctx and the client allow.
func (c *Cache) Forget(ctx context.Context, keys ...string) error {
	for _, k := range keys {
		_, err := await(ctx, func() (int64, error) { return c.client.Del(ctx, c.name(k)).Result() }, nil)
		if err != nil {
			return fmt.Errorf("redisonce: forget %s: %w", k, err)
		}
	}
	return nil
}

// CacheStats has the counts since [NewCache].
type CacheStats struct {
	Hits   uint64 // keys that were seen
	Misses uint64 // keys that were not seen, or could not be asked for
	Errors uint64 // calls that failed, without calls refused in the pause
}

// Stats returns the counters.
func (c *Cache) Stats() CacheStats {
	return CacheStats{Hits: c.hits.Load(), Misses: c.misses.Load(), Errors: c.errors.Load()}
}

var errPause = errors.New("redisonce: the cache leaves Redis alone for a while after an error")

// do calls Redis within the timeout, unless the pause after an error lasts.
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
	if ctx.Err() == nil { // if the caller's context has ended, Redis is not at fault
		c.errors.Add(1)
		c.until.Store(time.Now().Add(c.cfg.Pause).UnixNano())
	}
	return 0, fmt.Errorf("redisonce: %s: %w", what, err)
}

// cacheEscaper gives different texts different names.
var cacheEscaper = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

func (c *Cache) name(key string) string { return c.cfg.Prefix + "{" + cacheEscaper.Replace(key) + "}" }

// ExpiringKeys is an ExpiringKeyRepository for Watermill's middleware Deduplicator, in Redis, so
// that all processes share it.
//
// The Deduplicator marks a message as seen before it is handled. If the handler then fails, or its
// process dies, the redelivery counts as a duplicate and is dropped: the message is lost. Use it
// where a lost message costs less than a repeated one, for example in front of a publisher.
// Middleware of this package loses no message.
//
// Make one with [NewExpiringKeys]; it is safe for use by several goroutines.
type ExpiringKeys struct {
	client redis.UniversalClient
	window time.Duration
	prefix string
}

// NewExpiringKeys returns an ExpiringKeys that remembers a key for window, at least 1 ms. A copy of
// a message that comes after the window is processed again. prefix is the beginning of every name
// in Redis, as in Config. Default: "recent:".
func NewExpiringKeys(client redis.UniversalClient, window time.Duration, prefix string) (*ExpiringKeys, error) {
	prefix = cmp.Or(prefix, "recent:")
	var problems []error
	if client == nil {
		problems = append(problems, errors.New("redisonce: client is nil"))
	}
	if window < time.Millisecond {
		problems = append(problems, fmt.Errorf("redisonce: expiring keys: window %s is less than 1ms", window))
	}
	if p := prefixProblem(prefix); p != "" {
		problems = append(problems, fmt.Errorf("redisonce: expiring keys: prefix %q %s", prefix, p))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return &ExpiringKeys{client: client, window: window, prefix: prefix}, nil
}

// IsDuplicate reports whether key was asked for within the window, and remembers the key if not, by
// SET NX. When Redis does not answer, it returns an error, and the Deduplicator rejects the
// message. If only the answer is lost, and the client repeats the command or the broker the
// message, the key is a duplicate although its message was not handled.
func (e *ExpiringKeys) IsDuplicate(ctx context.Context, key string) (bool, error) {
	name := e.prefix + "{" + cacheEscaper.Replace(key) + "}"
	err := e.client.SetArgs(ctx, name, 1, redis.SetArgs{Mode: "NX", TTL: e.window}).Err()
	if errors.Is(err, redis.Nil) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("redisonce: expiring key: %w", err)
	}
	return false, nil
}
