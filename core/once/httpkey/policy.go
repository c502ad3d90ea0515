package httpkey

import (
	"net/http"

	"github.com/ormoutbox/ormoutbox/core/internal/enum"
)

// ResponsePolicy says whether a response is kept, and whether the work of its handler commits.
type ResponsePolicy uint8

// Values of ResponsePolicy.
const (
	// Release: the response is not kept, the transaction is rolled back, and the key is free. The
	// next request with the key runs the handler again.
	Release ResponsePolicy = iota
	// Keep: the response is kept, but the transaction is rolled back. Use it when the handler
	// finds, after some writes, that the request is wrong. In the lease form it is the same as
	// Commit.
	Keep
	// Commit: the response is kept, and the transaction commits.
	Commit
)

var responsePolicyNames = []string{Release: "release", Keep: "keep", Commit: "commit"}

// String returns release, keep or commit.
func (p ResponsePolicy) String() string { return enum.Name(responsePolicyNames, p, "policy") }

// DefaultPolicy commits 2xx and 3xx, keeps 4xx, and releases the rest: 5xx, and the 4xx whose
// answer may change when the request is sent again (401, 403, 408, 409, 425, 429).
func DefaultPolicy(status int) ResponsePolicy {
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
