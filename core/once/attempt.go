package once

import (
	"context"
	"time"
)

// Attempt describes one run of the work, and says how its failure counts. It belongs to one run.
// Goroutines must not call its methods at the same time.
type Attempt struct {
	// Number is how often the key was acquired since it was new, this run included. 0: the store
	// does not count.
	Number int
	// Age is the time since the key was first acquired. 0: this is the first attempt, or the store
	// does not know.
	Age time.Duration

	left int // attempts that count after a failure
}

// AttemptOf returns the attempt of the work that runs with ctx. It is nil in the transaction form
// and outside of work.
func AttemptOf(ctx context.Context) *Attempt {
	a, _ := ctx.Value(attemptKey{}).(*Attempt)
	return a
}

// Refund says that this attempt does not count if it fails, because the failure is not the fault of
// the work.
func (a *Attempt) Refund() {
	if a != nil {
		a.left = max(a.Number-1, 0)
	}
}

// Reset says that no attempt counts any more if this one fails. The key is then like a new one, its
// age included. Call it when the work is given up and handed to a person.
func (a *Attempt) Reset() {
	if a != nil {
		a.left = 0
	}
}

type attemptKey struct{}

// AttemptStore is a Store that counts attempts and lets its caller correct the count. The stores of
// package sqlonce and of module inbox/redisonce are AttemptStores. With another store, every
// attempt counts until the key is forgotten.
type AttemptStore interface {
	Store
	// ReleaseAttempts does the same as Release, and sets the number of acquisitions to attempts.
	// With 0 the key is like a new one.
	ReleaseAttempts(ctx context.Context, c Claim, attempts int) error
}
