package redisonce_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/inbox/redisonce"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// The suite passes on a cluster of three primaries. A key has one name, so its script runs on one
// node.
func TestRedisOnceStoreSuiteCluster(t *testing.T) {
	t.Parallel()
	addrs := redisCluster(t, 3)
	open := func(t *testing.T) *redis.ClusterClient {
		t.Helper()
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	suite.TestOnceStore(t, redisHarness(func(t *testing.T) (redis.UniversalClient, string) {
		t.Helper()
		return open(t), rand.Text() + ":"
	}))
	t.Run("Check", func(t *testing.T) {
		client := open(t)
		if err := newRedisStore(t, client, redisonce.Config{}).Check(t.Context()); err != nil {
			t.Error(err)
		}
		last := fixture.RedisAt(t, "redis://"+addrs[2])
		fixture.NoError(t, last.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lfu").Err())
		if err := newRedisStore(t, client, redisonce.Config{}).Check(t.Context()); !errors.Is(err,
			redisonce.ErrEviction) {
			t.Errorf("one of three evicts: %v", err)
		}
	})
	t.Run("Replicas", func(t *testing.T) { // WAIT goes to the node of the key, which has no replica
		s := newRedisStore(t, open(t), redisonce.Config{
			Prefix: "r:", WaitReplicas: 1,
			WaitTimeout: 50 * time.Millisecond,
		})
		for i := range 10 {
			req := once.Request{
				Key: once.Key{Scope: "test", ID: strconv.Itoa(i)}, Owner: "me", Lease: once.MaxLease,
				TTL: once.MaxLease,
			}
			if _, err := s.Acquire(t.Context(), req); !errors.Is(err, redisonce.ErrReplicas) {
				t.Errorf("%v", err)
			}
		}
	})
}

// redisCluster starts a cluster of primaries that ends with the test, or with its process.
func redisCluster(t *testing.T, nodes int) (addrs []string) {
	t.Helper()
	clients := make([]*redis.Client, nodes)
	for i := range nodes {
		port, _ := fixture.ReservePorts(t, 1)
		// The shell waits for the end of its input, and so stops the server even after a test that
		// was killed.
		cmd := exec.Command("sh", "-c", `redis-server --bind 127.0.0.1 --port "$1" --dir "$2" --save "" `+
			`--cluster-enabled yes --cluster-port "$3" `+
			`--daemonize no >/dev/null & `+
			`server=$!; cat >/dev/null; kill -9 $server; wait`, "sh", strconv.Itoa(port), t.TempDir(),
			strconv.Itoa(port+1))
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		in, err := cmd.StdinPipe()
		fixture.NoError(t, err)
		fixture.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = in.Close()
			_ = cmd.Wait()
			if stderr.Len() > 0 && t.Failed() {
				t.Logf("node %d: %s", i, &stderr)
			}
		})
		addr := "127.0.0.1:" + strconv.Itoa(port)
		clients[i] = redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = clients[i].Close() })
		fixture.Eventually(t.Context(), t, "node "+addr+" answers",
			func() bool { return clients[i].Ping(t.Context()).Err() == nil })
		first, last := 16384*i/nodes, 16384*(i+1)/nodes-1
		fixture.NoError(t, clients[i].ClusterAddSlotsRange(t.Context(), first, last).Err())
		fixture.NoError(t, clients[i].Do(t.Context(), "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		if i > 0 {
			fixture.NoError(t, clients[0].Do(t.Context(), "CLUSTER", "MEET", "127.0.0.1", port, port+1).Err())
		}
		addrs = append(addrs, addr)
	}
	for _, c := range clients {
		fixture.Eventually(t.Context(), t, "the cluster is there", func() bool {
			info := c.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", nodes))
		})
	}
	return addrs
}
