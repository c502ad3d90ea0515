package once

import (
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// Errors that callers check with errors.Is.
var (
	// ErrInvalidKey: a key or a part of it is invalid. The text names every problem. Nothing was
	// written.
	ErrInvalidKey = errors.New("once: invalid key")

	// ErrInvalidRequest: a request to a store lacks something or is out of range. Nothing was
	// written.
	ErrInvalidRequest = errors.New("once: invalid request")

	// ErrInProgress: another holder does this work now, so do not treat the work as done. Ask again
	// after RetryAfter.
	ErrInProgress = errors.New("once: in progress")

	// ErrFingerprintMismatch: the key was used for different work before. The client must choose a
	// new key. No attempt can help, so the error is core.Permanent: an inbox, a relay or a worker
	// whose handler returns it gives the message up at once.
	ErrFingerprintMismatch = core.Permanent(errors.New("once: key was used for something else"))

	// ErrAbandoned: an earlier holder disappeared, and it is unknown how far it got. It is returned
	// only with [Config.RefuseStale]. A person must find out, or the caller waits until the key is
	// forgotten.
	ErrAbandoned = errors.New("once: earlier attempt was abandoned, its outcome is unknown")

	// ErrLeaseLost: the caller no longer holds the key. Another holder may have it, and then its
	// result counts. It is also the cause that ends the context of running work.
	ErrLeaseLost = errors.New("once: lease lost")

	// ErrAlreadyDone: another holder took the key over and has finished the work. Its result
	// counts.
	ErrAlreadyDone = errors.New("once: already done by another holder")

	// ErrInvalidResult: the result is larger than the limit, or has a part that cannot be stored. It
	// was not stored. The work counts as failed: its key is free again. If the caller rolls its
	// transaction back, the effects are undone too.
	ErrInvalidResult = errors.New("once: invalid result")

	// ErrStore: the store failed. If it failed before the work, the work did not run. If it failed
	// after the work, the key stays in progress until the lease ends, and the work will be run
	// again then.
	ErrStore = errors.New("once: store failed")
)

// inProgress has the time that the caller should wait.
type inProgress struct {
	key   Key
	after time.Duration
}

func (e *inProgress) Error() string {
	return fmt.Sprintf("%s: %s, retry after %s", ErrInProgress.Error(), e.key, e.after)
}

func (e *inProgress) Unwrap() error { return ErrInProgress }

// RetryAfter returns the time after which to ask again. It is the rest of the present holder's
// lease, which the holder may extend. It is 0 unless err is an [ErrInProgress] of this package.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*inProgress](err); ok {
		return e.after
	}
	return 0
}
