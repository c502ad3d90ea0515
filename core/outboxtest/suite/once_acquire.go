package suite

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core/once"
)

func onceAcquireCases() []onceCase {
	return []onceCase{
		{"a new key is fresh", func(f *onceFixture) {
			got := f.acquire(onceRequest(keyOf("k")))
			f.must(got.State == once.Fresh && got.Fence > 0 && !got.TakenOver, "got %+v", got)
			f.must(got.Attempt == 1 || got.Attempt == 0, "attempt %d", got.Attempt)
		}},
		{"a held key is in progress until its lease ends", func(f *onceFixture) {
			req := onceRequest(keyOf("k"))
			f.fresh(req)
			got := f.acquire(onceRequest(req.Key))
			f.must(got.State == once.InProgress && got.RetryAfter > 0 && got.RetryAfter <= longLease,
				"another owner got %+v", got)
		}},
		{"a holder that asks again gets the same answer", func(f *onceFixture) {
			req := onceRequest(keyOf("k"))
			first := f.acquire(req)
			second := f.acquire(req)
			first.Age, second.Age = 0, 0
			f.must(first.State == once.Fresh && !second.TakenOver && first.Fence == second.Fence &&
				first.Attempt == second.Attempt &&
				second.State == once.Fresh, "got %+v, then %+v", first, second)
			f.wantState(req.Key, once.InProgress)
			f.complete(once.Claim{Key: req.Key, Owner: req.Owner, Fence: first.Fence}, once.Result{})
			f.wantState(req.Key, once.Done)
		}},
		{"a holder that took a key over and asks again gets the same answer", func(f *onceFixture) {
			old := f.stale(keyOf("k"), once.Fingerprint{})
			req := onceRequest(old.Key)
			first := f.acquire(req)
			req.RefuseStale = true
			second := f.acquire(req)
			f.must(first.Fence > old.Fence && second.State == once.Fresh && second.Fence == first.Fence &&
				second.Attempt == first.Attempt && second.TakenOver == first.TakenOver,
				"got %+v, then %+v", first, second)
			c := once.Claim{Key: req.Key, Owner: req.Owner, Fence: first.Fence}
			f.check(f.store.Extend(f.Context(), c, longLease))
		}},
		{"a done key gives its result", func(f *onceFixture) {
			want := once.Result{Data: []byte("result"), ContentType: "text/plain", Meta: `{"status":201}`}
			f.complete(f.fresh(onceRequest(keyOf("k"))), want)
			for range 2 {
				got := f.acquire(onceRequest(keyOf("k")))
				f.must(got.State == once.Done, "it is %s", got.State)
				f.wantResult(got.Result, want)
			}
		}},
		{"a fingerprint is looked at before anything else", func(f *onceFixture) {
			req := onceRequest(keyOf("k"))
			req.Fingerprint = fingerprintA
			c := f.fresh(req)
			other := onceRequest(keyOf("k"))
			other.Fingerprint = fingerprintB
			if got := f.acquire(other); got.State != once.Mismatch {
				f.Errorf("a held key is %s", got.State)
			}
			f.complete(c, once.Result{Data: []byte("secret of the first")})
			if got := f.acquire(other); got.State != once.Mismatch || len(got.Result.Data) != 0 {
				f.Errorf("a done key is %s with result %q", got.State, got.Result.Data)
			}
			same := onceRequest(keyOf("k"))
			same.Fingerprint = fingerprintA
			if got := f.acquire(same); got.State != once.Done {
				f.Errorf("the same fingerprint: %s", got.State)
			}
		}},
		{"no fingerprint matches every other", func(f *onceFixture) {
			with, without := onceRequest(keyOf("k")), onceRequest(keyOf("k"))
			with.Fingerprint = fingerprintA
			f.fresh(with)
			if got := f.acquire(without); got.State != once.InProgress {
				f.Errorf("asked without: %s", got.State)
			}
			without, with = onceRequest(keyOf("l")), onceRequest(keyOf("l"))
			with.Fingerprint = fingerprintA
			f.fresh(without)
			if got := f.acquire(with); got.State != once.InProgress {
				f.Errorf("stored without: %s", got.State)
			}
		}},
		{"bad requests are refused and write nothing", func(f *onceFixture) {
			for name, tt := range map[string]struct {
				change func(*once.Request)
				want   error
			}{
				"no scope": {func(r *once.Request) { r.Key.Scope = "" }, once.ErrInvalidKey},
				"a long scope": {
					func(r *once.Request) { r.Key.Scope = strings.Repeat("s", once.MaxScope+1) },
					once.ErrInvalidKey,
				},
				"a long tenant": {
					func(r *once.Request) { r.Key.Tenant = strings.Repeat("t", once.MaxTenant+1) },
					once.ErrInvalidKey,
				},
				"no id": {func(r *once.Request) { r.Key.ID = "" }, once.ErrInvalidKey},
				"a long id": {
					func(r *once.Request) { r.Key.ID = strings.Repeat("i", once.MaxID+1) },
					once.ErrInvalidKey,
				},
				"a very long id": {
					func(r *once.Request) { r.Key.ID = strings.Repeat("i", 1<<20) },
					once.ErrInvalidKey,
				},
				"NUL":           {func(r *once.Request) { r.Key.ID = "k\x00" }, once.ErrInvalidKey},
				"a line break":  {func(r *once.Request) { r.Key.ID = "k\n" }, once.ErrInvalidKey},
				"invalid UTF-8": {func(r *once.Request) { r.Key.ID = "k\xff" }, once.ErrInvalidKey},
				"no owner":      {func(r *once.Request) { r.Owner = "" }, once.ErrInvalidRequest},
				"a long owner": {
					func(r *once.Request) { r.Owner = strings.Repeat("o", once.MaxOwner+1) },
					once.ErrInvalidRequest,
				},
				"no lease":        {func(r *once.Request) { r.Lease = 0 }, once.ErrInvalidRequest},
				"negative lease":  {func(r *once.Request) { r.Lease = -time.Second }, once.ErrInvalidRequest},
				"endless lease":   {func(r *once.Request) { r.Lease = once.MaxLease + 1 }, once.ErrInvalidRequest},
				"no time to live": {func(r *once.Request) { r.TTL = 0 }, once.ErrInvalidRequest},
			} {
				req := onceRequest(keyOf("k"))
				tt.change(&req)
				if got, err := f.store.Acquire(f.Context(), req); !errors.Is(err, tt.want) || got.State != 0 {
					f.Errorf("%s: %+v, %v", name, got, err)
				}
			}
			f.wantState(keyOf("k"), once.Fresh)
		}},
		{"a context that is over", func(f *onceFixture) {
			ctx, cancel := context.WithCancel(f.Context())
			cancel()
			if _, err := f.store.Acquire(ctx, onceRequest(keyOf("k"))); err == nil {
				f.Error("it was ignored")
			}
			f.wantState(keyOf("k"), once.Fresh)
		}},
	}
}

func (f *onceFixture) wantResult(got, want once.Result) {
	f.Helper()
	if string(got.Data) != string(want.Data) || got.ContentType != want.ContentType || got.Meta != want.Meta {
		f.Errorf("result of %d bytes, type %q, meta %.100q; want %d bytes, %q, %.100q", len(got.Data), got.ContentType,
			got.Meta,
			len(want.Data), want.ContentType, want.Meta)
	}
}

func onceStaleCases() []onceCase {
	return []onceCase{
		{"a stale lease is taken over and its holder fenced", func(f *onceFixture) {
			old := f.stale(keyOf("k"), once.Fingerprint{})
			req := onceRequest(keyOf("k"))
			got := f.acquire(req)
			f.must(got.State == once.Fresh && got.Fence > old.Fence, "got %+v after fence %d", got, old.Fence)
			if !f.ForgetsStale {
				f.must(got.TakenOver && (got.Attempt == 2 || got.Attempt == 0), "got %+v", got)
			}
			f.wantErrors(old, once.ErrLeaseLost, "in progress elsewhere")
			f.wantState(old.Key, once.InProgress)
			next := once.Claim{Key: req.Key, Owner: req.Owner, Fence: got.Fence}
			f.check(f.store.Extend(f.Context(), next, longLease))
			f.complete(next, once.Result{Data: []byte("new")})
			if err := f.store.Complete(f.Context(), old, once.Result{Data: []byte("old")}, time.Hour); !errors.Is(err,
				once.ErrAlreadyDone) {
				f.Errorf("Complete by the old holder: %v", err)
			}
			if err := f.store.Release(f.Context(), old, 1); !errors.Is(err, once.ErrAlreadyDone) {
				f.Errorf("Release by the old holder: %v", err)
			}
			done := f.acquire(onceRequest(old.Key))
			f.must(done.State == once.Done, "it is %s", done.State)
			f.wantResult(done.Result, once.Result{Data: []byte("new")})
		}},
		{"a stale lease of other work is a mismatch", func(f *onceFixture) {
			if f.ForgetsStale {
				return
			}
			f.stale(keyOf("k"), fingerprintA)
			req := onceRequest(keyOf("k"))
			req.Fingerprint = fingerprintB
			got := f.acquire(req)
			f.must(got.State == once.Mismatch, "it is %s", got.State)
			req.Fingerprint = once.Fingerprint{}
			f.complete(f.fresh(req), once.Result{}) // the key keeps its fingerprint
			req.Fingerprint = fingerprintB
			got = f.acquire(req)
			f.must(got.State == once.Mismatch, "after the takeover without one it is %s", got.State)
		}},
		{"a stale lease can be refused", func(f *onceFixture) {
			if f.ForgetsStale {
				return
			}
			f.stale(keyOf("k"), once.Fingerprint{})
			for range 2 {
				req := onceRequest(keyOf("k"))
				req.RefuseStale = true
				if got := f.acquire(req); got.State != once.Abandoned {
					f.Errorf("it is %s", got.State)
				}
			}
			f.wantState(keyOf("k"), once.Fresh)
		}},
		{"a lease that ended still counts while nobody took over", func(f *onceFixture) {
			for _, what := range []string{"extend", "complete", "release"} {
				c := f.stale(keyOf(what), once.Fingerprint{})
				err := map[string]func() error{
					"extend":   func() error { return f.store.Extend(f.Context(), c, longLease) },
					"complete": func() error { return f.store.Complete(f.Context(), c, once.Result{}, time.Hour) },
					"release":  func() error { return f.store.Release(f.Context(), c, 1) },
				}[what]()
				if err != nil && (!f.ForgetsStale || !errors.Is(err, once.ErrLeaseLost)) {
					f.Errorf("%s: %v", what, err)
				}
			}
		}},
		{"an extended lease lasts", func(f *onceFixture) {
			req := onceRequest(keyOf("k"))
			req.Lease = shortLease
			c := f.fresh(req)
			f.check(f.store.Extend(f.Context(), c, longLease))
			f.pass(shortLease)
			f.wantState(c.Key, once.InProgress)
		}},
		{"a lease can be shortened", func(f *onceFixture) {
			c := f.fresh(onceRequest(keyOf("k")))
			f.check(f.store.Extend(f.Context(), c, time.Millisecond))
			eventually(f, "the end of the lease", func() bool { return f.state(c.Key) == once.Fresh })
		}},
	}
}

// wantErrors calls every method that needs a claim and requires that error.
func (f *onceFixture) wantErrors(c once.Claim, want error, why string) {
	f.Helper()
	for name, err := range map[string]error{
		"Extend":   f.store.Extend(f.Context(), c, longLease),
		"Complete": f.store.Complete(f.Context(), c, once.Result{Data: []byte("stolen")}, time.Hour),
		"Release":  f.store.Release(f.Context(), c, 1),
	} {
		if !errors.Is(err, want) {
			f.Errorf("%s (%s): %v, want %v", name, why, err, want)
		}
	}
}
