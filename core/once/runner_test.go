package once_test

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

var (
	key     = once.Key{Scope: "test", Tenant: "acme", ID: "1"}
	noPrint once.Fingerprint
	errWork = errors.New("the work failed")
	errDown = errors.New("the store is down")
)

func newRunner(t *testing.T, cfg once.Config) *once.Runner {
	t.Helper()
	r, err := once.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func returns(data string) func(context.Context) (once.Result, error) {
	return func(context.Context) (once.Result, error) { return once.Result{Data: []byte(data)}, nil }
}

// never returns work that fails the test if it is run.
func never(t *testing.T) func(context.Context) (once.Result, error) {
	t.Helper()
	return func(context.Context) (once.Result, error) {
		t.Error("the work was run")
		return once.Result{}, nil
	}
}

// parting is a store whose caller leaves during a call. The store has carried out the call before
// it checks the context.
type parting struct {
	*outboxtest.OnceStore
	leave context.CancelCauseFunc
}

func (s *parting) Acquire(ctx context.Context, req once.Request) (once.Acquired, error) {
	got, err := s.OnceStore.Acquire(context.WithoutCancel(ctx), req)
	s.leave(errLeft)
	if ctx.Err() != nil {
		return once.Acquired{}, ctx.Err()
	}
	return got, err
}

var errLeft = errors.New("the caller left")

// If a caller leaves while its key is being taken, the key is free, and the attempt does not count.
func TestDoFreesTheKeyOfOneWhoLeft(t *testing.T) {
	store := outboxtest.NewRepository().OnceStore()
	for range 2 { // the second time, the caller leaves before the call
		ctx, leave := context.WithCancelCause(t.Context())
		r := newRunner(t, once.Config{Store: &parting{store, leave}, Wait: -1})
		for range 2 {
			if _, _, err := r.Do(ctx, key, noPrint, never(t)); !errors.Is(err, errLeft) ||
				errors.Is(err, once.ErrStore) {
				t.Errorf("Do returned %v, want the cause of the end", err)
			}
		}
	}
	attempt := 0
	r := newRunner(t, once.Config{Store: store, Wait: -1})
	_, _, err := r.Do(t.Context(), key, noPrint, func(ctx context.Context) (once.Result, error) {
		attempt = once.AttemptOf(ctx).Number
		return once.Result{}, nil
	})
	if err != nil || attempt != 1 {
		t.Errorf("then: %v, attempt %d", err, attempt)
	}
}

func TestDoReplays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(t, once.Config{Store: outboxtest.NewOnceStore()})
		res, replayed, err := r.Do(t.Context(), key, noPrint, returns("a"))
		if err != nil || replayed || string(res.Data) != "a" {
			t.Errorf("first: %q, %t, %v", res.Data, replayed, err)
		}
		res, replayed, err = r.Do(t.Context(), key, noPrint, never(t))
		if err != nil || !replayed || string(res.Data) != "a" {
			t.Errorf("again: %q, %t, %v", res.Data, replayed, err)
		}
		time.Sleep(24*time.Hour + time.Second)
		res, replayed, err = r.Do(t.Context(), key, noPrint, returns("b"))
		if err != nil || replayed || string(res.Data) != "b" {
			t.Errorf("a day later: %q, %t, %v", res.Data, replayed, err)
		}
	})
}

func TestDoRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{OnceStore: outboxtest.NewOnceStore()}
		r := newRunner(t, once.Config{Store: s})
		a, b := once.FingerprintOf([]byte("a")), once.FingerprintOf([]byte("b"))
		if _, _, err := r.Do(t.Context(), key, a, returns("a")); err != nil {
			t.Fatal(err)
		}
		if res, _, err := r.Do(t.Context(), key, b, never(t)); !errors.Is(err, once.ErrFingerprintMismatch) ||
			!res.IsZero() {
			t.Errorf("another fingerprint: %v, %v", res, err)
		}
		if _, _, err := r.Do(t.Context(), once.Key{}, a, never(t)); !errors.Is(err, once.ErrInvalidKey) {
			t.Errorf("no key: %v", err)
		}
		if _, _, err := r.Do(t.Context(), key, a, nil); err == nil {
			t.Error("a nil function was accepted")
		}
		s.acquire.Store(&errDown)
		_, _, err := r.Do(t.Context(), key, a, never(t))
		if !errors.Is(err, once.ErrStore) || !errors.Is(err, errDown) {
			t.Errorf("a store that is down: %v", err)
		}
	})
}

func TestDoFreesTheKeyOfFailedWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := outboxtest.NewOnceStore()
		r := newRunner(t, once.Config{Store: s, MaxResult: 3})
		for name, tt := range map[string]struct {
			fn   func(context.Context) (once.Result, error)
			want error
		}{
			"an error": {func(context.Context) (once.Result, error) {
				return once.Result{Data: []byte("x")}, errWork
			}, errWork},
			"a large result": {returns("four"), once.ErrInvalidResult},
			"a broken result": {
				func(context.Context) (once.Result, error) { return once.Result{Meta: "\xff"}, nil },
				once.ErrInvalidResult,
			},
			"a cancelled work": {
				func(context.Context) (once.Result, error) { return once.Result{}, context.Canceled },
				context.Canceled,
			},
		} {
			key := once.Key{Scope: "test", ID: name}
			res, replayed, err := r.Do(t.Context(), key, noPrint, tt.fn)
			if !errors.Is(err, tt.want) || replayed || !res.IsZero() {
				t.Errorf("%s: %v, %t, %v", name, res, replayed, err)
			}
			if _, replayed, err := r.Do(t.Context(), key, noPrint, returns("ok")); err != nil || replayed {
				t.Errorf("after %s: %t, %v", name, replayed, err)
			}
		}

		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v", p)
				}
			}()
			_, _, _ = r.Do(t.Context(), key, noPrint, func(context.Context) (once.Result, error) { panic("boom") })
		}()
		if _, replayed, err := r.Do(t.Context(), key, noPrint, returns("ok")); err != nil || replayed {
			t.Errorf("after a panic: %t, %v", replayed, err)
		}
	})
}

// The result is recorded even if the caller has left.
func TestDoRecordsAfterTheCallerLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(t, once.Config{Store: outboxtest.NewOnceStore()})
		for _, want := range []error{nil, errWork} {
			key := once.Key{Scope: "test", ID: map[bool]string{true: "done", false: "failed"}[want == nil]}
			ctx, cancel := context.WithCancel(t.Context())
			_, _, err := r.Do(ctx, key, noPrint, func(context.Context) (once.Result, error) {
				cancel()
				return once.Result{}, want
			})
			if !errors.Is(err, want) {
				t.Errorf("%s: %v", key, err)
			}
			if _, replayed, err := r.Do(t.Context(), key, noPrint, returns("x")); err != nil ||
				replayed != (want == nil) {
				t.Errorf("%s again: %t, %v", key, replayed, err)
			}
		}
	})
}

func TestDoInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := outboxtest.NewOnceStore()
		r := newRunner(t, once.Config{Wait: -1, Store: s, Lease: 9 * time.Second})
		patient := newRunner(t, once.Config{Store: s, Wait: time.Minute})
		hasty := newRunner(t, once.Config{Store: s, Wait: 2 * time.Second})
		var wg sync.WaitGroup
		work := make(chan struct{})
		wg.Go(func() {
			_, _, err := r.Do(t.Context(), key, noPrint, func(context.Context) (once.Result, error) {
				<-work
				return once.Result{Data: []byte("a")}, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()

		_, _, err := r.Do(t.Context(), key, noPrint, never(t))
		if !errors.Is(err, once.ErrInProgress) || once.RetryAfter(err) != 9*time.Second {
			t.Errorf("not waiting: %v, retry after %s", err, once.RetryAfter(err))
		}
		start := time.Now()
		usual := newRunner(t, once.Config{Store: s})
		if _, _, err := usual.Do(t.Context(), key, noPrint, never(t)); !errors.Is(err, once.ErrInProgress) ||
			time.Since(start) != 5*time.Second {
			t.Errorf("waiting by default: %v after %s", err, time.Since(start))
		}
		start = time.Now()
		if _, _, err := hasty.Do(t.Context(), key, noPrint, never(t)); !errors.Is(err, once.ErrInProgress) ||
			time.Since(start) != 2*time.Second {
			t.Errorf("waiting two seconds: %v after %s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := patient.Do(ctx, key, noPrint, never(t)); !errors.Is(err, context.DeadlineExceeded) ||
			!errors.Is(err, once.ErrInProgress) {
			t.Errorf("with a deadline: %v", err)
		}
		wg.Go(func() {
			res, replayed, err := patient.Do(t.Context(), key, noPrint, never(t))
			if err != nil || !replayed || string(res.Data) != "a" {
				t.Errorf("waiting long: %q, %t, %v", res.Data, replayed, err)
			}
		})
		time.Sleep(30 * time.Second) // more than three leases
		if _, _, err := r.Do(t.Context(), key, noPrint, never(t)); !errors.Is(err, once.ErrInProgress) {
			t.Errorf("after three leases: %v", err)
		}
		close(work)
		wg.Wait()
	})
	if once.RetryAfter(errWork) != 0 || once.RetryAfter(nil) != 0 {
		t.Error("RetryAfter of other errors is not 0")
	}
}

// The key of a process that died is taken over when its lease ends.
func TestDoTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := outboxtest.NewOnceStore()
		crashed := once.Request{Key: key, Owner: "crashed", Lease: 10 * time.Second, TTL: time.Hour}
		if _, err := s.Acquire(t.Context(), crashed); err != nil {
			t.Fatal(err)
		}
		refusing := newRunner(t, once.Config{Store: s, RefuseStale: true})
		var decided []once.DecideInfo
		waiting := newRunner(t, once.Config{
			Store: s, Wait: time.Minute,
			Observer: &once.Observer{Decided: func(i once.DecideInfo) { decided = append(decided, i) }},
		})
		time.Sleep(10 * time.Second)
		if _, _, err := refusing.Do(t.Context(), key, noPrint, never(t)); !errors.Is(err, once.ErrAbandoned) {
			t.Errorf("refusing: %v", err)
		}
		_, replayed, err := waiting.Do(t.Context(), key, noPrint, func(ctx context.Context) (once.Result, error) {
			if c, ok := once.ClaimOf(ctx); !ok || c.Key != key || c.Fence != 2 || c.Owner == "" {
				t.Errorf("the claim is %+v, %t", c, ok)
			}
			return once.Result{}, nil
		})
		if err != nil || replayed {
			t.Errorf("%t, %v", replayed, err)
		}
		if n := len(decided); n == 0 || !decided[n-1].TakenOver || decided[n-1].State != once.Fresh ||
			decided[n-1].Form != "lease" {
			t.Errorf("decided %+v", decided)
		}
	})
	if _, ok := once.ClaimOf(t.Context()); ok {
		t.Error("a claim outside of Do")
	}
}

func TestDoManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(t, once.Config{Store: outboxtest.NewOnceStore(), Wait: time.Minute})
		var runs, replays atomic.Int32
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				res, replayed, err := r.Do(t.Context(), key, noPrint, func(context.Context) (once.Result, error) {
					runs.Add(1)
					time.Sleep(time.Second)
					return once.Result{Data: []byte("a")}, nil
				})
				if err != nil || string(res.Data) != "a" {
					t.Errorf("%q, %v", res.Data, err)
				}
				if replayed {
					replays.Add(1)
				}
			})
		}
		wg.Wait()
		if runs.Load() != 1 || replays.Load() != 63 {
			t.Errorf("%d runs, %d replays", runs.Load(), replays.Load())
		}
	})
}

func TestObserverHearsOfRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran []once.RunInfo
		r := newRunner(t, once.Config{
			Store:    outboxtest.NewOnceStore(),
			Observer: &once.Observer{Ran: func(i once.RunInfo) { ran = append(ran, i) }},
		})
		_, _, _ = r.Do(t.Context(), key, noPrint, func(context.Context) (once.Result, error) {
			time.Sleep(time.Second)
			return once.Result{}, errWork
		})
		func() {
			defer func() { _ = recover() }()
			_, _, _ = r.Do(t.Context(), key, noPrint, func(context.Context) (once.Result, error) { panic("boom") })
		}()
		_, _, _ = r.Do(t.Context(), key, noPrint, returns("a"))
		_, _, _ = r.Do(t.Context(), key, noPrint, never(t)) // a replay does not run the work
		if len(ran) != 3 || !errors.Is(ran[0].Err, errWork) || ran[0].Duration != time.Second || ran[1].Err == nil ||
			ran[2].Err != nil || ran[2].Attempt != 3 ||
			ran[2].Key != key || ran[2].Form != "lease" {
			t.Errorf("heard of %+v", ran)
		}
	})
}

// faulty is a store whose calls fail on demand.
type faulty struct {
	*outboxtest.OnceStore
	acquire, extend, complete, release atomic.Pointer[error] // the error that the call returns without an effect
	lostAnswers                        atomic.Int32          // how many answers of Complete are lost
	lostGrants                         atomic.Int32          // how many answers of Acquire are lost
	hangs                              bool                  // a lost answer of Acquire is no error: nothing comes
	extends                            atomic.Int32
}

func fault(p *atomic.Pointer[error]) error {
	if err := p.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *faulty) Acquire(ctx context.Context, req once.Request) (once.Acquired, error) {
	if err := fault(&s.acquire); err != nil {
		return once.Acquired{}, err
	}
	got, err := s.OnceStore.Acquire(ctx, req)
	if s.lostGrants.Add(-1) >= 0 {
		if s.hangs {
			<-ctx.Done()
			return once.Acquired{}, ctx.Err()
		}
		return once.Acquired{}, errDown
	}
	return got, err
}

func (s *faulty) Extend(ctx context.Context, c once.Claim, lease time.Duration) error {
	s.extends.Add(1)
	if err := fault(&s.extend); err != nil {
		return err
	}
	return s.OnceStore.Extend(ctx, c, lease)
}

func (s *faulty) Complete(ctx context.Context, c once.Claim, res once.Result, ttl time.Duration) error {
	if err := fault(&s.complete); err != nil {
		return err
	}
	err := s.OnceStore.Complete(ctx, c, res, ttl)
	if s.lostAnswers.Add(-1) >= 0 {
		return errDown
	}
	return err
}

func (s *faulty) Release(ctx context.Context, c once.Claim, attempts int) error {
	if err := fault(&s.release); err != nil {
		return err
	}
	return s.OnceStore.Release(ctx, c, attempts)
}

// stolen runs work while another owner takes its key, and returns the error of Do.
func stolen(t *testing.T, r *once.Runner, s *outboxtest.OnceStore, complete bool,
	work func(ctx context.Context) (once.Result, error),
) error {
	t.Helper()
	_, _, err := r.Do(t.Context(), key, noPrint, func(ctx context.Context) (once.Result, error) {
		s.ShiftClock(time.Minute)
		thief := once.Request{Key: key, Owner: "thief", Lease: time.Minute, TTL: time.Hour}
		got, err := s.Acquire(t.Context(), thief)
		if err != nil || got.State != once.Fresh {
			t.Errorf("the thief got %+v, %v", got, err)
		}
		if complete {
			if err := s.Complete(t.Context(), once.Claim{Key: key, Owner: "thief", Fence: got.Fence},
				once.Result{Data: []byte("stolen")}, time.Hour); err != nil {
				t.Error(err)
			}
		}
		return work(ctx)
	})
	return err
}

func TestDoLosesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := outboxtest.NewOnceStore()
		var lost []error
		r := newRunner(t,
			once.Config{
				Store:    s,
				Observer: &once.Observer{LeaseLost: func(_ once.Key, err error) { lost = append(lost, err) }},
			})
		start := time.Now()
		err := stolen(t, r, s, false, func(ctx context.Context) (once.Result, error) {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), once.ErrLeaseLost) {
				t.Errorf("the cause is %v", context.Cause(ctx))
			}
			return once.Result{}, ctx.Err()
		})
		if !errors.Is(err, once.ErrLeaseLost) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("noticed after %s, want a third of the lease", d)
		}
		if len(lost) != 1 || !errors.Is(lost[0], once.ErrLeaseLost) {
			t.Errorf("heard of %v", lost)
		}
	})
	for complete, want := range map[bool]error{true: once.ErrAlreadyDone, false: once.ErrLeaseLost} {
		synctest.Test(t, func(t *testing.T) {
			s := outboxtest.NewOnceStore()
			if err := stolen(t, newRunner(t, once.Config{Store: s}), s, complete, returns("mine")); !errors.Is(err,
				want) {
				t.Errorf("work that did not notice: %v, want %v", err, want)
			}
			if complete {
				if res, _, err := newRunner(t, once.Config{Store: s}).Do(t.Context(), key, noPrint,
					never(t)); err != nil || string(res.Data) != "stolen" {
					t.Errorf("the result is %q, %v", res.Data, err)
				}
			}
		})
	}
}

// The store gives the key, and its answer is lost. The caller holds the key all the same, and the
// work runs at once. It is the first attempt, also for callers that refuse to take over.
func TestDoAsksAgainWhenTheAnswerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{OnceStore: outboxtest.NewOnceStore()}
		s.lostGrants.Store(1)
		start := time.Now()
		_, replayed, err := newRunner(t, once.Config{Store: s, RefuseStale: true}).Do(t.Context(), key, noPrint,
			firstAttempt(t))
		if err != nil || replayed || time.Since(start) > time.Second {
			t.Errorf("replayed %t, %v after %s", replayed, err, time.Since(start))
		}
	})
}

// The store gives the key, and the connection says nothing any more. The caller hears of that after
// StoreTimeout, or at its own deadline. The key is free for the next one before its lease ends.
func TestDoGivesBackWhatNobodyHeardOf(t *testing.T) {
	for _, deadline := range []time.Duration{time.Hour, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := &faulty{OnceStore: outboxtest.NewOnceStore(), hangs: true}
			s.lostGrants.Store(1)
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			if deadline == time.Hour {
				ctx = t.Context()
			}
			r := newRunner(t, once.Config{Store: s, RefuseStale: true})
			if _, _, err := r.Do(ctx, key, noPrint, never(t)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			start := time.Now()
			_, _, err := r.Do(t.Context(), key, noPrint, firstAttempt(t))
			if err != nil || time.Since(start) > 5*time.Second {
				t.Errorf("the next caller: %v after %s", err, time.Since(start))
			}
		})
	}
}

func firstAttempt(t *testing.T) func(context.Context) (once.Result, error) {
	return func(ctx context.Context) (once.Result, error) {
		if a := once.AttemptOf(ctx); a.Number != 1 {
			t.Errorf("attempt %d", a.Number)
		}
		return once.Result{}, nil
	}
}

// A store that cannot be reached for a short time does no harm. An outage longer than the lease
// ends the work.
func TestDoDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{OnceStore: outboxtest.NewOnceStore()}
		r := newRunner(t, once.Config{Store: s, Lease: 30 * time.Second})
		_, _, err := r.Do(t.Context(), key, noPrint, func(ctx context.Context) (once.Result, error) {
			time.Sleep(time.Second)
			s.extend.Store(&errDown)
			time.Sleep(27 * time.Second)
			s.extend.Store(nil)
			time.Sleep(time.Minute)
			return once.Result{}, ctx.Err()
		})
		if err != nil {
			t.Errorf("a short outage: %v", err)
		}

		other := once.Key{Scope: "test", ID: "long"}
		start := time.Now()
		_, _, err = r.Do(t.Context(), other, noPrint, func(ctx context.Context) (once.Result, error) {
			s.extend.Store(&errDown)
			<-ctx.Done()
			if d := time.Since(start); d != 30*time.Second {
				t.Errorf("the work ended after %s, want the lease", d)
			}
			return once.Result{}, context.Cause(ctx)
		})
		if !errors.Is(err, once.ErrLeaseLost) || !errors.Is(err, errDown) {
			t.Errorf("a long outage: %v", err)
		}
	})
}

func TestDoCannotComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{OnceStore: outboxtest.NewOnceStore()}
		r := newRunner(t, once.Config{Store: s})
		s.lostAnswers.Store(3)
		if res, _, err := r.Do(t.Context(), key, noPrint, returns("a")); err != nil || string(res.Data) != "a" {
			t.Errorf("lost answers: %q, %v", res.Data, err)
		}

		s.complete.Store(&errDown)
		other := once.Key{Scope: "test", ID: "2"}
		start := time.Now()
		res, _, err := r.Do(t.Context(), other, noPrint, returns("a"))
		if !errors.Is(err, once.ErrStore) || !res.IsZero() || time.Since(start) != 5*time.Second {
			t.Errorf("%v, %v after %s", res, err, time.Since(start))
		}
		s.complete.Store(nil)
		if _, _, err := r.Do(t.Context(), other, noPrint, never(t)); !errors.Is(err, once.ErrInProgress) {
			t.Errorf("while its lease lasts: %v", err)
		}
		time.Sleep(once.RetryAfter(err) + 30*time.Second)
		if _, replayed, err := r.Do(t.Context(), other, noPrint, returns("b")); err != nil || replayed {
			t.Errorf("after its lease: %t, %v", replayed, err)
		}

		s.release.Store(&errDown)
		_, _, err = r.Do(t.Context(), once.Key{Scope: "test", ID: "3"}, noPrint,
			func(context.Context) (once.Result, error) { return once.Result{}, errWork })
		if !errors.Is(err, errWork) || !errors.Is(err, errDown) {
			t.Errorf("a release that failed: %v", err)
		}
	})
}

// chargeCard is a function of the work. The stack of a panic must name it.
func chargeCard() { panic("no card") }

// A panic of the work goes on with its value and its stack. The Observer gets both. It gets
// runtime.Goexit as an error of its own.
func TestPanicsAreTold(t *testing.T) {
	var told error
	w := newWorld(t, once.Config{Observer: &once.Observer{Ran: func(i once.RunInfo) { told = i.Err }}})
	lease := newRunner(t, once.Config{
		Store:    outboxtest.NewOnceStore(),
		Observer: &once.Observer{Ran: func(i once.RunInfo) { told = i.Err }},
	})
	for form, run := range map[string]func(fn func()){
		"lease": func(fn func()) {
			_, _, _ = lease.Do(t.Context(), key, noPrint,
				func(context.Context) (once.Result, error) { fn(); return once.Result{}, nil })
		},
		"tx": func(fn func()) {
			_, _, _ = w.RunInTx(t.Context(), w.Transactor, key, noPrint,
				func(context.Context, core.Tx) (once.Result, error) { fn(); return once.Result{}, nil })
		},
	} {
		outside := func(fn func()) (v any, stack string) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { v, stack = recover(), string(debug.Stack()) }()
				run(fn)
				t.Errorf("%s: it returned", form)
			}()
			<-done
			return v, stack
		}
		if v, stack := outside(chargeCard); v != "no card" || !strings.Contains(stack, "once_test.chargeCard") {
			t.Errorf("%s: %v went on, with the stack\n%s", form, v, stack)
		}
		if p, ok := errors.AsType[*core.PanicError](told); !ok || p.Value != "no card" ||
			!strings.Contains(string(p.Stack), "once_test.chargeCard") ||
			!strings.HasSuffix(told.Error(), ": panic: no card") {
			t.Errorf("%s: told %v", form, told)
		}
		if v, _ := outside(runtime.Goexit); v != nil {
			t.Errorf("%s: runtime.Goexit went on as %v", form, v)
		}
		if p, ok := errors.AsType[*core.PanicError](told); !ok || p.Value != nil ||
			!strings.Contains(told.Error(), "runtime.Goexit") {
			t.Errorf("%s: runtime.Goexit was told as %v", form, told)
		}
	}
}
