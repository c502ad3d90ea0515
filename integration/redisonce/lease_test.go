package redisonce_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/inbox/redisonce"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

var redisKey = once.Key{Scope: once.Scope("inbox", "mailer", "welcome"), Tenant: "acme", ID: "018f"}

// redisRunner returns a runner over Redis with leases of the given length.
func redisRunner(t testing.TB, store once.Store, lease time.Duration, obs *once.Observer) *once.Runner {
	t.Helper()
	r, err := once.New(once.Config{Store: store, Wait: -1, Lease: lease, TTL: time.Hour, Observer: obs})
	fixture.NoError(t, err)
	return r
}

// redisAbandon claims a key and never releases it, like a process that is killed then.
func redisAbandon(t testing.TB, s *redisonce.Store, key once.Key, lease time.Duration) once.Claim {
	t.Helper()
	req := once.Request{Key: key, Owner: "killed", Lease: lease, TTL: time.Hour}
	got, err := s.Acquire(t.Context(), req)
	fixture.Must(t, err == nil && got.State == once.Fresh, "%+v, %v", got, err)
	return once.Claim{Key: key, Owner: req.Owner, Fence: got.Fence}
}

// redisCounted runs work that counts its runs, and returns the results of Do.
func redisCounted(ctx context.Context, r *once.Runner, key once.Key, runs *atomic.Int32) (replayed bool, err error) {
	res, replayed, err := r.Do(ctx, key, once.Fingerprint{}, func(context.Context) (once.Result, error) {
		return once.Result{Data: strconv.AppendInt(nil, int64(runs.Add(1)), 10)}, nil
	})
	if err == nil && string(res.Data) != "1" {
		err = errors.New("result of run " + string(res.Data))
	}
	return replayed, err
}

// The key of a holder that died stays taken until the lease ends. Until then no other consumer may
// take the message for done. After that the message is processed.
func TestRedisCrashedHolder(t *testing.T) {
	t.Parallel()
	client, prefix := fixture.RedisClient(t)
	s := newRedisStore(t, client, redisonce.Config{Prefix: prefix})
	const lease = 3 * time.Second
	var takenOver atomic.Bool
	r := redisRunner(t, s, 30*time.Second, &once.Observer{Decided: func(i once.DecideInfo) {
		if i.TakenOver {
			takenOver.Store(true)
		}
	}})
	start := time.Now()
	redisAbandon(t, s, redisKey, lease)
	var runs atomic.Int32
	_, err := redisCounted(t.Context(), r, redisKey, &runs)
	if within := time.Since(start) < lease; within && (!errors.Is(err, once.ErrInProgress) ||
		once.RetryAfter(err) <= 0 || once.RetryAfter(err) > lease) {
		t.Fatalf("%v, retry after %s", err, once.RetryAfter(err))
	}
	fixture.Eventually(t.Context(), t, "the key is free", func() bool {
		_, err := redisCounted(t.Context(), r, redisKey, &runs)
		if err != nil && !errors.Is(err, once.ErrInProgress) {
			t.Fatal(err)
		}
		return err == nil
	})
	if waited := time.Since(start); waited < lease {
		t.Errorf("taken over after %s", waited)
	}
	if replayed, err := redisCounted(t.Context(), r, redisKey, &runs); !replayed || err != nil || runs.Load() != 1 ||
		!takenOver.Load() {
		t.Errorf("replayed %t, %v, %d runs, taken over %t", replayed, err, runs.Load(), takenOver.Load())
	}
}

// With RefuseStale, work that may be half done is not run again. A person decides.
func TestRedisRefusesStaleHolder(t *testing.T) {
	t.Parallel()
	client, prefix := fixture.RedisClient(t)
	s := newRedisStore(t, client, redisonce.Config{Prefix: prefix})
	r, err := once.New(once.Config{Store: s, RefuseStale: true})
	fixture.NoError(t, err)
	redisAbandon(t, s, redisKey, 20*time.Millisecond)
	var runs atomic.Int32
	fixture.Eventually(t.Context(), t, "the lease has ended", func() bool {
		_, err = redisCounted(t.Context(), r, redisKey, &runs)
		return !errors.Is(err, once.ErrInProgress)
	})
	if !errors.Is(err, once.ErrAbandoned) || runs.Load() != 0 {
		t.Errorf("%v, %d runs", err, runs.Load())
	}
}

// A holder that loses its lease while it works gets an error, and cannot write its mark. The work
// was done twice, because the promise is at least once. The two runs have different fences.
func TestRedisLeaseLostWhileWorking(t *testing.T) {
	t.Parallel()
	client, prefix := fixture.RedisClient(t)
	s := newRedisStore(t, client, redisonce.Config{Prefix: prefix})
	var runs, fence1, fence2 atomic.Int64
	// Heartbeats are two seconds apart. The other holder takes the key between two of them.
	_, _, err := redisRunner(t, s, 6*time.Second, nil).Do(t.Context(), redisKey, once.Fingerprint{},
		func(ctx context.Context) (once.Result, error) {
			runs.Add(1)
			c, _ := once.ClaimOf(ctx)
			fence1.Store(c.Fence)
			// The key is gone, as after an eviction, or after a failover that lost the lease. On a
			// slow machine a heartbeat may come in between and hold the key again.
			err := once.ErrInProgress
			for errors.Is(err, once.ErrInProgress) {
				if err := client.Del(context.WithoutCancel(ctx), s.Name(redisKey)).Err(); err != nil {
					t.Error(err)
				}
				_, _, err = redisRunner(t, s, time.Minute, nil).Do(context.WithoutCancel(ctx), redisKey,
					once.Fingerprint{}, func(ctx context.Context) (once.Result, error) {
						runs.Add(1)
						c, _ := once.ClaimOf(ctx)
						fence2.Store(c.Fence)
						return once.Result{Data: []byte("second")}, nil
					})
			}
			if err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, once.ErrLeaseLost) {
				t.Errorf("ended by %v", cause)
			}
			return once.Result{Data: []byte("first")}, nil // the work ignores the end of its context
		})
	fixture.Check(t, errors.Is(err, once.ErrAlreadyDone), "the first: %v", err)
	res, replayed, err := redisRunner(t, s, time.Minute, nil).Do(t.Context(), redisKey, once.Fingerprint{}, nothingOnce)
	fixture.Check(t, err == nil && replayed && string(res.Data) == "second", "%q, %t, %v", res.Data, replayed, err)
	if runs.Load() != 2 || fence2.Load() <= fence1.Load() {
		t.Errorf("%d runs, fences %d and %d", runs.Load(), fence1.Load(), fence2.Load())
	}
}

// Redis comes back empty while work runs. No other consumer took the key, so the heartbeat of the
// work holds the key again. Copies do not run, and the mark is written.
func TestRedisComesBackEmpty(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, server *fixture.PrivateServer, client *redis.Client){
		"FLUSHALL": func(t *testing.T, _ *fixture.PrivateServer, client *redis.Client) {
			t.Helper()
			fixture.NoError(t, client.FlushAll(t.Context()).Err())
		},
		"killed without persistence": func(t *testing.T, server *fixture.PrivateServer, client *redis.Client) {
			t.Helper()
			fixture.NoError(t, client.FlushAll(t.Context()).Err())
			fixture.NoError(t, client.ConfigSet(t.Context(), "appendonly", "no").Err())
			server.Kill(t)
			server.Up(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := fixture.StartPrivate(t, "redis")
			client := fixture.RedisAt(t, server.Address)
			s := newRedisStore(t, client, redisonce.Config{})
			r := redisRunner(t, s, 12*time.Second, nil) // longer than a server takes to start
			var runs atomic.Int32
			_, replayed, err := r.Do(t.Context(), redisKey, once.Fingerprint{},
				func(ctx context.Context) (once.Result, error) {
					runs.Add(1)
					lose(t, server, client)
					fixture.Eventually(ctx, t, "the heartbeat holds the key again", func() bool {
						n, err := client.Exists(ctx, s.Name(redisKey)).Result()
						return err == nil && n == 1
					})
					if _, err := redisCounted(ctx, r, redisKey, &runs); !errors.Is(err, once.ErrInProgress) {
						t.Errorf("a copy: %v", err)
					}
					fixture.NoError(t, client.FlushAll(ctx).Err()) // loses the key again before the end
					return once.Result{}, nil
				})
			fixture.Check(t, err == nil && !replayed, "replayed %t, %v", replayed, err)
			if _, replayed, err := r.Do(t.Context(), redisKey, once.Fingerprint{}, nothingOnce); err != nil ||
				!replayed || runs.Load() != 1 {
				t.Errorf("its copy: replayed %t, %v, %d runs", replayed, err, runs.Load())
			}
		})
	}
}

func nothingOnce(context.Context) (once.Result, error) { return once.Result{}, nil }

// After a mark was evicted, the work is run exactly once more, with a higher fence.
func TestRedisEvictedMark(t *testing.T) {
	t.Parallel()
	client, prefix := fixture.RedisClient(t)
	s := newRedisStore(t, client, redisonce.Config{Prefix: prefix})
	r := redisRunner(t, s, time.Minute, nil)
	var fences []int64
	work := func(ctx context.Context) (once.Result, error) {
		c, _ := once.ClaimOf(ctx)
		fences = append(fences, c.Fence)
		return once.Result{}, nil
	}
	for i := range 6 {
		if i == 3 {
			if n, err := client.Del(t.Context(), s.Name(redisKey)).Result(); n != 1 || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
		}
		if _, replayed, err := r.Do(t.Context(), redisKey, once.Fingerprint{}, work); err != nil ||
			replayed != (i%3 != 0) {
			t.Errorf("delivery %d: replayed %t, %v", i, replayed, err)
		}
	}
	fixture.Check(t, len(fences) == 2 && fences[1] > fences[0], "fences %v", fences)
}

// A server that has forgotten the scripts gets them again, at every step.
func TestRedisScriptFlush(t *testing.T) {
	t.Parallel()
	client, prefix := fixture.RedisClient(t)
	s := newRedisStore(t, client, redisonce.Config{Prefix: prefix})
	flush := func() {
		if err := client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Error(err)
		}
	}
	for i := range 20 {
		key := once.Key{Scope: "flush", ID: strconv.Itoa(i)}
		flush()
		c := redisAbandon(t, s, key, time.Minute)
		flush()
		if err := s.Extend(t.Context(), c, time.Minute); err != nil {
			t.Error(err)
		}
		flush()
		finish := func() error { return s.Complete(t.Context(), c, once.Result{}, time.Minute) }
		if i%2 == 0 {
			finish = func() error { return s.Release(t.Context(), c, 1) }
		}
		if err := finish(); err != nil {
			t.Error(err)
		}
	}
}

// Sixteen deliveries of a message come at once, and its handler works for longer than the lease.
// The handler is run once.
func TestRedisHeartbeatKeepsTheKey(t *testing.T) {
	t.Parallel()
	const lease, asking = 9 * time.Second, 15
	client, prefix := fixture.RedisClient(t)
	s := newRedisStore(t, client, redisonce.Config{Prefix: prefix})
	var runs atomic.Int32
	var refused [asking]atomic.Int32 // refusals after a whole lease
	longEnough := func() bool {
		for i := range refused {
			if refused[i].Load() == 0 {
				return false
			}
		}
		return true
	}
	start := time.Now()
	running := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, replayed, err := redisRunner(t, s, lease, nil).Do(t.Context(), redisKey, once.Fingerprint{},
			func(ctx context.Context) (once.Result, error) {
				runs.Add(1)
				close(running)
				for !longEnough() {
					select {
					case <-ctx.Done():
						return once.Result{}, context.Cause(ctx)
					case <-time.After(10 * time.Millisecond):
					}
				}
				return once.Result{Data: []byte("1")}, nil
			})
		fixture.Check(t, err == nil && !replayed, "the first: %v, replayed %t", err, replayed)
	})
	<-running
	for i := range asking {
		r := redisRunner(t, s, lease, nil)
		wg.Go(func() {
			for t.Context().Err() == nil {
				replayed, err := redisCounted(t.Context(), r, redisKey, &runs)
				switch {
				case errors.Is(err, once.ErrInProgress):
					if time.Since(start) > 3*lease/2 {
						refused[i].Add(1)
					}
					<-time.After(20 * time.Millisecond) // a loop without a pause takes the processor from the heartbeat
				case err != nil || !replayed:
					t.Errorf("delivery %d: %v, replayed %t", i, err, replayed)
					return
				default:
					return
				}
			}
		})
	}
	wg.Wait()
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

// A consumer that marks a message before it handles it loses the message when it dies in between.
// redisonce does not take such a message for done.
func TestRedisSetBeforeWorkLosesTheMessage(t *testing.T) {
	t.Parallel()
	client, prefix := fixture.RedisClient(t)
	s := newRedisStore(t, client, redisonce.Config{Prefix: prefix})
	r := redisRunner(t, s, time.Minute, nil)

	// Each function returns whether the message is acknowledged. The first delivery dies before the
	// handler.
	naive := func(ctx context.Context, die bool, handle func()) bool {
		first, err := client.SetNX(ctx, prefix+"naive", 1, time.Hour).Result()
		if err != nil || !first {
			return err == nil // a duplicate
		}
		if die {
			return false
		}
		handle()
		return true
	}
	ours := func(ctx context.Context, die bool, handle func()) bool {
		if die {
			redisAbandon(t, s, redisKey, 50*time.Millisecond)
			return false
		}
		_, _, err := r.Do(ctx, redisKey, once.Fingerprint{}, func(context.Context) (once.Result, error) {
			handle()
			return once.Result{}, nil
		})
		if err != nil && !errors.Is(err, once.ErrInProgress) {
			t.Error(err)
		}
		return err == nil
	}
	for name, tt := range map[string]struct {
		deliver func(context.Context, bool, func()) bool
		handled int
	}{"set before the work": {naive, 0}, "lease": {ours, 1}} {
		handled := 0
		if tt.deliver(t.Context(), true, func() { handled++ }) {
			t.Errorf("%s: a dead consumer acknowledged", name)
		}
		fixture.Eventually(t.Context(), t, "the message is acknowledged",
			func() bool { return tt.deliver(t.Context(), false, func() { handled++ }) })
		fixture.Check(t, handled == tt.handled, "%s: handled %d times, want %d", name, handled, tt.handled)
	}
}

// A person can read the stored hash, and it expires by itself.
func TestRedisHashIsReadable(t *testing.T) {
	t.Parallel()
	client, prefix := fixture.RedisClient(t)
	s := newRedisStore(t, client, redisonce.Config{Prefix: prefix})
	c := redisAbandon(t, s, redisKey, time.Minute)
	if got := s.Name(redisKey); got != prefix+"{inbox/mailer/welcome|acme|018f}" {
		t.Errorf("name %s", got)
	}
	want := map[string]string{
		"state": "held", "owner": "killed", "fence": strconv.FormatInt(c.Fence, 10),
		"attempt": "1",
	}
	wantHash(t, client, s.Name(redisKey), want, time.Hour, time.Hour+time.Minute)
	if err := s.Extend(t.Context(), c, once.MaxLease); err != nil { // the time to live counts from the lease's end
		t.Fatal(err)
	}
	wantHash(t, client, s.Name(redisKey), want, 2*time.Hour-time.Minute, 2*time.Hour)
	fixture.NoError(t, s.Complete(t.Context(), c, once.Result{Data: []byte("r")}, 2*time.Hour))
	want["state"], want["data"] = "done", "r"
	wantHash(t, client, s.Name(redisKey), want, time.Hour, 2*time.Hour)
	n, err := client.MemoryUsage(t.Context(), s.Name(redisKey)).Result()
	fixture.Check(t, err == nil && n <= 400, "a mark takes %d bytes, %v", n, err)
	t.Logf("a mark takes %d bytes", n)
}

func wantHash(t *testing.T, client *redis.Client, name string, want map[string]string, minTTL, maxTTL time.Duration) {
	t.Helper()
	got, err := client.HGetAll(t.Context(), name).Result()
	fixture.NoError(t, err)
	for field, value := range want {
		if got[field] != value {
			t.Errorf("%s is %q, want %q, in %v", field, got[field], value, got)
		}
	}
	if ttl := client.PTTL(t.Context(), name).Val(); ttl <= minTTL || ttl > maxTTL {
		t.Errorf("time to live %s is not between %s and %s", ttl, minTTL, maxTTL)
	}
}
