package redisonce

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// askReplicas is ask, and then waits until enough replicas have the writes of the script. With
// ErrReplicas it returns the answer too.
//
// WAIT counts only the writes of its own connection. So it is sent together with the script, also
// when the client repeats both on another connection. In a cluster it must go to the node of the
// key; sent alone, it could go to any node.
//
// A client of a cluster follows a moved slot, but not in a pipeline to one node. So askReplicas
// follows it: an answer MOVED or ASK has run nothing.
func (s *Store) askReplicas(ctx context.Context, script *redis.Script, name string, args []any) (reply, error) {
	const moves = 5
	for n, pause := 1, 50*time.Millisecond; ; n, pause = n+1, 2*pause {
		r, err := s.askNode(ctx, script, name, args)
		if n == moves || !redis.HasErrorPrefix(err, "MOVED") && !redis.HasErrorPrefix(err, "ASK") {
			return r, err
		}
		if c, ok := s.client.(*redis.ClusterClient); ok {
			c.ReloadState(ctx) // in the background
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

func (s *Store) askNode(ctx context.Context, script *redis.Script, name string, args []any) (reply, error) {
	node, err := s.primary(ctx, name)
	if err != nil {
		return nil, err
	}
	r, replicas, err := s.askAndWait(ctx, node, script.EvalSha, name, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		r, replicas, err = s.askAndWait(ctx, node, script.Eval, name, args)
	}
	switch {
	case err != nil:
		return nil, err
	case wrote(r) && replicas < int64(s.cfg.WaitReplicas):
		return r, fmt.Errorf("%w: %d of %d within %s", ErrReplicas, replicas, s.cfg.WaitReplicas, s.cfg.WaitTimeout)
	}
	return r, nil
}

func (s *Store) askAndWait(ctx context.Context, node redis.UniversalClient,
	run func(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd, name string, args []any,
) (reply, int64, error) {
	pipe := node.Pipeline()
	answer := run(ctx, pipe, []string{name}, args...)
	replicas := pipe.Do(ctx, "WAIT", s.cfg.WaitReplicas, s.cfg.WaitTimeout.Milliseconds())
	_, _ = pipe.Exec(ctx) // each command has its own error
	r, err := answer.Slice()
	if err != nil {
		return nil, 0, err
	}
	n, err := replicas.Int64()
	return r, n, err
}

// wrote reports whether the script changed anything that replicas must have.
func wrote(r reply) bool { return r.word() == "fresh" || r.word() == "ok" }

// primary returns the client of the server that holds name.
func (s *Store) primary(ctx context.Context, name string) (redis.UniversalClient, error) {
	if c, ok := s.client.(interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	}); ok {
		return c.MasterForKey(ctx, name)
	}
	return s.client, nil
}
