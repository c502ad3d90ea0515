package once

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/cleaner"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/lease"
	"github.com/ormoutbox/ormoutbox/core/internal/repeat"
)

// Runner runs work once per key. Create it with New. It is safe for use by several goroutines and
// needs no closing.
type Runner struct {
	cfg  Config
	node string
	runs atomic.Uint64
	obs  Observer

	leases  lease.Keeper
	cleaner *cleaner.Cleaner[ArchivedKey]
}

// New returns a Runner, or an error that names every problem of cfg.
func New(cfg Config) (*Runner, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	node := cfg.Node
	if node == "" {
		host, _ := os.Hostname()
		node = fmt.Sprintf("%.100s/%d", host, os.Getpid())
	}
	var incarnation [8]byte
	_, _ = rand.Read(incarnation[:]) // never fails
	return &Runner{
		cfg: cfg, node: node + "/" + hex.EncodeToString(incarnation[:]), obs: cfg.Observer.withDefaults(),
		leases: lease.Keeper{
			Lease: cfg.Lease, Timeout: cfg.StoreTimeout, Lost: ErrLeaseLost,
			Over: func(err error) bool { return errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrAlreadyDone) },
		},
		cleaner: cleaner.New("Config.Archive", cfg.Archive),
	}, nil
}

// owner returns a unique name for one run.
func (r *Runner) owner() string { return r.node + "/" + strconv.FormatUint(r.runs.Add(1), 36) }

func (r *Runner) request(key Key, fp Fingerprint) Request {
	return Request{
		Key: key, Fingerprint: fp, Owner: r.owner(), Lease: r.cfg.Lease, TTL: r.cfg.TTL,
		RefuseStale: r.cfg.RefuseStale,
	}
}

// Do runs fn and keeps its result, in the lease form. If the work was done before, Do returns the
// kept result, and replayed is true.
//
// While fn runs, its lease is extended at each third of it. If the lease is lost, the context of fn
// ends with the cause [ErrLeaseLost]. fn should then stop, because another holder may have begun.
// [ClaimOf] gives fn the fence for systems that check one. If fn returns an error or panics, the
// key is free at once. [AttemptOf] gives fn the number of its attempt. After a crash between the
// effects of fn and the end of Do, fn runs again when the lease is over. So this form is
// at-least-once for effects that are not idempotent. DoTx and RunInTx are exactly-once.
//
// Before fn ran, Do may return [ErrInvalidKey], [ErrFingerprintMismatch], [ErrInProgress] with
// RetryAfter, [ErrAbandoned], [ErrStore], or the cause of the end of ctx, which leaves the key
// free. After fn ran, Do may return the error of fn, [ErrLeaseLost], [ErrAlreadyDone],
// [ErrInvalidResult], or ErrStore.
func (r *Runner) Do(ctx context.Context, key Key, fp Fingerprint,
	fn func(ctx context.Context) (Result, error),
) (res Result, replayed bool, err error) {
	if r.cfg.Store == nil {
		return Result{}, false, errors.New("once: Do needs Config.Store")
	}
	if fn == nil {
		return Result{}, false, errors.New("once: Do was given a nil function")
	}
	req := r.request(key, fp)
	if err := req.Validate(); err != nil {
		return Result{}, false, err
	}
	held := time.Now() // the lease ends no earlier than this plus its length
	got, err := r.acquire(ctx, req, &held)
	if err != nil || got.State == Done {
		return got.Result, err == nil, err
	}
	attempt := &Attempt{Number: got.Attempt, Age: got.Age, left: got.Attempt}
	claim := Claim{Key: key, Owner: req.Owner, Fence: got.Fence}
	if ctx.Err() != nil { // the caller left while the store was asked
		attempt.Refund()
		return Result{}, false, errors.Join(ended(ctx, key), r.release(ctx, claim, attempt))
	}
	res, err = r.run(ctx, claim, attempt, held, fn)
	return res, false, err
}

// acquire asks the store for the key, as long as [Config.Wait] allows. asked is set to the start of
// the last request.
func (r *Runner) acquire(ctx context.Context, req Request, asked *time.Time) (Acquired, error) {
	start, pause := time.Now(), firstPause
	for {
		if ctx.Err() != nil {
			return Acquired{}, ended(ctx, req.Key)
		}
		*asked = time.Now()
		got, err := r.ask(ctx, req)
		r.obs.Decided(DecideInfo{
			Key: req.Key, Form: formLease, State: got.State, TakenOver: got.TakenOver,
			Waited: time.Since(start), Err: err,
		})
		if err != nil {
			return Acquired{}, storeError("acquire", req.Key, err)
		}
		left := r.cfg.Wait - time.Since(start)
		if got.State != InProgress || left <= 0 {
			return got, refusal(req.Key, got)
		}
		wait := min(left, repeat.Jitter(pause))
		if got.RetryAfter > 0 {
			wait = min(wait, got.RetryAfter)
		}
		if !repeat.Sleep(ctx, wait) {
			return Acquired{}, errors.Join(refusal(req.Key, got), context.Cause(ctx))
		}
		pause = min(2*pause, maxPause)
	}
}

// ended returns the error of work that was not begun because ctx ended.
func ended(ctx context.Context, key Key) error {
	return errtext.Errorf("once: %s was not begun: %w", key, context.Cause(ctx))
}

// ask bounds one request to the store, because a store that hangs gives no answer. A request that
// failed is repeated once: without its answer, the key would not be released. The key of a request
// that got no answer in time is given back later. The end of ctx does not end the request: the
// store may have given the key to this process already, and without the answer the process could
// not give it back. The caller does not wait for that: a key that is granted after it has left is
// given back.
func (r *Runner) ask(ctx context.Context, req Request) (Acquired, error) {
	acquire := func() (Acquired, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.StoreTimeout)
		defer cancel()
		got, err := r.cfg.Store.Acquire(ctx, req)
		if err != nil && ctx.Err() == nil { // perhaps the key is held, and only the answer was lost
			got, err = r.cfg.Store.Acquire(ctx, req)
		}
		if err != nil && ctx.Err() != nil {
			go r.askToGiveBack(context.WithoutCancel(ctx), req)
		}
		return got, err
	}
	if _, ok := ctx.Deadline(); !ok { // a caller that is canceled gets an error, and the key is given back
		return acquire()
	}
	type answer struct {
		got Acquired
		err error
	}
	answered, left := make(chan answer), make(chan struct{})
	go func() {
		got, err := acquire()
		select {
		case answered <- answer{got, err}:
		case <-left:
			r.giveBack(ctx, req, got, err)
		}
	}()
	select {
	case a := <-answered:
		return a.got, a.err
	case <-ctx.Done():
		close(left)
		return Acquired{}, context.Cause(ctx)
	}
}

// askToGiveBack asks again for a key after a connection was silent for StoreTimeout. The store may
// have given the key.
func (r *Runner) askToGiveBack(ctx context.Context, req Request) {
	askCtx, cancel := context.WithTimeout(ctx, r.cfg.StoreTimeout)
	defer cancel()
	got, err := r.cfg.Store.Acquire(askCtx, req)
	r.giveBack(ctx, req, got, err)
}

// giveBack frees a key if a late answer has granted it.
func (r *Runner) giveBack(ctx context.Context, req Request, got Acquired, err error) {
	if err != nil || got.State != Fresh {
		return
	}
	attempt := &Attempt{Number: got.Attempt, left: got.Attempt}
	attempt.Refund()
	_ = r.release(ctx, Claim{Key: req.Key, Owner: req.Owner, Fence: got.Fence}, attempt)
}

const (
	firstPause = 10 * time.Millisecond
	maxPause   = 250 * time.Millisecond
)

// refusal returns the error for a state in which the work is not run and there is no result.
func refusal(key Key, got Acquired) error {
	switch got.State {
	case InProgress:
		return &inProgress{key, got.RetryAfter}
	case Mismatch:
		return fmt.Errorf("%w: %s", ErrFingerprintMismatch, key)
	case Abandoned:
		return fmt.Errorf("%w: %s", ErrAbandoned, key)
	case Fresh, Done:
		return nil
	}
	return fmt.Errorf("%w: unknown %s of %s", ErrStore, got.State, key)
}

func storeError(what string, key Key, err error) error {
	switch {
	case errors.Is(err, ErrInvalidKey), errors.Is(err, ErrInvalidRequest), errors.Is(err, ErrLeaseLost),
		errors.Is(err, ErrAlreadyDone):
		return errtext.Errorf("once: %s %s: %w", what, key, err)
	}
	return errtext.Errorf("%w: %s %s: %w", ErrStore, what, key, err)
}

// run runs fn under a lease and records its end.
func (r *Runner) run(ctx context.Context, c Claim, attempt *Attempt, held time.Time,
	fn func(context.Context) (Result, error),
) (res Result, err error) {
	start, finished := time.Now(), false
	runCtx, cancel := context.WithCancelCause(context.WithValue(context.WithValue(ctx, claimKey{}, c), attemptKey{},
		attempt))
	stop := r.leases.Keep(runCtx, held,
		func(ctx context.Context) error { return r.cfg.Store.Extend(ctx, c, r.cfg.Lease) },
		func(err error) {
			cancel(err)
			r.obs.LeaseLost(c.Key, err)
		})
	defer func() {
		stop()
		cancel(nil)
		var panicked any
		if !finished { // fn panicked, or called runtime.Goexit
			panicked = recover()
			_ = r.release(ctx, c, attempt)
			err = didNotReturn(panicked)
		}
		r.obs.Ran(RunInfo{Key: c.Key, Form: formLease, Attempt: attempt.Number, Duration: time.Since(start), Err: err})
		if panicked != nil {
			panic(panicked) //nolint:forbidigo // the panic of the caller's function goes on
		}
	}()

	res, err = fn(runCtx)
	finished = true
	stop()
	if err == nil {
		err = res.Validate(r.cfg.MaxResult)
	}
	if err != nil {
		if cause := context.Cause(runCtx); errors.Is(cause, ErrLeaseLost) {
			err = errtext.Errorf("%w: %w", ErrLeaseLost, err)
		}
		if rerr := r.release(ctx, c, attempt); rerr != nil && !errors.Is(err, ErrLeaseLost) {
			err = errors.Join(err, rerr)
		}
		return Result{}, err
	}
	err = r.record(ctx, "complete", c.Key,
		func(ctx context.Context) error { return r.cfg.Store.Complete(ctx, c, res, r.cfg.TTL) })
	if err != nil {
		return Result{}, err
	}
	return res, nil
}

// didNotReturn returns the error of work that panicked with v. A nil v means that it called
// runtime.Goexit.
func didNotReturn(v any) error {
	return fmt.Errorf("once: the work did not return: %w", core.NewPanicError(v))
}

func (r *Runner) release(ctx context.Context, c Claim, a *Attempt) error {
	return r.record(ctx, "release", c.Key,
		func(ctx context.Context) error { return r.cfg.Store.Release(ctx, c, a.left) })
}

// record writes the end of the work: see lease.Keeper.
func (r *Runner) record(ctx context.Context, what string, key Key, write func(context.Context) error) error {
	if err := r.leases.Record(ctx, write); err != nil {
		return storeError(what, key, err)
	}
	return nil
}

type claimKey struct{}

// ClaimOf returns the claim of the work that runs with ctx. ok is false in the transaction form and
// outside of work.
func ClaimOf(ctx context.Context) (c Claim, ok bool) {
	c, ok = ctx.Value(claimKey{}).(Claim)
	return c, ok
}

// Attempt describes one run of the work, and controls how its failure counts. It belongs to one
// run. Goroutines must not call its methods at the same time.
type Attempt struct {
	// Number is how often the key was acquired since it was new, this run included. 0: the store
	// does not count.
	Number int
	// Age is the time since the key was first acquired. 0: this is the first attempt, or the store
	// has no count.
	Age time.Duration

	left int // attempts that count after a failure
}

// AttemptOf returns the attempt of the work that runs with ctx. It is nil in the transaction form
// and outside of work.
func AttemptOf(ctx context.Context) *Attempt {
	a, _ := ctx.Value(attemptKey{}).(*Attempt)
	return a
}

// Refund makes a failure of this attempt not count, because the work has no part in the failure.
func (a *Attempt) Refund() {
	if a != nil {
		a.left = max(a.Number-1, 0)
	}
}

// Reset sets the count of attempts to zero if this attempt fails. The key is then like a new one,
// its age included. Call it when the work is given up and handed to a person.
func (a *Attempt) Reset() {
	if a != nil {
		a.left = 0
	}
}

type attemptKey struct{}

// Cleanup deletes the keys whose time to live is over, chunk by chunk, until none is left or ctx
// ends. It returns how many it deleted. Any number of processes may call it at once.
// [Config.Archive] gets the keys first.
func (r *Runner) Cleanup(ctx context.Context) (deleted int, err error) {
	if r.cfg.Store == nil {
		return 0, errors.New("once: Cleanup needs Config.Store")
	}
	for {
		n, more, err := r.cleanSome(ctx)
		r.obs.Cleaned(n, err)
		deleted += n
		if err != nil {
			return deleted, errtext.Errorf("%w: cleanup: %w", ErrStore, err)
		}
		if !more {
			return deleted, nil
		}
	}
}

// cleanSome deletes a chunk, and reports whether there may be more.
func (r *Runner) cleanSome(ctx context.Context) (deleted int, more bool, err error) {
	return r.cleaner.Some(ctx, r.cfg.CleanupBatch,
		func(limit int) (int, error) { return r.cfg.Store.Cleanup(ctx, limit) },
		func(limit int, fn func(context.Context, []ArchivedKey) error) (int, error) {
			return r.cfg.Store.(Archiver).Archive(ctx, limit, fn)
		})
}

// Run cleans up every [Config.CleanupInterval] until ctx ends; then it returns nil. Errors of the
// store go to the Observer and do not end Run. One process that runs it is enough; several may.
func (r *Runner) Run(ctx context.Context) error {
	if r.cfg.Store == nil {
		return errors.New("once: Run needs Config.Store")
	}
	for {
		_, _ = r.Cleanup(ctx) // the Observer got the error
		if !repeat.Sleep(ctx, repeat.Jitter(r.cfg.CleanupInterval)) {
			return nil
		}
	}
}
