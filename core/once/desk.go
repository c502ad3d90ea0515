package once

import (
	"context"
	"time"
)

// Desk shows an operator the keys of a table, without their results. The Store of package sqlonce
// is one. Every read is bounded. If the table is not in the database, the errors wrap
// core.ErrNoTables.
type Desk interface {
	// Backlog counts at most limit keys by scope, the last to expire first.
	Backlog(ctx context.Context, limit int) ([]Backlog, error)
	// ListKeys returns a page of keys, the last to expire first. A query that makes no sense is
	// refused with an error wrapping [ErrInvalidRequest].
	ListKeys(ctx context.Context, q KeyQuery) (KeyPage, error)
}

// KeyStatus is the progress of a key's work.
type KeyStatus string

// Statuses of a key.
const (
	KeyHeld      KeyStatus = "held"      // a process works under it
	KeyAbandoned KeyStatus = "abandoned" // its process disappeared; the next request takes over
	KeyFailed    KeyStatus = "failed"    // the work failed; the next request does it again
	KeyDone      KeyStatus = "done"      // the result is stored until the key expires
)

// Backlog counts the keys of one scope.
type Backlog struct {
	Scope     string `json:"scope"`
	Held      int    `json:"held"`
	Abandoned int    `json:"abandoned"`
	Failed    int    `json:"failed"`
	Done      int    `json:"done"`
	// Oldest is how long ago the lease ended of the key that was abandoned first, by the clock of
	// the database. Zero: there is none.
	Oldest time.Duration `json:"oldest"`
	// More: keys that expire earlier were left out.
	More bool `json:"more,omitempty"`
}

// KeyQuery selects keys.
type KeyQuery struct {
	Scope, Tenant, ID string // empty: all
	// Status of the keys. Empty: all.
	Status KeyStatus
	After  string // KeyPage.Next of the page before, with the same query
	Limit  int    // default 100, at most 1000
}

// KeyPage is a part of a list.
type KeyPage struct {
	Keys []StoredKey
	// Next is KeyQuery.After of the next page. Empty: this is the last page.
	Next string
	// Truncated: the page is short, perhaps empty, because 10,000 keys were examined. More keys may
	// follow: go on with Next. A query with Scope and ID looks through the keys of the scope
	// instead, and is never truncated.
	Truncated bool
}

// StoredKey is a key as its table has it.
type StoredKey struct {
	Key      Key
	Status   KeyStatus
	Attempts int // how often it was acquired, as [Acquired.Attempt] counts
	// CreatedAt is when the first attempt began, LeaseUntil when the lease ends of a key that is held
	// or abandoned, DoneAt when the work was finished, and ExpiresAt the end of the time to live, by
	// the clock of the database. LeaseUntil and DoneAt may be zero.
	CreatedAt, LeaseUntil, DoneAt, ExpiresAt time.Time
}
