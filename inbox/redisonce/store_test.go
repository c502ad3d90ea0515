package redisonce_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/inbox/redisonce"
)

var (
	someKey = once.Key{Scope: "test", ID: "1"}
	errDown = errors.New("connection refused")
)

func request() once.Request {
	return once.Request{Key: someKey, Owner: "me", Lease: time.Minute, TTL: time.Hour}
}

func runner(t *testing.T, s once.Store) *once.Runner {
	t.Helper()
	r, err := once.New(once.Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Each key has its own name. The name is one hash tag, so that a cluster spreads the keys over its
// nodes.
func TestNames(t *testing.T) {
	s := says().store(t, redisonce.Config{Prefix: "p:"})
	seen := map[string]once.Key{}
	for _, k := range []once.Key{
		{Scope: "s", ID: "a"},
		{Scope: "s", ID: "{a}"},
		{Scope: "s", ID: "%7Ba%7D"},
		{Scope: "s", ID: "}{"},
		{Scope: "s", ID: "{}"},
		{Scope: "{}", ID: "a"},
		{Scope: "s", Tenant: "{", ID: "a"},
		{Scope: "s", ID: "A"},
		{Scope: "s|a", ID: "a"},
		{Scope: "s", Tenant: "a", ID: "a"},
	} {
		name := s.Name(k)
		if before, ok := seen[name]; ok {
			t.Errorf("%v and %v are both %s", before, k, name)
		}
		seen[name] = k
		tag, ok := strings.CutPrefix(name, "p:{")
		if !ok || strings.IndexByte(tag, '}') != len(tag)-1 || len(tag) < 2 || strings.Contains(tag, "{") {
			t.Errorf("%v: %s", k, name)
		}
	}
}

// Without Redis nothing runs, and the caller gets an error.
func TestFailsClosed(t *testing.T) {
	for name, server := range map[string]fake{
		"down": fails(errDown), "a strange answer": says("what?"), "no answer": says(),
		"fresh without a fence": says("fresh"),
	} {
		_, _, err := runner(t, server.store(t, redisonce.Config{})).Do(t.Context(), someKey, once.Fingerprint{},
			func(context.Context) (once.Result, error) {
				t.Errorf("%s: the work was run", name)
				return once.Result{}, nil
			})
		if !errors.Is(err, once.ErrStore) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Work whose mark could not be written has not succeeded. Its message must come again.
func TestUnrecordedWorkFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, ran int
		server := fake(func(_ context.Context, cmd redis.Cmder) error {
			if calls++; calls > 1 {
				return errDown
			}
			cmd.(*redis.Cmd).SetVal([]any{"fresh", "7", int64(1), int64(0)})
			return nil
		})
		_, _, err := runner(t, server.store(t, redisonce.Config{})).Do(t.Context(), someKey, once.Fingerprint{},
			func(context.Context) (once.Result, error) {
				ran++
				return once.Result{}, nil
			})
		if !errors.Is(err, once.ErrStore) || !errors.Is(err, errDown) || ran != 1 || calls < 3 {
			t.Errorf("%v after %d runs and %d calls", err, ran, calls)
		}
	})
}

func TestFailOpen(t *testing.T) {
	var asked []string
	cfg := redisonce.Config{FailOpen: func(key once.Key, err error) bool {
		asked = append(asked, fmt.Sprint(key, " ", errors.Is(err, errDown)))
		return key.Scope == "mail"
	}}
	r := runner(t, fails(errDown).store(t, cfg))
	run := func(ctx context.Context, scope string) (ran int, err error) {
		_, _, err = r.Do(ctx, once.Key{Scope: scope, ID: "1"}, once.Fingerprint{},
			func(ctx context.Context) (once.Result, error) {
				if c, _ := once.ClaimOf(ctx); c.Fence != 0 {
					t.Errorf("fence %d", c.Fence)
				}
				ran++
				return once.Result{}, nil
			})
		return ran, err
	}
	for range 2 { // the first run left no mark
		if ran, err := run(t.Context(), "mail"); ran != 1 || err != nil {
			t.Errorf("mail: %d runs, %v", ran, err)
		}
	}
	if ran, err := run(t.Context(), "payment"); ran != 0 || !errors.Is(err, once.ErrStore) {
		t.Errorf("payment: %d runs, %v", ran, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if ran, err := run(ctx, "mail"); ran != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is over: %d runs, %v", ran, err)
	}
	want := "[mail||1 true mail||1 true payment||1 true payment||1 true]" // a failed request is repeated once
	if got := fmt.Sprint(asked); got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}

// A request that Redis answers after the caller has left gives its key back, and spends no attempt.
func TestLateAnswerIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var released atomic.Value
		slow := make(chan struct{})
		server := fake(func(_ context.Context, cmd redis.Cmder) error {
			args := cmd.Args()
			if len(args) == 7 { // evalsha, digest, 1, name, owner, fence, attempts: that is Release
				released.Store(fmt.Sprint(args[4:]))
				cmd.(*redis.Cmd).SetVal([]any{"ok"})
				return nil
			}
			<-slow // like a network that hangs, it does not look at contexts
			cmd.(*redis.Cmd).SetVal([]any{"fresh", "7", int64(4), int64(0)})
			return nil
		})
		s := server.store(t, redisonce.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Acquire(ctx, request()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		close(slow)
		synctest.Wait()
		if got := released.Load(); got != "[me 7 3]" {
			t.Errorf("released %v", got)
		}
	})
}

// The context of the work ends with its lease, even if Redis hangs instead of failing.
func TestHangingHeartbeatDoesNotOutlastTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		var calls atomic.Int32
		server := fake(func(_ context.Context, cmd redis.Cmder) error {
			if calls.Add(1) > 1 {
				<-hang
				return errDown
			}
			cmd.(*redis.Cmd).SetVal([]any{"fresh", "7", int64(1), int64(0)})
			return nil
		})
		start := time.Now()
		var ended time.Duration
		_, _, err := runner(t, server.store(t, redisonce.Config{})).Do(t.Context(), someKey, once.Fingerprint{},
			func(ctx context.Context) (once.Result, error) {
				<-ctx.Done()
				ended = time.Since(start)
				return once.Result{}, context.Cause(ctx)
			})
		if !errors.Is(err, once.ErrLeaseLost) || ended != 30*time.Second {
			t.Errorf("ended after %s with %v", ended, err)
		}
		close(hang)
	})
}

// With too few replicas an Acquire gives the key back and fails. A Complete fails although the
// primary has the mark.
func TestReplicas(t *testing.T) {
	for _, tt := range []struct {
		replicas int64
		want     error
	}{{0, redisonce.ErrReplicas}, {1, redisonce.ErrReplicas}, {2, nil}, {3, nil}} {
		var released bool
		server := fake(func(_ context.Context, cmd redis.Cmder) error {
			answer := cmd.(*redis.Cmd)
			switch args := cmd.Args(); {
			case cmd.Name() == "wait":
				if fmt.Sprint(args) != "[WAIT 2 500]" {
					t.Errorf("%v", args)
				}
				answer.SetVal(tt.replicas)
			case cmd.Name() == "evalsha" && len(args) > 7: // not Release
				return redis.ErrNoScript
			case len(args) == 10 && args[9] == 0: // Acquire ends with RefuseStale, and Complete with a text
				answer.SetVal([]any{"fresh", "7", int64(1), int64(0)})
			default:
				released = released || len(args) == 7
				answer.SetVal([]any{"ok"})
			}
			return nil
		})
		s := server.store(t, redisonce.Config{WaitReplicas: 2})
		got, err := s.Acquire(t.Context(), request())
		if !errors.Is(err, tt.want) || (err == nil) != (got.State == once.Fresh) || released != (err != nil) {
			t.Errorf("acquire with %d replicas: %v, %v, released %t", tt.replicas, got, err, released)
		}
		claim := once.Claim{Key: someKey, Owner: "me", Fence: 7}
		if err := s.Extend(t.Context(), claim, time.Minute); !errors.Is(err, tt.want) {
			t.Errorf("extend with %d replicas: %v", tt.replicas, err)
		}
		if err := s.Complete(t.Context(), claim, once.Result{}, time.Hour); !errors.Is(err, tt.want) {
			t.Errorf("complete with %d replicas: %v", tt.replicas, err)
		}
	}
	// This answer changed nothing, so no replica must confirm it.
	s := fake(func(_ context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "wait" {
			cmd.(*redis.Cmd).SetVal(int64(0))
		} else {
			cmd.(*redis.Cmd).SetVal([]any{"in_progress", int64(1500)})
		}
		return nil
	}).store(t, redisonce.Config{WaitReplicas: 2})
	if got, err := s.Acquire(t.Context(), request()); err != nil || got.State != once.InProgress ||
		got.RetryAfter != 1500*time.Microsecond {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCheck(t *testing.T) {
	const good = "# Server\r\nredis_version:7.0.15\r\nmaxmemory_policy:noeviction\r\n" +
		"role:master\r\nconnected_slaves:1\r\n"
	for name, tt := range map[string]struct {
		info    string
		script  error
		want    error
		problem string
	}{
		"all is well": {info: good},
		"keys are evicted": {
			info: strings.Replace(good, "noeviction", "allkeys-lru", 1),
			want: redisonce.ErrEviction, problem: "allkeys-lru",
		},
		"volatile keys too": {
			info: strings.Replace(good, "noeviction", "volatile-ttl", 1),
			want: redisonce.ErrEviction, problem: "volatile-ttl",
		},
		"nobody says": {info: "", want: redisonce.ErrEviction, problem: `""`},
		"a replica":   {info: strings.Replace(good, "master", "slave", 1), problem: "is a slave"},
		"too few replicas": {
			info: strings.Replace(good, "slaves:1", "slaves:0", 1), want: redisonce.ErrReplicas,
			problem: "0 are connected",
		},
		"scripts are refused": {
			info: good, script: errors.New("NOPERM this user has no permissions"),
			problem: "NOPERM",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := fake(func(_ context.Context, cmd redis.Cmder) error {
				switch cmd := cmd.(type) {
				case *redis.StringCmd:
					cmd.SetVal(tt.info)
				case *redis.Cmd:
					if cmd.Name() == "wait" {
						cmd.SetVal(int64(1))
						return nil
					}
					cmd.SetVal([]any{"lost"})
					return tt.script
				}
				return nil
			}).store(t, redisonce.Config{WaitReplicas: 1})
			err := s.Check(t.Context())
			if (err == nil) != (tt.problem == "") || err != nil && !strings.Contains(err.Error(), tt.problem) ||
				tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// An error of Redis is a miss and is counted. During the pause after it, Redis is not asked.
func TestCacheErrorsAreMisses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		c, err := redisonce.NewCache(fake(func(context.Context, redis.Cmder) error {
			calls++
			return errDown
		}).client(t), redisonce.CacheConfig{Pause: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if seen, err := c.Seen(t.Context(), "k"); seen || !errors.Is(err, errDown) {
			t.Errorf("%t, %v", seen, err)
		}
		for range 3 {
			if seen, err := c.Seen(t.Context(), "k"); seen || err == nil {
				t.Errorf("in the pause: %t, %v", seen, err)
			}
			if err := c.Remember(t.Context(), "k"); err == nil {
				t.Error("remembered in the pause")
			}
		}
		if calls != 1 {
			t.Errorf("%d calls", calls)
		}
		time.Sleep(time.Second)
		if err := c.Remember(t.Context(), "k"); !errors.Is(err, errDown) || calls != 2 {
			t.Errorf("after the pause: %v, %d calls", err, calls)
		}
		if got, want := c.Stats(), (redisonce.CacheStats{Misses: 4, Errors: 2}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// A Redis that hangs costs no more than the timeout. The end of the caller's context does not count
// as an error of Redis.
func TestCacheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		c, err := redisonce.NewCache(fake(func(context.Context, redis.Cmder) error {
			<-hang
			return errDown
		}).client(t), redisonce.CacheConfig{Timeout: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Seen(ctx, "k"); !errors.Is(err, context.Canceled) || c.Stats().Errors != 0 {
			t.Errorf("%v, %+v", err, c.Stats())
		}
		start := time.Now()
		if err := c.Remember(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(start) != 20*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		if c.Stats().Errors != 1 {
			t.Errorf("%+v", c.Stats())
		}
		close(hang)
	})
}

func TestCacheKeepsKeysApart(t *testing.T) {
	seen := map[string]string{}
	var name string
	c, err := redisonce.NewCache(fake(func(_ context.Context, cmd redis.Cmder) error {
		name = fmt.Sprint(cmd.Args()[1])
		return nil
	}).client(t), redisonce.CacheConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "A", "{a}", "%7Ba%7D", "%257Ba%257D", "", "{}", "%"} {
		if _, err := c.Seen(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if before, ok := seen[name]; ok {
			t.Errorf("%q and %q are both %s", before, key, name)
		}
		seen[name] = key
	}
}

// A slot that moves to another node of a cluster meanwhile is not the caller's concern.
func TestAMovedKeyIsFollowed(t *testing.T) {
	held := once.Claim{Key: someKey, Owner: "o", Fence: 1}
	for _, word := range []string{"MOVED 3999 127.0.0.1:6381", "ASK 3999 127.0.0.1:6381"} {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int64
			s := fake(func(_ context.Context, cmd redis.Cmder) error {
				if calls.Add(1) <= 4 { // a script and a WAIT, twice
					return moved(word)
				}
				switch cmd := cmd.(type) {
				case *redis.Cmd:
					if strings.EqualFold(fmt.Sprint(cmd.Args()[0]), "wait") {
						cmd.SetVal(int64(1))
						return nil
					}
					cmd.SetVal([]any{"ok"})
				}
				return nil
			}).store(t, redisonce.Config{WaitReplicas: 1})
			err := s.Complete(t.Context(), held, once.Result{}, time.Hour)
			if err != nil || calls.Load() != 6 {
				t.Errorf("%s: %v after %d calls", word, err, calls.Load())
			}
		})
	}
	ever := fails(moved("MOVED 3999 127.0.0.1:6381")).store(t, redisonce.Config{WaitReplicas: 1})
	err := ever.Complete(t.Context(), held, once.Result{}, time.Hour)
	if err == nil || !strings.Contains(err.Error(), "MOVED") {
		t.Errorf("a key that always moves: %v", err)
	}
}

// moved is a reply of a server.
type moved string

func (m moved) Error() string { return string(m) }
func (moved) RedisError()     {}

// A server that keeps nothing on disk forgets all keys with a restart. New says so.
func TestNewWarnsOfWhatTheServerForgets(t *testing.T) {
	for info, want := range map[string]string{
		"maxmemory_policy:allkeys-lru\r\naof_enabled:1\r\n": "noeviction",
		"maxmemory_policy:noeviction\r\naof_enabled:0\r\n":  "appendonly",
		"maxmemory_policy:noeviction\r\naof_enabled:1\r\n":  "",
		"maxmemory_policy:noeviction\r\n":                   "",
	} {
		var log bytes.Buffer
		c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		c.AddHook(answers(info))
		_, err := redisonce.New(c, redisonce.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if text := log.String(); want == "" && text != "" || !strings.Contains(text, want) {
			t.Errorf("%q: logged %q, want %q", info, text, want)
		}
		_ = c.Close()
	}
}

// answers is a server with this INFO.
type answers string

func (answers) DialHook(next redis.DialHook) redis.DialHook { return next }
func (answers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a answers) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		cmd.(*redis.StringCmd).SetVal(string(a))
		return nil
	}
}
