package brokers_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge"
)

// A Redis with TLS, client certificates and an ACL.
func TestSecuredRedis(t *testing.T) {
	if testing.Short() {
		return // `make test-all` runs it, once
	}
	t.Parallel()
	server := fixture.StartPrivate(t, "secureredis1")
	c := certificatesOf(t, server)
	options, err := redisbridge.Options(withUser(t, server.Address, "relay"))
	fixture.NoError(t, err)
	options.TLSConfig = c.config()
	p, err := redisbridge.NewPublisher(redisbridge.Config{Client: redis.NewClient(options)})
	fixture.NoError(t, err)
	topics.CloseAtEnd(t, p)
	admin := securedRedisAdmin(t, c, server)
	do := func(args ...any) {
		t.Helper()
		fixture.NoError(t, admin.Do(t.Context(), args...).Err())
	}
	cut := func() { t.Helper(); _ = admin.Do(t.Context(), "client", "kill", "user", "relay").Err() }
	topic := "it-" + core.NewEventID()
	flow := newSecuredFlow(t, "redisbridge", topic, p, securedRedisHeld(admin, topic))
	checkSecured(t, []*securedFlow{flow}, []securedWay{
		{"killed", func() { server.Kill(t) }, func() { server.Up(t) }, "connection refused"},
		{
			"an expired certificate of the server", func() { fixture.Show(t, "expired", server) },
			func() { fixture.Show(t, "server", server) }, "certificate has expired",
		},
		{
			"an expired certificate of the client", func() { c.show("expired"); cut() },
			func() { c.show("client"); cut() }, "expired certificate",
		},
		{
			"another password", func() { do("acl", "setuser", "relay", "resetpass", ">other"); cut() },
			func() { do("acl", "setuser", "relay", "resetpass", ">secret") }, "WRONGPASS",
		},
		{
			"no right", func() { do("acl", "setuser", "relay", "-xadd") },
			func() { do("acl", "setuser", "relay", "+xadd") }, "NOPERM",
		},
		{
			"no memory", func() { do("config", "set", "maxmemory", 1) },
			func() { do("config", "set", "maxmemory", 0) }, "OOM",
		},
	})
	checkRelay(t, withUser(t, server.Address, "relay")+"?"+c.parameters(), topic, flow.held)
}

// A primary with a replica, which Sentinel watches. Each event is on both before it is done.
func TestSecuredRedisFailover(t *testing.T) {
	if testing.Short() {
		return // `make test-all` runs it, once
	}
	t.Parallel()
	set := fixture.StartPrivateSet(t, "secureredis1", "secureredis2", "secureredis3")
	c := certificatesOf(t, set[0])
	sentinel, err := url.Parse(set[2].Address)
	fixture.NoError(t, err)
	client := func() *redis.Client {
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "outbox", SentinelAddrs: []string{sentinel.Host}, Username: "admin", Password: "secret",
			TLSConfig: c.config(), MaxRetries: -1, ContextTimeoutEnabled: true,
		})
	}
	p, err := redisbridge.NewPublisher(redisbridge.Config{Client: client(), Replicas: 1})
	fixture.NoError(t, err)
	topics.CloseAtEnd(t, p)
	admin := client()
	t.Cleanup(func() { _ = admin.Close() })
	watch := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Host, TLSConfig: c.config()})
	t.Cleanup(func() { _ = watch.Close() })
	primaryIs := func(s *fixture.PrivateServer) func() bool {
		return func() bool {
			at, err := watch.GetMasterAddrByName(t.Context(), "outbox").Result()
			return err == nil && strings.Contains(s.Address, strings.Join(at, ":"))
		}
	}
	topic := "it-" + core.NewEventID()
	flow := newSecuredFlow(t, "redisbridge", topic, p, securedRedisHeld(admin, topic))
	checkSecured(t, []*securedFlow{flow}, []securedWay{
		{"the primary is killed", func() {
			set[0].Kill(t)
			fixture.Await(t, "the replica is promoted", primaryIs(set[1]))
		}, func() { set[0].Up(t) }, "too few replicas"},
		{"the primary moves", func() {
			fixture.Await(t, "Sentinel moves the primary", func() bool {
				_ = watch.Failover(t.Context(), "outbox").Err()
				return primaryIs(set[0])()
			})
		}, func() {}, ""},
	})
}

func securedRedisAdmin(t *testing.T, c *certificates, server *fixture.PrivateServer) *redis.Client {
	t.Helper()
	options, err := redisbridge.Options(withUser(t, server.Address, "admin"))
	fixture.NoError(t, err)
	options.TLSConfig = c.always("client")
	admin := redis.NewClient(options)
	t.Cleanup(func() { _ = admin.Close() })
	return admin
}

func securedRedisHeld(client redis.UniversalClient, topic string) func(t *testing.T) []heldMessage {
	return func(t *testing.T) (all []heldMessage) {
		t.Helper()
		entries, err := client.XRange(t.Context(), topic, "-", "+").Result()
		fixture.NoError(t, err)
		for _, e := range entries {
			msg, err := redisstream.DefaultMarshallerUnmarshaller{}.Unmarshal(e.Values)
			fixture.NoError(t, err)
			all = append(all, heldMessage{msg, topic + "@" + e.ID})
		}
		return all
	}
}
