package redisbridge

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

// scripted answers in place of a server.
type scripted struct {
	policy string
	checks int
}

func (s *scripted) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *scripted) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *scripted) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		switch cmd := cmd.(type) {
		case *redis.StringCmd:
			if cmd.Name() == "info" {
				s.checks++
				cmd.SetVal("role:master\naof_enabled:1\nmaxmemory_policy:" + s.policy)
			} else {
				cmd.SetVal("1-0")
			}
		case *redis.MapStringStringCmd:
			cmd.SetVal(map[string]string{"appendfsync": "always"})
		}
		return nil
	}
}

// An eviction policy that is set while a process runs is noticed within a minute.
func TestTheServerIsCheckedAgain(t *testing.T) {
	t.Parallel()
	server := &scripted{policy: "noeviction"}
	client := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(server)
	p := &publisher{cfg: Config{Client: client}, checking: make(chan struct{}, 1), every: time.Hour}
	p.cfg.Bridge.Logger = slog.New(slog.DiscardHandler)
	publish := func() error { return p.Publish("orders", message.NewMessage("1", nil)) }
	for range 3 {
		if err := publish(); err != nil || server.checks != 1 {
			t.Fatalf("%v after %d checks", err, server.checks)
		}
	}
	server.policy = "allkeys-lru"
	p.every = 0 // the time is over
	for range 2 {
		if err := publish(); !errors.Is(err, ErrUnsafeServer) {
			t.Errorf("a policy that was set later: %v", err)
		}
	}
	server.policy = "noeviction"
	if err := publish(); err != nil {
		t.Errorf("set right: %v", err)
	}
}
