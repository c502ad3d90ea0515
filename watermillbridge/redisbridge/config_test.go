package redisbridge_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge"
)

const nowhere = "redis://orders:s3cret@127.0.0.1:1/0"

func client(t *testing.T) *redis.Client {
	t.Helper()
	o, err := redisbridge.Options(nowhere)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestUnsafeClientsAreRefused(t *testing.T) {
	t.Parallel()
	safe := redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: true}
	readOnly := safe
	readOnly.ReadOnly = true
	for names, cfg := range map[string]redisbridge.Config{
		"ContextTimeoutEnabled": {Client: redis.NewClient(&redis.Options{MaxRetries: -1})},
		"MaxRetries is 3":       {Client: redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})},
		"ReadTimeout 5s":        {Client: client(t), Replicas: 1, ReplicaTimeout: 5 * time.Second},
		"Ring":                  {Client: redis.NewRing(&redis.RingOptions{})},
		"a publish would not end": {
			Client: redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}),
		},
		"ReadOnly":                        {Client: redis.NewClusterClient(&readOnly)},
		"with a *redis.ClusterClient":     {Client: redis.NewClusterClient(&safe), Replicas: 1},
		"Replicas needs a *redis.Client,": {Client: wrapped{client(t)}, Replicas: 1},
	} {
		t.Cleanup(func() { _ = cfg.Client.Close() })
		_, err := redisbridge.NewPublisher(cfg)
		if !errors.Is(err, redisbridge.ErrUnsafeConfig) || !strings.Contains(err.Error(), names) {
			t.Errorf("%v, want ErrUnsafeConfig naming %s", err, names)
		}
	}
	for _, c := range []redis.UniversalClient{client(t), redis.NewClusterClient(&safe), wrapped{client(t)}} {
		t.Cleanup(func() { _ = c.Close() })
		if _, err := redisbridge.NewPublisher(redisbridge.Config{Client: c}); err != nil {
			t.Error(err)
		}
	}
}

// wrapped is a client of a type that the package does not know.
type wrapped struct{ redis.UniversalClient }

func TestBadInputIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cfg   redisbridge.Config
		names string
	}{
		"zero":     {redisbridge.Config{}, "Config.Client"},
		"replicas": {redisbridge.Config{Client: client(t), Replicas: -1}, "Replicas"},
		"timeout":  {redisbridge.Config{Client: client(t), ReplicaTimeout: time.Microsecond}, "ReplicaTimeout"},
		"length":   {redisbridge.Config{Client: client(t), MaxLen: -1}, "MaxLen"},
		"decorator": {redisbridge.Config{
			Client: client(t), Decorate: func(message.Publisher) message.Publisher { return nil },
		}, "Config.Decorate"},
		"bridge": {redisbridge.Config{Client: client(t), Bridge: watermillbridge.Config{MaxStuck: -1}}, "MaxStuck"},
	} {
		_, err := redisbridge.NewPublisher(tc.cfg)
		if err == nil || !strings.Contains(err.Error(), tc.names) {
			t.Errorf("%s: %v, want it to name %s", name, err, tc.names)
		}
	}
	if err := redisbridge.Check(t.Context(), redisbridge.Config{}); err == nil {
		t.Error("Check takes a zero Config")
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	o, err := redisbridge.Options(nowhere + "?pool_size=7&client_name=orders")
	if err != nil || o.PoolSize != 7 || o.ClientName != "orders" || o.MaxRetries != -1 || !o.ContextTimeoutEnabled {
		t.Errorf("%+v, %v", o, err)
	}
	for _, address := range []string{
		"http://u:s3cret@x", "redis://u:s3cret@x\x7f", "redis://u:s3cret@x/y", "redis://u:s3cret/s3cret@x",
		"redis://u/s3cret@x",
	} {
		if _, err := redisbridge.Options(address); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestAServerThatIsAwayIsUnavailable(t *testing.T) {
	t.Parallel()
	p, err := redisbridge.NewPublisher(redisbridge.Config{Client: client(t)})
	if err != nil {
		t.Fatal(err)
	}
	d := core.Delivery{Event: core.Event{ID: "1", Type: "t", Topic: "orders"}}
	for range 2 {
		err := p.Publish(t.Context(), d)
		class, ok := core.ClassOf(err)
		if !ok {
			class = core.DefaultClassifier(err)
		}
		if class != core.ClassUnavailable || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("err = %v, class %v; want unavailable without the password", err, class)
		}
	}
	if err := p.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if err := p.Publish(t.Context(), d); !errors.Is(err, watermillbridge.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
