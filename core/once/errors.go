package once

import (
	"errors"
	"fmt"
	"time"
)

// Errors that callers branch on with errors.Is.
var (
	// ErrInvalidKey: a key or a part of it is not acceptable. The text names every problem. Nothing
	// was written.
	ErrInvalidKey = errors.New("once: invalid key")

	// ErrInvalidRequest: a request to a store lacks something or is out of range. Nothing was
	// written.
	ErrInvalidRequest = errors.New("once: invalid request")

	// ErrInProgress: somebody else is doing this work now. Never take it for done: ask again later,
	// RetryAfter says when.
	ErrInProgress = errors.New("once: in progress")

	// ErrFingerprintMismatch: the key was used for different work before. A client must choose a
	// new key.
	ErrFingerprintMismatch = errors.New("once: key was used for something else")

	// ErrAbandoned: an earlier holder disappeared and nobody knows how far it came. Only with
	// Config.RefuseStale; somebody has to look, or wait until the key is forgotten.
	ErrAbandoned = errors.New("once: earlier attempt was abandoned, its outcome is unknown")

	// ErrLeaseLost: the caller no longer holds the key; another may hold it by now, and its result
	// counts. It is also the cause that ends the context of running work.
	ErrLeaseLost = errors.New("once: lease lost")

	// ErrAlreadyDone: somebody else, who took the key over, has finished the work. Its result
	// counts.
	ErrAlreadyDone = errors.New("once: already done by another holder")

	// ErrResultTooLarge: the result is beyond the limit and was not stored. The work counts as
	// failed: its key is free again, and in a transaction that the caller rolls back its effects
	// are gone.
	ErrResultTooLarge = errors.New("once: result too large")

	// ErrInvalidResult: the result holds something that cannot be stored. As with
	// ErrResultTooLarge, the work counts as failed.
	ErrInvalidResult = errors.New("once: invalid result")

	// ErrStore: the store could not be asked or told. Before the work ran: it did not run. After
	// it: its key stays in progress until the lease ends, and the work will be run again then.
	ErrStore = errors.New("once: store failed")
)

// inProgress carries how long the caller had better wait.
type inProgress struct {
	key   Key
	after time.Duration
}

func (e *inProgress) Error() string {
	return fmt.Sprintf("%s: %s, retry after %s", ErrInProgress.Error(), e.key, e.after)
}

func (e *inProgress) Unwrap() error { return ErrInProgress }

// RetryAfter returns after which time it makes sense to ask again: when the lease of the present
// holder ends, if it is not extended. It is 0 unless err is an ErrInProgress of this package.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*inProgress](err); ok {
		return e.after
	}
	return 0
}
