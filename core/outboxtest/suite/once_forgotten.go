package suite

import (
	"errors"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// onceForgottenCases check keys that the store lost while their holder worked. Such a key was
// evicted or deleted, or the server lost its memory.
func onceForgottenCases() []onceCase {
	return []onceCase{
		{"a result is written although the key is forgotten", func(f *onceFixture) {
			c := f.fresh(onceRequest(keyOf("k")))
			f.Forget(f.T, f.store, c.Key)
			want := once.Result{Data: []byte("done"), ContentType: "text/plain", Meta: "m"}
			f.complete(c, want)
			f.complete(c, once.Result{Data: []byte("again")}) // the answer was lost
			got := f.acquire(onceRequest(c.Key))
			f.must(got.State == once.Done, "it is %s", got.State)
			f.wantResult(got.Result, want)
		}},
		{"a forgotten key is held again by its heartbeat", func(f *onceFixture) {
			c := f.fresh(onceRequest(keyOf("k")))
			f.Forget(f.T, f.store, c.Key)
			f.check(f.store.Extend(f.Context(), c, longLease))
			got := f.acquire(onceRequest(c.Key))
			f.must(got.State == once.InProgress && got.RetryAfter > 0 && got.RetryAfter <= longLease, "got %+v", got)
			f.check(f.store.Extend(f.Context(), c, longLease))
			f.check(f.store.Release(f.Context(), c, 1))
			got = f.acquire(onceRequest(c.Key))
			f.must(got.State == once.Fresh && got.Fence > c.Fence, "after the release: %+v, the fence was %d", got,
				c.Fence)
		}},
		{"a forgotten key that is held again and left is taken over", func(f *onceFixture) {
			c := f.fresh(onceRequest(keyOf("k")))
			f.Forget(f.T, f.store, c.Key)
			f.check(f.store.Extend(f.Context(), c, shortLease))
			f.pass(shortLease)
			f.complete(f.fresh(onceRequest(c.Key)), once.Result{})
		}},
		{"a forgotten key that another took is lost", func(f *onceFixture) {
			c := f.fresh(onceRequest(keyOf("k")))
			f.Forget(f.T, f.store, c.Key)
			other := f.fresh(onceRequest(c.Key))
			f.wantErrors(c, once.ErrLeaseLost, "held by another")
			f.complete(other, once.Result{Meta: "other"})
			if err := f.store.Complete(f.Context(), c, once.Result{}, onceRequest(c.Key).TTL); !errors.Is(err,
				once.ErrAlreadyDone) {
				f.Errorf("Complete of what another has done: %v", err)
			}
			f.wantResult(f.acquire(onceRequest(c.Key)).Result, once.Result{Meta: "other"})
		}},
	}
}
