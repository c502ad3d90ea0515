package redisonce

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// ErrReplicas: fewer replicas than Config.WaitReplicas acknowledged in time. An Acquire has given
// the key back. The primary knows the mark of a Complete, which may be repeated.
var ErrReplicas = errors.New("redisonce: too few replicas acknowledged")

// Store keeps keys in Redis 5 or newer: a single server, Sentinel, or Cluster. It implements
// once.Store; create it with New. It is safe for use by several goroutines. It does not close the
// client.
//
// Each key of package once is one hash in Redis. Redis itself deletes the hash when its time to
// live is over. All times are those of the server.
type Store struct {
	client redis.UniversalClient
	cfg    Config
}

var _ once.AttemptStore = (*Store)(nil)

// New returns a Store, or every problem of cfg at once. It asks the server for its eviction policy
// and its persistence, for at most two seconds. If the server may evict keys, or does not say, or
// writes no append-only file, New logs a warning. It does not fail because of the server: call
// Check for that.
func New(client redis.UniversalClient, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(cfg.Validate(), cfg.checkClient(client)); err != nil {
		return nil, err
	}
	s := &Store{client: client, cfg: cfg}
	s.warnOfLoss()
	return s, nil
}

// Cleanup implements once.Store. It has nothing to do, because Redis deletes keys by itself.
func (s *Store) Cleanup(context.Context, int) (deleted int, err error) { return 0, nil }

var tagEscaper = strings.NewReplacer("{", "%7B", "}", "%7D")

// Name returns the name of key in Redis, to look at it: HGETALL shows which process holds the key.
// The part in braces alone decides about the node of a cluster, and has no brace of its own.
func (s *Store) Name(key once.Key) string {
	return s.cfg.Prefix + "{" + tagEscaper.Replace(key.String()) + "}"
}

// run runs a script for one key. It returns when ctx ends, or when the client gives up. confirm
// waits for replicas. late, unless nil, gets an answer that came after ctx had ended.
func (s *Store) run(ctx context.Context, script *redis.Script, key once.Key, confirm bool, late func(reply),
	args ...any,
) (reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	ask := s.ask
	if confirm && s.cfg.WaitReplicas > 0 {
		ask = s.askReplicas
	}
	name := s.Name(key)
	return await(ctx, func() (reply, error) { return ask(ctx, script, name, args) }, late)
}

func (s *Store) ask(ctx context.Context, script *redis.Script, name string, args []any) (reply, error) {
	return script.Run(ctx, s.client, []string{name}, args...).Slice()
}

// await returns what fn returns, or the cause of ctx when that ends first. By default the client
// looks at a context only before it sends a command, and not while it waits for the answer. Without
// await a heartbeat could outlast its lease.
func await[T any](ctx context.Context, fn func() (T, error), late func(T)) (T, error) {
	if ctx.Done() == nil {
		return fn()
	}
	type outcome struct {
		value T
		err   error
	}
	answer := make(chan outcome)
	go func() { // ends when the client gives up, after its own timeouts
		v, err := fn()
		select {
		case answer <- outcome{v, err}:
		case <-ctx.Done():
			if late != nil && err == nil {
				late(v)
			}
		}
	}()
	select {
	case got := <-answer:
		return got.value, got.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// giveBack releases a claim that no caller will use, and restores the attempts before it, because
// an outage must not spend attempts. If it fails, the lease ends by itself.
func (s *Store) giveBack(c once.Claim, attempts int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.ReleaseAttempts(ctx, c, max(attempts, 0))
}

func wrap(what string, key once.Key, err error) error {
	return fmt.Errorf("redisonce: %s %s: %w", what, key, err)
}
