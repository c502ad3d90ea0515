package redisonce_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/inbox/redisonce"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// A server that is killed keeps the marks that its append-only file has, and loses the others. The
// work of lost marks is run once more. While the server is down, no work runs.
func TestRedisRestart(t *testing.T) {
	t.Parallel()
	server := fixture.StartPrivate(t, "redis") // this server has an append-only file
	client := fixture.RedisAt(t, server.Address)
	r := redisRunner(t, newRedisStore(t, client, redisonce.Config{}), time.Minute, nil)
	kept, lost := once.Key{Scope: "test", ID: "kept"}, once.Key{Scope: "test", ID: "lost"}
	var runs [2]atomic.Int32
	var fences []int64
	work := func(ctx context.Context) (once.Result, error) {
		c, _ := once.ClaimOf(ctx)
		fences = append(fences, c.Fence)
		runs[1].Add(1)
		return once.Result{}, nil
	}
	deliverKept := func(want bool) {
		t.Helper()
		if replayed, err := redisCounted(t.Context(), r, kept, &runs[0]); err != nil || replayed != want {
			t.Errorf("kept: replayed %t, %v", replayed, err)
		}
	}
	deliverLost := func() {
		t.Helper()
		if _, replayed, err := r.Do(t.Context(), lost, once.Fingerprint{}, work); err != nil || replayed {
			t.Errorf("lost: replayed %t, %v", replayed, err)
		}
	}
	deliverKept(false)
	if err := client.ConfigSet(t.Context(), "appendonly", "no").Err(); err != nil { // later marks are only in memory
		t.Fatal(err)
	}
	deliverLost()
	server.Kill(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := redisCounted(ctx, r, kept, &runs[0]); !errors.Is(err, once.ErrStore) {
		t.Errorf("while it is down: %v", err)
	}
	server.Up(t)
	deliverKept(true)
	deliverLost()
	if runs[0].Load() != 1 || runs[1].Load() != 2 || fences[1] <= fences[0] {
		t.Errorf("%d and %d runs, fences %v", runs[0].Load(), runs[1].Load(), fences)
	}
}

// A server that hangs with its connections open does not hold a caller for longer than its context,
// and the work of a holder ends with its lease.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	server := fixture.StartPrivate(t, "redis")
	client := fixture.RedisAt(t, server.Address+"?read_timeout=10m") // longer than any context of the test
	s := newRedisStore(t, client, redisonce.Config{})
	const lease = 10 * time.Second // half of it is the limit of each request
	var worked time.Duration
	_, _, err := redisRunner(t, s, lease, nil).Do(t.Context(), redisKey, once.Fingerprint{},
		func(ctx context.Context) (once.Result, error) {
			server.Pause(t)
			defer server.Resume(t)
			start := time.Now()
			short, cancel := context.WithTimeout(context.WithoutCancel(ctx), 50*time.Millisecond)
			defer cancel()
			var runs atomic.Int32
			if _, err := redisCounted(short, redisRunner(t, s, lease, nil), once.Key{Scope: "test", ID: "other"},
				&runs); !errors.Is(err, once.ErrStore) || runs.Load() != 0 {
				t.Errorf("another caller: %v", err)
			}
			<-ctx.Done()
			worked = time.Since(start)
			return once.Result{}, context.Cause(ctx)
		})
	fixture.Check(t, errors.Is(err, once.ErrLeaseLost) && worked <= time.Minute, "%v after %s", err, worked)
}

// A full server that keeps its keys refuses new ones, so no work runs. Check finds a server that
// evicts keys.
func TestRedisMemoryIsFull(t *testing.T) {
	t.Parallel()
	client := fixture.RedisAt(t, fixture.StartPrivate(t, "redis").Address)
	s := newRedisStore(t, client, redisonce.Config{})
	set := func(name, value string) {
		t.Helper()
		fixture.NoError(t, client.ConfigSet(t.Context(), name, value).Err())
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("a good server: %v", err)
	}
	set("maxmemory", "1")
	var runs atomic.Int32
	if _, err := redisCounted(t.Context(), redisRunner(t, s, time.Minute, nil), redisKey, &runs); !errors.Is(err,
		once.ErrStore) || !strings.Contains(err.Error(), "OOM") || runs.Load() != 0 {
		t.Errorf("full: %v, %d runs", err, runs.Load())
	}
	for _, policy := range []string{"allkeys-lru", "volatile-ttl"} {
		set("maxmemory-policy", policy)
		if err := s.Check(t.Context()); !errors.Is(err, redisonce.ErrEviction) ||
			!strings.Contains(err.Error(), policy) {
			t.Errorf("%s: %v", policy, err)
		}
	}
}

// With WaitReplicas, no work runs without a replica, and a failover keeps the mark. Without
// WaitReplicas, a failover can lose the mark, and the work is run again.
func TestRedisReplicas(t *testing.T) {
	t.Parallel()
	first, second := fixture.StartPrivate(t, "redis"), fixture.StartPrivate(t, "redis")
	primary, replica := fixture.RedisAt(t, first.Address), fixture.RedisAt(t, second.Address)
	safe := newRedisStore(t, primary, redisonce.Config{WaitReplicas: 1})
	quick := newRedisStore(t, primary, redisonce.Config{})
	key := func(id string) once.Key { return once.Key{Scope: "test", ID: id} }
	var runs atomic.Int32

	// Without a replica the work does not run, however often it is tried. Its key is not left
	// behind, and no attempt is spent.
	for range 3 {
		if _, err := redisCounted(t.Context(), redisRunner(t, safe, time.Minute, nil), key("alone"),
			&runs); !errors.Is(err, redisonce.ErrReplicas) || !errors.Is(err, once.ErrStore) || runs.Load() != 0 {
			t.Errorf("%v, %d runs", err, runs.Load())
		}
	}
	if err := safe.Check(t.Context()); !errors.Is(err, redisonce.ErrReplicas) {
		t.Errorf("check: %v", err)
	}
	if got, err := quick.Acquire(t.Context(), once.Request{
		Key: key("alone"), Owner: "somebody", Lease: time.Minute,
		TTL: time.Hour,
	}); err != nil || got.State != once.Fresh || got.Attempt != 1 {
		t.Errorf("then: %+v, %v", got, err)
	}

	opts := primary.Options()
	host, port, _ := strings.Cut(opts.Addr, ":")
	fixture.NoError(t, replica.ReplicaOf(t.Context(), host, port).Err())
	fixture.Eventually(t.Context(), t, "the replica follows", func() bool {
		info, err := replica.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up") && safe.Check(t.Context()) == nil
	})
	if err := newRedisStore(t, replica, redisonce.Config{}).Check(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "is a slave") {
		t.Errorf("check of a replica: %v", err)
	}
	// A replica answers later than usual on a busy machine.
	patient := newRedisStore(t, primary, redisonce.Config{WaitReplicas: 1, WaitTimeout: 4 * time.Second})
	var fence int64
	for i := range 100 {
		if i%10 == 0 {
			primary.ScriptFlush(t.Context())
		}
		_, replayed, err := redisRunner(t, patient, time.Minute, nil).Do(t.Context(), key("safe"+strconv.Itoa(i)),
			once.Fingerprint{}, nothingOnce)
		fixture.Must(t, err == nil && !replayed, "with a replica: %v, replayed %t", err, replayed)
	}

	// The replica hangs with its connection open. A command that is repeated through another
	// connection has to wait for the replica too.
	slow := redisAbandon(t, patient, key("slow"), time.Minute)
	second.Pause(t)
	for range 2 {
		s := newRedisStore(t, fixture.RedisAt(t, first.Address),
			redisonce.Config{WaitReplicas: 1, WaitTimeout: 100 * time.Millisecond})
		if err := s.Complete(t.Context(), slow, once.Result{}, time.Hour); !errors.Is(err, redisonce.ErrReplicas) {
			t.Errorf("complete with a replica that hangs: %v", err)
		}
	}
	second.Resume(t)
	fixture.Eventually(t.Context(), t, "the replica has caught up", func() bool {
		return safe.Complete(t.Context(), slow, once.Result{}, time.Hour) == nil
	})

	// The replica leaves its primary. A mark that waits for the replica fails, and a mark that does
	// not wait succeeds.
	fixture.NoError(t, replica.ReplicaOf(t.Context(), "NO", "ONE").Err())
	claim := redisAbandon(t, quick, key("late"), time.Minute)
	if err := safe.Complete(t.Context(), claim, once.Result{}, time.Hour); !errors.Is(err, redisonce.ErrReplicas) {
		t.Errorf("complete without the replica: %v", err)
	}
	_, _, err := redisRunner(t, quick, time.Minute, nil).Do(t.Context(), key("unsafe"), once.Fingerprint{},
		func(ctx context.Context) (once.Result, error) {
			c, _ := once.ClaimOf(ctx)
			fence = c.Fence
			return once.Result{}, nil
		})
	if err != nil {
		t.Error(err)
	}
	first.Kill(t)

	promoted := redisRunner(t, newRedisStore(t, replica, redisonce.Config{}), time.Minute, nil)
	for i := range 100 {
		if _, replayed, err := promoted.Do(t.Context(), key("safe"+strconv.Itoa(i)), once.Fingerprint{},
			nothingOnce); err != nil || !replayed {
			t.Fatalf("mark %d after the failover: replayed %t, %v", i, replayed, err)
		}
	}
	_, replayed, err := promoted.Do(t.Context(), key("unsafe"), once.Fingerprint{},
		func(ctx context.Context) (once.Result, error) {
			if c, _ := once.ClaimOf(ctx); c.Fence <= fence {
				t.Errorf("fence %d after %d", c.Fence, fence)
			}
			return once.Result{}, nil
		})
	fixture.Check(t, err == nil && !replayed, "the mark that did not wait: replayed %t, %v", replayed, err)
}
