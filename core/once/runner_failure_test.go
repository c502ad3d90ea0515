package once_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// faulty is a store whose calls fail on demand.
type faulty struct {
	*outboxtest.OnceStore
	acquire, extend, complete, release atomic.Pointer[error] // the error that the call returns without an effect
	lostAnswers                        atomic.Int32          // how many answers of Complete are lost
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
	return s.OnceStore.Acquire(ctx, req)
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

func (s *faulty) Release(ctx context.Context, c once.Claim) error {
	if err := fault(&s.release); err != nil {
		return err
	}
	return s.OnceStore.Release(ctx, c)
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
