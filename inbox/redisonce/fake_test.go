package redisonce_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/inbox/redisonce"
)

// fake answers commands in place of a server. It sets the value of cmd or returns an error.
type fake func(ctx context.Context, cmd redis.Cmder) error

func (f fake) DialHook(next redis.DialHook) redis.DialHook { return next }
func (f fake) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		// New sends these commands for its warnings.
		if info, ok := cmd.(*redis.StringCmd); ok && len(cmd.Args()) == 2 && fmt.Sprint(cmd.Args()[0]) == "info" {
			info.SetVal("maxmemory_policy:noeviction\r\naof_enabled:1\r\n")
			return nil
		}
		return f(ctx, cmd)
	}
}

func (f fake) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if err := f(ctx, cmd); err != nil {
				cmd.SetErr(err)
			}
		}
		return nil
	}
}

func (f fake) client(t *testing.T) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	c.AddHook(f)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (f fake) store(t *testing.T, cfg redisonce.Config) *redisonce.Store {
	t.Helper()
	s, err := redisonce.New(f.client(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// says is a server whose scripts always return answer.
func says(answer ...any) fake {
	return func(_ context.Context, cmd redis.Cmder) error {
		cmd.(*redis.Cmd).SetVal(answer)
		return nil
	}
}

func fails(err error) fake {
	return func(context.Context, redis.Cmder) error { return err }
}
