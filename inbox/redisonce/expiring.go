package redisonce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// ExpiringKeys is an ExpiringKeyRepository for Watermill's middleware Deduplicator, in Redis, so
// that all processes share it.
//
// The Deduplicator marks a message as seen before it is handled. If the handler then fails, or its
// process dies, the redelivery counts as a duplicate and is dropped: the message is lost. Use it
// where a lost message costs less than a repeated one, for example in front of a publisher.
// Middleware of this package loses no message.
//
// Make one with NewExpiringKeys; it is safe for use by several goroutines.
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
