package httpkey

import (
	"fmt"
	"net/http"
)

// Fate is what becomes of a response and of what its handler did.
type Fate uint8

// Fates.
const (
	// Release: the response is not kept, the transaction is rolled back, and the key is free. Who
	// comes with it again runs the handler again.
	Release Fate = iota
	// Keep: the response is kept, but the transaction is rolled back: what the handler had written
	// when it found that the request is wrong is gone. In the lease form it is the same as Commit.
	Keep
	// Commit: the response is kept, and the transaction commits.
	Commit
)

// String returns release, keep or commit.
func (f Fate) String() string {
	switch f {
	case Release:
		return "release"
	case Keep:
		return "keep"
	case Commit:
		return "commit"
	}
	return fmt.Sprintf("fate(%d)", uint8(f))
}

// DefaultFate commits 2xx and 3xx, keeps 4xx, and releases the rest: 5xx, and those 4xx that may be
// answered otherwise when they are asked again (401, 403, 408, 409, 425, 429).
func DefaultFate(status int) Fate {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusConflict,
		http.StatusTooEarly, http.StatusTooManyRequests:
		return Release
	}
	switch status / 100 {
	case 2, 3:
		return Commit
	case 4:
		return Keep
	}
	return Release
}
