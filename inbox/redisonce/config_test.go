package redisonce_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/inbox/redisonce"
)

func TestConfigProblems(t *testing.T) {
	err := redisonce.Config{Prefix: "a{b", WaitReplicas: -1, WaitTimeout: -time.Second}.Validate()
	wantProblems(t, err, "Prefix", "WaitReplicas", "WaitTimeout")
	for _, prefix := range []string{"a}", "a b", "a\n", strings.Repeat("p", 129)} {
		wantProblems(t, redisonce.Config{Prefix: prefix}.Validate(), "Prefix")
		wantProblems(t, redisonce.CacheConfig{Prefix: prefix}.Validate(), "Prefix")
	}
	err = redisonce.CacheConfig{TTL: -1, Timeout: time.Microsecond, Pause: -1}.Validate()
	wantProblems(t, err, "TTL", "Timeout", "Pause")
	if err := (redisonce.Config{}).Validate(); err != nil {
		t.Error(err)
	}
	if err := (redisonce.CacheConfig{}).Validate(); err != nil {
		t.Error(err)
	}
}

func wantProblems(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no problem, want %v", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w+" ") {
			t.Errorf("%q does not name %s", err, w)
		}
	}
}

// A client with which the Store could not do what it promises is refused at once.
func TestNewRefusesClients(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	t.Cleanup(func() { _ = ring.Close() })
	slow := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: time.Second})
	t.Cleanup(func() { _ = slow.Close() })
	for name, tt := range map[string]struct {
		client redis.UniversalClient
		cfg    redisonce.Config
		want   string
	}{
		"no client": {nil, redisonce.Config{}, "client is nil"},
		"a ring":    {ring, redisonce.Config{}, "Ring"},
		"an answer that the client cannot see": {
			slow,
			redisonce.Config{WaitReplicas: 1, WaitTimeout: time.Second},
			"ReadTimeout",
		},
		"a bad configuration": {slow, redisonce.Config{Prefix: "{"}, "Prefix"},
	} {
		if s, err := redisonce.New(tt.client, tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) ||
			s != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := redisonce.New(slow, redisonce.Config{WaitReplicas: 1}); err != nil {
		t.Error(err)
	}
	if _, err := redisonce.NewCache(nil, redisonce.CacheConfig{}); err == nil {
		t.Error("a cache without a client")
	}
	if _, err := redisonce.NewCache(ring, redisonce.CacheConfig{}); err != nil {
		t.Error(err)
	}
}

// New warns once when the server may evict keys, or does not say, and then goes on.
func TestNewWarnsOfEviction(t *testing.T) {
	for name, tt := range map[string]struct {
		info  string
		err   error
		warns string
	}{
		"keeps all": {info: "maxmemory_policy:noeviction\r\n"},
		"forgets any": {
			info:  "# Memory\r\nmaxmemory_policy:allkeys-lru\r\n",
			warns: "maxmemory_policy=allkeys-lru",
		},
		"forgets ours":      {info: "maxmemory_policy:volatile-lfu\r\n", warns: "maxmemory_policy=volatile-lfu"},
		"does not say":      {warns: "does not say"},
		"must not be asked": {err: errors.New("NOPERM no permissions"), warns: "NOPERM"},
		"is down":           {err: errDown, warns: errDown.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
			defer client.Close()
			client.AddHook(info(func(cmd *redis.StringCmd) error { cmd.SetVal(tt.info); return tt.err }))
			var log bytes.Buffer
			if _, err := redisonce.New(client,
				redisonce.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
				t.Fatal(err)
			}
			if got := log.String(); !strings.Contains(got, tt.warns) || (got == "") != (tt.warns == "") ||
				strings.Count(got, "\n") > 1 {
				t.Errorf("logged %q, want %q", got, tt.warns)
			}
		})
	}
}

// info answers INFO.
type info func(*redis.StringCmd) error

func (info) DialHook(next redis.DialHook) redis.DialHook { return next }
func (info) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f info) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return f(cmd.(*redis.StringCmd)) }
}
