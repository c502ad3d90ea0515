package once

import (
	"context"
	"time"
)

// ArchiveKeys is how many keys Config.Archive gets at most in one call, with results of at most
// core.ArchiveBytes unless a single one is larger.
const ArchiveKeys = 100

// ArchivedKey is a key that Config.Archive gets before Cleanup deletes it.
type ArchivedKey struct {
	Key         Key
	Fingerprint Fingerprint // zero: none
	// Owner and Fence of the last claim.
	Owner string
	Fence int64
	// Attempts is how often the key was acquired, as Acquired.Attempt counts.
	Attempts int
	// Done: the work is finished. Otherwise its last attempt failed, or its holder disappeared.
	Done   bool
	Result Result // of the work; Done only
	// CreatedAt is when the first attempt began, DoneAt when the work was finished, and ExpiresAt
	// the end of the time to live. DoneAt is zero unless Done.
	CreatedAt, DoneAt, ExpiresAt time.Time
}

// Archiver is implemented by a Store that can show keys before it deletes them. New refuses
// Config.Archive without it.
type Archiver interface {
	// Archive gives at most limit keys that Cleanup would delete to fn, and deletes them if it
	// returns nil. Those that expired first come first. It returns how many it deleted. No
	// transaction is open while fn runs. A key that somebody takes, extends or completes meanwhile
	// is not deleted.
	Archive(ctx context.Context, limit int, fn func(ctx context.Context, keys []ArchivedKey) error,
	) (deleted int, err error)
}
