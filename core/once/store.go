package once

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

// Store keeps keys in the lease form: the holder works outside of any transaction of the store, so
// its effects and its completion are two things, and a crash between them repeats the work. Package
// sqlonce implements it in SQL. Its methods are called by many goroutines at once.
//
// Contract. A key is free, held (until its lease ends) or done (until its time to live ends). Every
// instant is read from the clock of the store; callers pass durations. Each method is one short
// transaction, repeated inside on a deadlock. A claim is the triple of key, owner and fence;
// Extend, Complete and Release change a key only while that claim is its latest, even when its
// lease has run out. A store that forgets an expired lease may answer ErrLeaseLost instead.
//
// A key that the store has forgotten, because it was evicted or deleted, or the store came back
// without it, is nobody's: nobody took it. The claim of its holder is then still the latest: Extend
// holds the key again, and Complete writes what is a fact by then.
type Store interface {
	// Acquire takes a key that is free, whose lease has ended or whose time to live is over, and
	// says Fresh; else it says what it found. A fingerprint that does not match is found before
	// anything else about a key that is held, abandoned or done; a free key takes any. The fence is
	// higher than every one before it for as long as the store remembers the key.
	Acquire(ctx context.Context, req Request) (Acquired, error)

	// Extend makes the lease end after lease from now, and holds a forgotten key again, which is
	// then remembered for ForgottenTTL after the lease. ErrLeaseLost: the claim is no longer the
	// latest.
	Extend(ctx context.Context, c Claim, lease time.Duration) error

	// Complete marks the key done with its result for ttl from now, also a forgotten one. Repeated
	// by the same claim it changes nothing and returns nil. ErrAlreadyDone: another claim completed
	// it. ErrLeaseLost: the claim is no longer the latest and the work not done.
	Complete(ctx context.Context, c Claim, res Result, ttl time.Duration) error

	// Release frees the key at once, because the work failed. Repeated by the same claim it changes
	// nothing and returns nil. Errors as Complete has them, and ErrLeaseLost for a forgotten key;
	// ErrAlreadyDone also when this very claim has completed it.
	Release(ctx context.Context, c Claim) error

	// Cleanup deletes at most limit keys whose time to live is over and that nobody holds. It
	// returns how many; a store that forgets by itself returns 0.
	Cleanup(ctx context.Context, limit int) (deleted int, err error)
}

// TxStore keeps keys in the transaction form: the key, the effects of the work and its result
// commit together or not at all. This is the form to prefer wherever the effects are in the same
// database. No method repeats a statement after an error: a transaction that failed belongs to its
// owner, who runs it again as a whole (core.Retryable, RetryTx).
type TxStore interface {
	// AcquireTx writes the key as done, with no result yet, and says Fresh, or says what it found
	// as Store.Acquire does. While another transaction works on the same key it waits for the end
	// of that. Lease is not used.
	AcquireTx(ctx context.Context, tx core.Tx, req Request) (Acquired, error)

	// CompleteTx adds the result. There is no need to call it for a zero Result. ErrLeaseLost: what
	// AcquireTx wrote is not there, because a savepoint was rolled back.
	CompleteTx(ctx context.Context, tx core.Tx, c Claim, res Result) error

	// ReleaseTx frees the key, because the work failed, in case that the caller commits
	// nevertheless.
	ReleaseTx(ctx context.Context, tx core.Tx, c Claim) error
}

// Limits of a Request.
const (
	MaxLease = time.Hour
	MaxTTL   = 10 * 365 * 24 * time.Hour
	MaxOwner = 255
)

// ForgottenTTL is the time to live of a key that the store had forgotten and Store.Extend holds
// again.
const ForgottenTTL = 24 * time.Hour

// Request asks for a key.
type Request struct {
	Key Key
	// Fingerprint of the work. Zero: not compared.
	Fingerprint Fingerprint
	// Owner names this one run of the work, unlike any other: who is asked for again is another
	// run. At most MaxOwner bytes.
	Owner string
	// Lease is how long the key is held unless it is extended: from 1 ms to MaxLease.
	Lease time.Duration
	// TTL is how long the key is remembered: in the transaction form from now, in the lease form
	// after the end of a lease that nobody completes. From 1 ms to MaxTTL.
	TTL time.Duration
	// RefuseStale leaves a key alone whose lease has ended without a word from its holder, and says
	// Abandoned. A store that forgets an expired lease cannot.
	RefuseStale bool
}

// Validate names every problem of r at once. The error wraps ErrInvalidKey or ErrInvalidRequest.
// Stores call it first.
func (r Request) Validate() error {
	return errors.Join(r.ValidateTx(), checkDuration("lease", r.Lease, MaxLease))
}

// ValidateTx is Validate for the transaction form, which has no lease.
func (r Request) ValidateTx() error {
	var owner error
	if p := textcheck.Problem(r.Owner, MaxOwner, true); p != "" {
		owner = fmt.Errorf("%w: owner %s", ErrInvalidRequest, p)
	}
	return errors.Join(r.Key.Validate(), owner, checkDuration("time to live", r.TTL, MaxTTL))
}

// CheckLease and CheckTTL refuse a duration that is out of range, with an error wrapping
// ErrInvalidRequest. For stores.
func CheckLease(d time.Duration) error { return checkDuration("lease", d, MaxLease) }

// CheckTTL refuses a time to live that is out of range, with an error wrapping ErrInvalidRequest.
// For stores.
func CheckTTL(d time.Duration) error { return checkDuration("time to live", d, MaxTTL) }

func checkDuration(name string, d, limit time.Duration) error {
	if d < time.Millisecond || d > limit {
		return fmt.Errorf("%w: %s %s is not between 1ms and %s", ErrInvalidRequest, name, d, limit)
	}
	return nil
}

// Claim is the right to one key: what Acquire gave to an owner. The Fence lets other systems refuse
// the writes of an earlier holder.
type Claim struct {
	Key   Key
	Owner string
	Fence int64
}

// State is what a store says about a key.
type State uint8

// States of a key.
const (
	// Fresh: the caller holds it now.
	Fresh State = iota + 1
	// InProgress: another holds it.
	InProgress
	// Done: finished, with its result.
	Done
	// Mismatch: used for different work.
	Mismatch
	// Abandoned: its lease ended without a word from its holder, and the request said RefuseStale.
	Abandoned
)

// String returns the name used in logs and metrics.
func (s State) String() string {
	switch s {
	case Fresh:
		return "fresh"
	case InProgress:
		return "in_progress"
	case Done:
		return "done"
	case Mismatch:
		return "mismatch"
	case Abandoned:
		return "abandoned"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Acquired is the answer to a Request.
type Acquired struct {
	State State
	// Fence of the new claim. Fresh only.
	Fence int64
	// Attempt counts how often the key was acquired since it was new, this time included. Fresh
	// only; 0 where a store does not count.
	Attempt int
	// Age is how long ago the key was acquired for the first time since it was new. Fresh only; 0
	// the first time and where a store does not know.
	Age time.Duration
	// TakenOver: an earlier holder disappeared without a word. Fresh only.
	TakenOver bool
	// Result of the work. Done only.
	Result Result
	// RetryAfter is when the present lease ends. InProgress only.
	RetryAfter time.Duration
}
