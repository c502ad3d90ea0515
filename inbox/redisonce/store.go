package redisonce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/inbox"
)

// ErrReplicas: fewer replicas than [Config.WaitReplicas] acknowledged in time. An Acquire has given
// the key back. The primary has recorded a Complete, which may be repeated.
var ErrReplicas = errors.New("redisonce: too few replicas acknowledged")

// Store keeps keys in Redis 5 or newer: a single server, Sentinel, or Cluster. It implements
// once.Store; create it with New. It is safe for use by several goroutines. It does not close the
// client.
//
// Each key of package once is one hash in Redis. Redis itself deletes the hash when its time to
// live is over. All times are by the server's clock.
type Store struct {
	client redis.UniversalClient
	cfg    Config
}

var _ once.Store = (*Store)(nil)

// New returns a Store, or every problem of cfg at once. It asks the server for its eviction policy
// and its persistence, for at most two seconds. If the server may evict keys, or does not answer,
// or writes no append-only file, New logs a warning. It does not fail because of the server: call
// Check for that.
func New(client redis.UniversalClient, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(cfg.Validate(), cfg.checkClient(client)); err != nil {
		return nil, err
	}
	s := &Store{client: client, cfg: cfg}
	s.warnOfLoss()
	return s, nil
}

// Cleanup implements once.Store. It does nothing, because Redis deletes keys on expiry.
func (s *Store) Cleanup(context.Context, int) (deleted int, err error) { return 0, nil }

var tagEscaper = strings.NewReplacer("{", "%7B", "}", "%7D")

// Name returns the name of key in Redis, to look at it: HGETALL shows which process holds the key.
// The part in braces alone decides about the node of a cluster, and has no brace of its own.
func (s *Store) Name(key once.Key) string {
	return s.cfg.Prefix + "{" + tagEscaper.Replace(key.String()) + "}"
}

// run runs a script for one key. It returns when ctx ends, or when the client gives up. confirm
// waits for replicas. late, unless nil, gets an answer that came after ctx had ended.
func (s *Store) run(ctx context.Context, script *redis.Script, key once.Key, confirm bool, late func(reply),
	args ...any,
) (reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	ask := s.ask
	if confirm && s.cfg.WaitReplicas > 0 {
		ask = s.askReplicas
	}
	name := s.Name(key)
	return await(ctx, func() (reply, error) { return ask(ctx, script, name, args) }, late)
}

func (s *Store) ask(ctx context.Context, script *redis.Script, name string, args []any) (reply, error) {
	return script.Run(ctx, s.client, []string{name}, args...).Slice()
}

// await returns what fn returns, or the cause of ctx when that ends first. By default the client
// looks at a context only before it sends a command, and not while it waits for the answer. Without
// await a heartbeat could outlast its lease.
func await[T any](ctx context.Context, fn func() (T, error), late func(T)) (T, error) {
	if ctx.Done() == nil {
		return fn()
	}
	type outcome struct {
		value T
		err   error
	}
	answer := make(chan outcome)
	go func() { // ends when the client gives up, after its own timeouts
		v, err := fn()
		select {
		case answer <- outcome{v, err}:
		case <-ctx.Done():
			if late != nil && err == nil {
				late(v)
			}
		}
	}()
	select {
	case got := <-answer:
		return got.value, got.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// giveBack releases a claim that no caller will use, and restores the attempts before it, because
// an outage must not spend attempts. If it fails, the lease expires.
func (s *Store) giveBack(c once.Claim, attempts int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.Release(ctx, c, max(attempts, 0))
}

func wrap(what string, key once.Key, err error) error {
	return fmt.Errorf("redisonce: %s %s: %w", what, key, err)
}

var _ once.Registrar = (*Store)(nil)

// programMemory is how long Redis remembers that a program uses a scope.
const programMemory = 7 * 24 * time.Hour

// Register implements once.Registrar: it remembers for a week that the program uses the scope, in a
// hash of its own, and returns the other programs that do.
func (s *Store) Register(ctx context.Context, scope, program string) (others []string, err error) {
	name := s.cfg.Prefix + "programs:{" + tagEscaper.Replace(scope) + "}"
	return await(ctx, func() ([]string, error) {
		var all *redis.MapStringStringCmd
		now := time.Now()
		_, err := s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, name, program, now.Unix())
			p.Expire(ctx, name, programMemory)
			all = p.HGetAll(ctx, name)
			return nil
		})
		if err != nil {
			return nil, err
		}
		for other, at := range all.Val() {
			seen, _ := strconv.ParseInt(at, 10, 64)
			if other != program && now.Sub(time.Unix(seen, 0)) < programMemory {
				others = append(others, other)
			}
		}
		slices.Sort(others)
		return others, nil
	}, nil)
}

// Extend implements once.Store.
func (s *Store) Extend(ctx context.Context, c once.Claim, lease time.Duration) error {
	if err := once.CheckLease(lease); err != nil {
		return err
	}
	return s.change(ctx, "extend", extendScript, c, true, micros(lease), millis(once.ForgottenTTL))
}

// Complete implements once.Store.
func (s *Store) Complete(ctx context.Context, c once.Claim, res once.Result, ttl time.Duration) error {
	if err := once.CheckTTL(ttl); err != nil {
		return err
	}
	return s.change(ctx, "complete", completeScript, c, true, millis(ttl), res.Data, res.ContentType, res.Meta)
}

// Release implements once.Store. It does not wait for replicas: a replica that misses the release
// keeps the key until the lease ends.
func (s *Store) Release(ctx context.Context, c once.Claim, attempts int) error {
	return s.change(ctx, "release", releaseScript, c, false, attempts)
}

// change runs a script that needs the claim. A claim of [Config.FailOpen] has no entry in Redis, so
// there is nothing to change.
func (s *Store) change(ctx context.Context, what string, script *redis.Script, c once.Claim, confirm bool,
	args ...any,
) error {
	if c.Fence == 0 && s.cfg.FailOpen != nil {
		return nil
	}
	r, err := s.run(ctx, script, c.Key, confirm, nil, append([]any{c.Owner, c.Fence}, args...)...)
	if err != nil {
		return wrap(what, c.Key, err)
	}
	switch r.word() {
	case "ok":
		return nil
	case "done":
		return wrap(what, c.Key, once.ErrAlreadyDone)
	case "lost":
		return wrap(what, c.Key, once.ErrLeaseLost)
	}
	return wrap(what, c.Key, r.unknown())
}

// Acquire implements once.Store. The fence is the server's clock in microseconds, or the latest
// fence plus one if that is higher. So the fence also grows across evictions, restarts and
// failovers, unless the clock was set back meanwhile.
func (s *Store) Acquire(ctx context.Context, req once.Request) (once.Acquired, error) {
	if err := req.Validate(); err != nil {
		return once.Acquired{}, err
	}
	got, err := s.acquire(ctx, req)
	if err == nil {
		return got, nil
	}
	err = wrap("acquire", req.Key, err)
	if s.cfg.FailOpen != nil && ctx.Err() == nil && s.cfg.FailOpen(req.Key, err) {
		return once.Acquired{State: once.Fresh}, nil
	}
	return once.Acquired{}, err
}

func (s *Store) acquire(ctx context.Context, req once.Request) (once.Acquired, error) {
	refuseStale := 0
	if req.RefuseStale {
		refuseStale = 1
	}
	claim := func(r reply) once.Claim {
		fence, _ := strconv.ParseInt(r.text(1), 10, 64)
		return once.Claim{Key: req.Key, Owner: req.Owner, Fence: fence}
	}
	late := func(r reply) {
		if r.word() == "fresh" {
			s.giveBack(claim(r), int(r.number(2))-1)
		}
	}
	r, err := s.run(ctx, acquireScript, req.Key, true, late,
		req.Owner, req.Fingerprint.String(), micros(req.Lease), millis(req.TTL), micros(2*once.MaxLease),
		refuseStale)
	if errors.Is(err, ErrReplicas) {
		late(r)
	}
	if err != nil {
		return once.Acquired{}, err
	}
	switch r.word() {
	case "fresh":
		if c := claim(r); c.Fence > 0 {
			return once.Acquired{
				State: once.Fresh, Fence: c.Fence, Attempt: int(r.number(2)),
				TakenOver: r.number(3) == 1, Age: time.Duration(r.number(4)) * time.Microsecond,
			}, nil
		}
	case "in_progress":
		return once.Acquired{State: once.InProgress, RetryAfter: time.Duration(r.number(1)) * time.Microsecond}, nil
	case "done":
		res := once.Result{Data: []byte(r.text(1)), ContentType: r.text(2), Meta: r.text(3)}
		return once.Acquired{State: once.Done, Result: res}, nil
	case "mismatch":
		return once.Acquired{State: once.Mismatch}, nil
	case "abandoned":
		return once.Acquired{State: once.Abandoned}, nil
	}
	return once.Acquired{}, r.unknown()
}

// micros and millis turn durations into numbers for the scripts, and round up.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// Middleware makes the handlers of a Watermill Router run at least once per message, and not again
// after that. It needs one statement:
//
//	router.AddMiddleware(redisonce.Middleware(client, "billing"))
//
// It is inbox.Leased on a Store with the defaults of Config. The documentation of this package has
// its promises; AtLeastOnce of package core/inbox describes failures. consumer is a name to choose
// once. Middleware asks the server for its eviction policy, as New does. It panics when an argument
// is wrong, such as a nil client or a Ring.
func Middleware(client redis.UniversalClient, consumer string, opts ...inbox.Option) message.HandlerMiddleware {
	store, err := New(client, Config{})
	if err != nil {
		//nolint:forbidigo // it panics at the start of the program, like Router.AddHandler; New returns an error
		panic(fmt.Sprintf("redisonce.Middleware: %v", err))
	}
	return inbox.Leased(store, consumer, opts...)
}
