package redisbridge

import (
	"context"
	"errors"
	"log/slog"
	"strings"
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
	cfg := Config{Client: client}
	cfg.Bridge.Logger = slog.New(slog.DiscardHandler)
	p := newPublisher(cfg)
	p.every = time.Hour
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

func TestUnsafeServers(t *testing.T) {
	t.Parallel()
	for text, names := range map[string]string{
		"# Memory\r\nmaxmemory_policy:allkeys-lru\r\nrole:master\r\n":   "maxmemory-policy is allkeys-lru",
		"maxmemory_policy:allkeys-random\nrole:master":                  "noeviction",
		"maxmemory_policy:noeviction\nrole:slave\nmaster_host:10.0.0.1": "replica of 10.0.0.1",
		"maxmemory_policy:noeviction\r\nrole:master\r\n":                "",
		"maxmemory_policy:volatile-lru\r\nrole:master\r\n":              "", // evicts keys with a TTL alone
		"": "",
	} {
		err := errors.Join(unsafeServer(parseInfo(text))...)
		if (err != nil) != (names != "") || err != nil && !strings.Contains(err.Error(), names) {
			t.Errorf("%q: %v, want it to name %q", text, err, names)
		}
	}
}
