package httpkey

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// problem is one kind of error response. Its name is the end of its type URI and an anchor in the
// documentation, so it never changes.
type problem struct {
	name   string
	status int
	title  string
	answer Answer
	retry  bool // the client may send the request again
}

var (
	keyMissing = problem{
		"idempotency-key-missing", http.StatusBadRequest, "Idempotency-Key is missing",
		MissingKey, false,
	}
	keyInvalid = problem{
		"idempotency-key-invalid", http.StatusBadRequest, "Idempotency-Key is invalid",
		InvalidKey, false,
	}
	bodyUnreadable = problem{
		"idempotency-request-unreadable", http.StatusBadRequest,
		"Request body could not be read", UnreadableBody, false,
	}
	bodyConsumed = problem{
		"idempotency-request-consumed", http.StatusInternalServerError,
		"Request body could not be compared", UnreadableBody, false,
	}
	inFlight = problem{
		"idempotency-key-in-flight", http.StatusConflict,
		"A request with this Idempotency-Key is being processed", InFlight, true,
	}
	abandoned = problem{
		"idempotency-outcome-unknown", http.StatusConflict,
		"Outcome of an earlier attempt is unknown", Abandoned, false,
	}
	notKept = problem{
		"idempotency-response-not-kept", http.StatusConflict,
		"Request was processed, its response was not kept", NotKept, false,
	}
	bodyTooLarge = problem{
		"idempotency-request-too-large", http.StatusRequestEntityTooLarge,
		"Request body is too large", BodyTooLarge, false,
	}
	keyReused = problem{
		"idempotency-key-reused", http.StatusUnprocessableEntity,
		"Idempotency-Key was used for a different request", Mismatch, false,
	}
	scopeMissing = problem{
		"idempotency-scope-missing", http.StatusInternalServerError,
		"Idempotency scope is unknown", MissingScope, false,
	}
	failed = problem{
		"idempotency-failed", http.StatusInternalServerError, "Request could not be completed",
		StoreError, false,
	}
	storeUnavailable = problem{
		"idempotency-store-unavailable", http.StatusServiceUnavailable,
		"Idempotency store is unavailable", StoreError, true,
	}
)

// write answers with p as application/problem+json (RFC 9457). after says when to send the request
// again, if that is known.
func (p problem) write(w http.ResponseWriter, cfg *Config, detail string, after time.Duration) {
	body, _ := json.Marshal(struct { // texts and a number: it cannot fail
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail,omitempty"`
	}{cfg.ProblemType + p.name, p.title, p.status, detail})
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Add("Link", "<"+cfg.ProblemDocs+p.name+`>; rel="describedby"`)
	if p.retry {
		after = cmp.Or(cfg.RetryAfter, after, defaultRetryAfter)
		h.Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	}
	w.WriteHeader(p.status)
	_, _ = w.Write(body) // the client may be gone
}
