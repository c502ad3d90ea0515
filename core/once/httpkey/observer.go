package httpkey

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Info describes one request.
type Info struct {
	// Answer is the kind of the answer:
	//
	//   - executed: the handler ran; Policy has whether its response was kept;
	//   - replayed: with the response of an earlier request;
	//   - in_flight (409): another request with this key is being carried out;
	//   - mismatch (422): the key was used for a different request;
	//   - missing_key, invalid_key, unreadable_body (400), body_too_large (413);
	//   - missing_scope (500): Config.Scope returned "";
	//   - abandoned (409): an earlier attempt was abandoned, and Config.Keys.RefuseStale is set;
	//   - not_kept (409): carried out before, but its response was not kept;
	//   - bypassed: the handler ran without protection: another method, no key, or FailOpen with Err;
	//   - store_error (503 or 500): the store, or the transaction, failed;
	//   - client_gone: the client left while it waited; the handler did not run.
	Answer string
	// zero if there is none. Its ID and Tenant come from clients: do not use them as labels of a
	// metric
	Key    once.Key
	Method string
	Route  string // see [Config.Route]
	Status int    // status of the response; 0 if it is not known: bypassed, hijacked, panicked
	// Policy is the policy that was applied to the response and the work of the handler. It is
	// Release if the policy was Commit and the commit failed. Only if the handler ran.
	Policy   ResponsePolicy
	Duration time.Duration // from the arrival to the end of the answer
	// Err is the error of the store, the transaction, the key or the body. If the handler ran, it
	// has done its work and its response was sent, but could not be recorded, or it panicked
	// ([ErrPanicked]).
	Err error
}

// Answers to requests.
const (
	executed        = "executed"
	replayed        = "replayed"
	answerInFlight  = "in_flight"
	mismatch        = "mismatch"
	missingKey      = "missing_key"
	invalidKey      = "invalid_key"
	missingScope    = "missing_scope"
	unreadableBody  = "unreadable_body"
	answerTooLarge  = "body_too_large"
	answerAbandoned = "abandoned"
	answerNotKept   = "not_kept"
	bypassed        = "bypassed"
	storeFailed     = "store_error"
	clientGone      = "client_gone"
)

// observe logs errors that an operator should see, and calls the Observer for every request.
func (m *Middleware) observe(ctx context.Context, info Info) {
	if info.Err != nil && (info.Status >= 500 || info.Answer == executed || info.Answer == bypassed) {
		args := []any{
			"answer", info.Answer, "method", info.Method, "route", info.Route, "status", info.Status,
			"error", info.Err,
		}
		if p, ok := errors.AsType[*core.PanicError](info.Err); ok {
			args = append(args, "stack", string(p.Stack))
		}
		m.cfg.Logger.ErrorContext(ctx, "httpkey: request failed", args...)
	}
	if m.cfg.Observer != nil {
		m.cfg.Observer(info)
	}
}

// problem is one kind of error response. Its name, after "idempotency-", is the end of its type URI
// and an anchor in the documentation, so it never changes.
type problem struct {
	name   string
	status int
	title  string
	answer string
	retry  bool // the client may send the request again
}

var (
	keyMissing     = problem{"key-missing", 400, "Idempotency-Key is missing", missingKey, false}
	keyInvalid     = problem{"key-invalid", 400, "Idempotency-Key is invalid", invalidKey, false}
	bodyUnreadable = problem{"request-unreadable", 400, "Request body could not be read", unreadableBody, false}
	bodyConsumed   = problem{"request-consumed", 500, "Request body could not be compared", unreadableBody, false}
	inFlight       = problem{
		"key-in-flight", 409, "A request with this Idempotency-Key is being processed", answerInFlight, true,
	}
	abandoned = problem{"outcome-unknown", 409, "Outcome of an earlier attempt is unknown", answerAbandoned, false}
	notKept   = problem{
		"response-not-kept", 409, "Request was processed, its response was not kept", answerNotKept, false,
	}
	bodyTooLarge = problem{"request-too-large", 413, "Request body is too large", answerTooLarge, false}
	keyReused    = problem{"key-reused", 422, "Idempotency-Key was used for a different request", mismatch, false}
	scopeMissing = problem{"scope-missing", 500, "Idempotency scope is unknown", missingScope, false}
	failed       = problem{"failed", 500, "Request could not be completed", storeFailed, false}

	storeUnavailable = problem{"store-unavailable", 503, "Idempotency store is unavailable", storeFailed, true}
)

// write answers with p as application/problem+json (RFC 9457). after is when to send the request
// again; 0: not known.
func (p problem) write(w http.ResponseWriter, cfg *Config, detail string, after time.Duration) {
	body, _ := json.Marshal(struct { // texts and a number: it cannot fail
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail,omitempty"`
	}{cfg.ProblemType + "idempotency-" + p.name, p.title, p.status, detail})
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Add("Link", "<"+cfg.ProblemDocs+"idempotency-"+p.name+`>; rel="describedby"`)
	if p.retry {
		after = cmp.Or(cfg.RetryAfter, after, defaultRetryAfter)
		h.Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	}
	w.WriteHeader(p.status)
	_, _ = w.Write(body) // the client may be gone
}
