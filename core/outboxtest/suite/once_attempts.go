package suite

import (
	"errors"
	"time"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// onceAttemptCases check stores that count attempts.
func onceAttemptCases() []onceCase {
	attempts := func(f *onceFixture, want int, wantAge bool) once.Claim {
		f.Helper()
		req := onceRequest(keyOf("k"))
		got := f.acquire(req)
		f.must(got.State == once.Fresh && got.Attempt == want, "want attempt %d, got %+v", want, got)
		if (got.Age > 0) != wantAge || got.Age > time.Minute {
			f.Errorf("attempt %d: age %s", want, got.Age)
		}
		return once.Claim{Key: req.Key, Owner: req.Owner, Fence: got.Fence}
	}
	return []onceCase{
		{"attempts are counted, refunded and reset", func(f *onceFixture) {
			s := f.store
			f.check(s.Release(f.Context(), attempts(f, 1, false), 1))
			f.pass(shortLease) // so that the key has an age
			second := attempts(f, 2, true)
			f.check(s.Release(f.Context(), second, 1)) // as Attempt.Refund does
			f.check(s.Release(f.Context(), second, 1)) // the answer was lost
			third := attempts(f, 2, true)
			f.check(s.Release(f.Context(), third, 2))
			fourth := attempts(f, 3, true)
			f.must(fourth.Fence > third.Fence, "fence %d after %d", fourth.Fence, third.Fence)
			f.check(s.Release(f.Context(), fourth, 0)) // as Attempt.Reset does
			fifth := attempts(f, 1, false)
			f.must(fifth.Fence > fourth.Fence, "fence %d after %d", fifth.Fence, fourth.Fence)
			if err := s.Release(f.Context(), fourth, 0); !errors.Is(err, once.ErrLeaseLost) {
				f.Errorf("an earlier claim: %v", err)
			}
			f.check(s.Release(f.Context(), fifth, 1))
			f.pass(shortLease) // the age begins anew with the fifth
			f.complete(attempts(f, 2, true), once.Result{})
		}},
	}
}
