package once

import (
	"context"
	"time"
)

// Attempt says which run of its work this one is, and what is left of it when it fails. It belongs
// to one run; its methods may be called by several goroutines only one after another.
type Attempt struct {
	// Number counts how often the key was acquired since it was new, this time included. 0: the
	// store does not count.
	Number int
	// Age is how long ago the key was acquired for the first time. 0 for the first attempt, and
	// where the store does not know.
	Age time.Duration

	left int // counted after a failure
}

// AttemptOf returns the attempt that the work which was given ctx is. It is nil in the transaction
// form and outside.
func AttemptOf(ctx context.Context) *Attempt {
	a, _ := ctx.Value(attemptKey{}).(*Attempt)
	return a
}

// Refund says that this attempt does not count if it fails, because the failure says nothing about
// the work.
func (a *Attempt) Refund() {
	if a != nil {
		a.left = max(a.Number-1, 0)
	}
}

// Reset says that no attempt counts any more if this one fails: the key is as new then, its age
// too. For work that is given up and handed to somebody.
func (a *Attempt) Reset() {
	if a != nil {
		a.left = 0
	}
}

type attemptKey struct{}

// AttemptStore is a Store that counts attempts and lets its caller correct the count. Those of
// package sqlonce and of module inbox/redisonce are; with another, every attempt counts until the
// key is forgotten.
type AttemptStore interface {
	Store
	// ReleaseAttempts does what Release does, and leaves the key as if it had been acquired so many
	// times: with 0 it is as new.
	ReleaseAttempts(ctx context.Context, c Claim, attempts int) error
}
