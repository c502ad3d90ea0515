package redisonce

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// Extend implements once.Store.
func (s *Store) Extend(ctx context.Context, c once.Claim, lease time.Duration) error {
	if err := once.CheckLease(lease); err != nil {
		return err
	}
	return s.change(ctx, "extend", extendScript, c, true, micros(lease), millis(once.ForgottenTTL))
}

// Complete implements once.Store.
func (s *Store) Complete(ctx context.Context, c once.Claim, res once.Result, ttl time.Duration) error {
	if err := once.CheckTTL(ttl); err != nil {
		return err
	}
	return s.change(ctx, "complete", completeScript, c, true, millis(ttl), res.Data, res.ContentType, res.Meta)
}

// Release implements once.Store. It does not wait for replicas: a replica that misses the release
// keeps the key until the lease ends.
func (s *Store) Release(ctx context.Context, c once.Claim) error {
	return s.change(ctx, "release", releaseScript, c, false)
}

// ReleaseAttempts implements once.AttemptStore.
func (s *Store) ReleaseAttempts(ctx context.Context, c once.Claim, attempts int) error {
	return s.change(ctx, "release", releaseScript, c, false, attempts)
}

// change runs a script that needs the claim. A claim of Config.FailOpen has no entry in Redis, so
// there is nothing to change.
func (s *Store) change(ctx context.Context, what string, script *redis.Script, c once.Claim, confirm bool,
	args ...any,
) error {
	if c.Fence == 0 && s.cfg.FailOpen != nil {
		return nil
	}
	r, err := s.run(ctx, script, c.Key, confirm, nil, append([]any{c.Owner, c.Fence}, args...)...)
	if err != nil {
		return wrap(what, c.Key, err)
	}
	switch r.word() {
	case "ok":
		return nil
	case "done":
		return wrap(what, c.Key, once.ErrAlreadyDone)
	case "lost":
		return wrap(what, c.Key, once.ErrLeaseLost)
	}
	return wrap(what, c.Key, r.unknown())
}
