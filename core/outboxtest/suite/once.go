package suite

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// OnceHarness gives TestOnceStore access to an implementation of once.Store.
type OnceHarness struct {
	// New returns an empty store. It is called once for each case; cases run in parallel.
	New func(t *testing.T) once.Store
	// Forget deletes a key from such a store without its methods, as an eviction does. Required.
	Forget func(t *testing.T, s once.Store, key once.Key)
	// ForgetsStale: the store keeps nothing of a lease that ended. The suite then does not check
	// Request.RefuseStale, Acquired.TakenOver, Acquired.Attempt and the outcome of a claim whose
	// lease has ended.
	ForgetsStale bool
	// ForgetsExpired: keys vanish when their time to live is over, so that Cleanup has nothing to
	// do.
	ForgetsExpired bool
}

// onceCase is one requirement that every store must meet.
type onceCase struct {
	name string
	run  func(f *onceFixture)
}

// TestOnceStore is the conformance suite of once.Store. It checks the promises in the comments of
// that interface, from outside the store. It uses short real durations, and waits with a deadline
// where time matters.
func TestOnceStore(t *testing.T, h OnceHarness) {
	for _, group := range []struct {
		name  string
		cases []onceCase
	}{
		{"Acquire", onceAcquireCases()},
		{"Stale", onceStaleCases()},
		{"Claim", onceClaimCases()},
		{"Forgotten", onceForgottenCases()},
		{"Attempts", onceAttemptCases()},
		{"Programs", onceProgramCases()},
		{"Result", onceResultCases()},
		{"Expiry", onceExpiryCases()},
		{"Archive", onceArchiveCases()},
		{"Keys", onceKeyCases()},
		{"Concurrency", onceConcurrencyCases()},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range group.cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(&onceFixture{T: t, OnceHarness: h, store: h.New(t)})
				})
			}
		})
	}
}

// onceFixture has the state of a case.
type onceFixture struct {
	*testing.T
	OnceHarness
	store once.Store
}

var onceOwners atomic.Int64

// onceRequest returns a request for a key by a new owner.
func onceRequest(key once.Key) once.Request {
	return once.Request{Key: key, Owner: fmt.Sprintf("owner-%d", onceOwners.Add(1)), Lease: longLease, TTL: time.Hour}
}

func keyOf(id string) once.Key { return once.Key{Scope: "test", ID: id} }

func (f *onceFixture) check(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// must stops the case with a message unless ok.
func (f *onceFixture) must(ok bool, format string, args ...any) {
	f.Helper()
	if !ok {
		f.Fatalf(format, args...)
	}
}

func (f *onceFixture) acquire(req once.Request) once.Acquired {
	f.Helper()
	got, err := f.store.Acquire(f.Context(), req)
	f.check(err)
	return got
}

// fresh acquires a key that must be free.
func (f *onceFixture) fresh(req once.Request) once.Claim {
	f.Helper()
	got := f.acquire(req)
	f.must(got.State == once.Fresh, "%s is %s, want fresh", req.Key, got.State)
	return once.Claim{Key: req.Key, Owner: req.Owner, Fence: got.Fence}
}

// state returns the state that the store reports to another owner.
func (f *onceFixture) state(key once.Key) once.State {
	f.Helper()
	return f.acquire(onceRequest(key)).State
}

func (f *onceFixture) wantState(key once.Key, want once.State) {
	f.Helper()
	if got := f.state(key); got != want {
		f.Errorf("%s is %s, want %s", key, got, want)
	}
}

func (f *onceFixture) complete(c once.Claim, res once.Result) {
	f.Helper()
	f.check(f.store.Complete(f.Context(), c, res, time.Hour))
}

// pass waits until a lease or a time to live of length d is over by the clock of the store. It must
// have begun before the call.
func (f *onceFixture) pass(d time.Duration) {
	f.Helper()
	req := onceRequest(keyOf("clock " + strconv.FormatInt(onceOwners.Add(1), 10)))
	req.Lease = d
	f.fresh(req)
	eventually(f, "the clock of the store", func() bool { return f.state(req.Key) == once.Fresh })
}

// stale creates a key whose holder disappeared.
func (f *onceFixture) stale(key once.Key, fp once.Fingerprint) once.Claim {
	f.Helper()
	req := onceRequest(key)
	req.Lease, req.Fingerprint = shortLease, fp
	c := f.fresh(req)
	f.pass(shortLease)
	return c
}

var fingerprintA, fingerprintB = once.FingerprintOf([]byte("a")), once.FingerprintOf([]byte("b"))
