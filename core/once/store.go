package once

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/enum"
	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

// Store keeps keys in the lease form. The holder works outside of any transaction of the store. So
// a crash between its effects and their record repeats the work. Package sqlonce implements it in
// SQL. Many goroutines call its methods at once.
//
// # Contract
//
// A key is free, held (until its lease ends) or done (until its time to live ends). Every time is
// read from the clock of the store; callers pass durations. Each method is one short transaction,
// repeated inside on a deadlock. A claim is the triple of key, owner and fence. Extend, Complete
// and Release change a key only while the claim is its latest, even if its lease is over. A store
// that forgets an expired lease may return [ErrLeaseLost] instead.
//
// A store may have forgotten a key, because the key was evicted or deleted, or because the store
// was restored without it. No other holder took that key, so the claim of its holder is still the
// latest: Extend holds the key again, and Complete writes its result.
type Store interface {
	// Acquire takes a key that is free, whose lease has ended or whose time to live is over, and
	// returns Fresh. Otherwise it returns the state of the key. If the key is held, abandoned or
	// done and the fingerprint does not match, it returns Mismatch. A free key takes any
	// fingerprint. The fence is higher than every earlier one for as long as the store remembers
	// the key. The owner that holds the key gets Fresh again, with its fence and its attempt: the
	// first answer was lost. Its lease need not begin anew.
	Acquire(ctx context.Context, req Request) (Acquired, error)

	// Extend moves the end of the lease to lease from now. It holds a forgotten key again, and
	// remembers it for ForgottenTTL after the lease. [ErrLeaseLost]: the claim is no longer the
	// latest.
	Extend(ctx context.Context, c Claim, lease time.Duration) error

	// Complete marks the key done with its result for ttl from now, even if it was forgotten.
	// Repeated by the same claim it changes nothing and returns nil. [ErrAlreadyDone]: another claim
	// completed it. [ErrLeaseLost]: the claim is no longer the latest and the work is not done.
	Complete(ctx context.Context, c Claim, res Result, ttl time.Duration) error

	// Release frees the key at once, because the work failed, and sets the number of acquisitions
	// to attempts. With 0 the key is like a new one. A store that does not count attempts leaves
	// that out. Repeated by the same claim Release changes nothing and returns nil. It returns the
	// errors of Complete, and [ErrLeaseLost] for a forgotten key. It returns [ErrAlreadyDone] even
	// if this claim has completed the key.
	Release(ctx context.Context, c Claim, attempts int) error

	// Cleanup deletes at most limit keys whose time to live is over and that no process holds. It
	// returns how many it deleted. A store that expires keys itself returns 0.
	Cleanup(ctx context.Context, limit int) (deleted int, err error)
}

// TxStore keeps keys in the transaction form: the key, the effects of the work and its result
// commit together or not at all. Prefer this form if the effects are in the same database. No
// method repeats a statement after an error. The owner of a failed transaction must run it again
// as a whole (sqltx.RetryTx).
type TxStore interface {
	// AcquireTx writes the key as done, with no result yet, and returns Fresh, or returns the state
	// of the key as [Store.Acquire] does. It waits for another transaction that works on the same
	// key. Lease is not used.
	AcquireTx(ctx context.Context, tx core.Tx, req Request) (Acquired, error)

	// CompleteTx adds the result. It need not be called for a zero Result. [ErrLeaseLost]: the row
	// of AcquireTx is gone, because a savepoint was rolled back.
	CompleteTx(ctx context.Context, tx core.Tx, c Claim, res Result) error

	// ReleaseTx frees the key, because the work failed. It matters if the caller commits in spite
	// of the error.
	ReleaseTx(ctx context.Context, tx core.Tx, c Claim) error
}

// Limits of a Request.
const (
	MaxLease = time.Hour
	MaxTTL   = 10 * 365 * 24 * time.Hour
	MaxOwner = 255
)

// ForgottenTTL is the time to live of a key that the store had forgotten and that [Store.Extend]
// holds again.
const ForgottenTTL = 24 * time.Hour

// Request is a request for a key.
type Request struct {
	Key Key
	// Fingerprint of the work. Zero: not compared.
	Fingerprint Fingerprint
	// Owner is a unique name of one run of the work. A second request with the same Owner belongs
	// to the same run. At most MaxOwner bytes.
	Owner string
	// Lease is how long the key is held unless it is extended: from 1 ms to MaxLease.
	Lease time.Duration
	// TTL is how long the key is remembered: in the transaction form from now, in the lease form
	// from the end of a lease that was never completed. From 1 ms to MaxTTL.
	TTL time.Duration
	// RefuseStale does not take a key whose holder disappeared, and returns Abandoned. A store that
	// forgets an expired lease cannot do that.
	RefuseStale bool
}

// Validate reports every problem of r at once. The error wraps [ErrInvalidKey] or
// [ErrInvalidRequest]. Stores call it first.
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

// CheckLease refuses a lease that is out of range, with an error wrapping [ErrInvalidRequest]. For
// stores.
func CheckLease(d time.Duration) error { return checkDuration("lease", d, MaxLease) }

// CheckTTL refuses a time to live that is out of range, with an error wrapping [ErrInvalidRequest].
// For stores.
func CheckTTL(d time.Duration) error { return checkDuration("time to live", d, MaxTTL) }

func checkDuration(name string, d, limit time.Duration) error {
	if d < time.Millisecond || d > limit {
		return fmt.Errorf("%w: %s %s is not between 1ms and %s", ErrInvalidRequest, name, d, limit)
	}
	return nil
}

// Claim is the right to one key, given by Acquire to an owner. The Fence lets other systems refuse
// the writes of an earlier holder.
type Claim struct {
	Key   Key
	Owner string
	Fence int64
}

// State is the state of a key.
type State uint8

// States of a key.
const (
	// Fresh: the caller holds the key now.
	Fresh State = iota + 1
	// InProgress: another owner holds the key.
	InProgress
	// Done: the work is finished, and the result is there.
	Done
	// Mismatch: the key was used for different work.
	Mismatch
	// Abandoned: the holder disappeared and its lease ended, and the request has RefuseStale.
	Abandoned
)

var stateNames = []string{
	Fresh: "fresh", InProgress: "in_progress", Done: "done", Mismatch: "mismatch", Abandoned: "abandoned",
}

// String returns the name used in logs and metrics.
func (s State) String() string { return enum.Name(stateNames, s, "state") }

// Acquired is the answer to a Request.
type Acquired struct {
	State State
	// Fence of the new claim. Fresh only.
	Fence int64
	// Attempt is how often the key was acquired since it was new, this time included. Fresh only.
	// 0: the store does not count.
	Attempt int
	// Age is the time since the key was first acquired. Fresh only. 0: this is the first time, or
	// the store has no count.
	Age time.Duration
	// TakenOver: an earlier holder disappeared. Fresh only.
	TakenOver bool
	// Result of the work. Done only.
	Result Result
	// RetryAfter is when the present lease ends. InProgress only.
	RetryAfter time.Duration
}

// ArchivedKey is a key that [Config.Archive] gets before [Runner.Cleanup] deletes it.
type ArchivedKey struct {
	Key         Key
	Fingerprint Fingerprint // zero: none
	// Owner and Fence of the last claim.
	Owner string
	Fence int64
	// Attempts is how often the key was acquired, as [Acquired.Attempt] counts.
	Attempts int
	// Done: the work is finished. Otherwise its last attempt failed, or its holder disappeared.
	Done   bool
	Result Result // of the work; Done only
	// CreatedAt is when the first attempt began, DoneAt when the work was finished, and ExpiresAt
	// the end of the time to live. DoneAt is zero unless Done.
	CreatedAt, DoneAt, ExpiresAt time.Time
}

// Archiver is implemented by a Store that can show keys before it deletes them. New refuses
// [Config.Archive] without it.
type Archiver interface {
	// Archive gives at most limit keys that Cleanup would delete to fn, and deletes them if it
	// returns nil. Those that expired first come first. It returns how many it deleted. No
	// transaction is open while fn runs. A key that somebody takes, extends or completes meanwhile
	// is not deleted.
	Archive(ctx context.Context, limit int, fn func(ctx context.Context, keys []ArchivedKey) error,
	) (deleted int, err error)
}

// Registrar is a Store or a TxStore that remembers for a week which programs use a scope, to warn
// if two programs chose one name by mistake. The stores of package sqlonce and of module
// inbox/redisonce are Registrars.
type Registrar interface {
	// Register writes that the program uses the scope now, and returns the others that do. It does so
	// in a transaction of its own.
	Register(ctx context.Context, scope, program string) (others []string, err error)
}

// Register is Register of the Runner's Store, or of its TxStore if it has no Store. It does nothing
// if that is no Registrar.
func (r *Runner) Register(ctx context.Context, scope, program string) (others []string, err error) {
	store, ok := r.cfg.Store.(Registrar)
	if r.cfg.Store == nil {
		store, ok = r.cfg.TxStore.(Registrar)
	}
	if !ok || program == "" {
		return nil, nil
	}
	return store.Register(ctx, scope, program)
}
