package httpkey

import (
	"context"
	"errors"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Observer has the callback for metrics, logs and traces of requests. Config.Keys.Observer reports
// more about the keys.
type Observer struct {
	// Handled: a request was answered. The goroutine of the request calls it after the response was
	// written. It must be fast and must not panic. May be nil.
	Handled func(info Info)
}

// Answer says how a request was answered.
type Answer string

// Answers to requests.
const (
	// The handler ran; Info.Policy says whether its response was kept.
	Executed       Answer = "executed"
	Replayed       Answer = "replayed"        // answered with the response of an earlier request
	InFlight       Answer = "in_flight"       // 409: another request with this key is being carried out
	Mismatch       Answer = "mismatch"        // 422: the key was used for a different request
	MissingKey     Answer = "missing_key"     // 400
	InvalidKey     Answer = "invalid_key"     // 400
	MissingScope   Answer = "missing_scope"   // 500: Config.Scope returned ""
	UnreadableBody Answer = "unreadable_body" // 400
	BodyTooLarge   Answer = "body_too_large"  // 413
	// 409: an earlier attempt was abandoned, and Config.Keys.RefuseStale is set
	Abandoned Answer = "abandoned"
	NotKept   Answer = "not_kept" // 409: carried out before, but its response was not kept
	// The handler ran without protection: another method, no key, or FailOpen with Info.Err.
	Bypassed   Answer = "bypassed"
	StoreError Answer = "store_error" // 503 or 500: the store, or the transaction, failed
	ClientGone Answer = "client_gone" // the client left while it waited; the handler did not run
)

// Info describes one request.
type Info struct {
	Answer Answer
	// zero if there is none. Its ID and Tenant come from clients: do not use them as labels of a
	// metric
	Key    once.Key
	Method string
	Route  string // see Config.Route
	Status int    // status of the response; 0 if it is not known: bypassed, hijacked, panicked
	// Policy is the policy that was applied to the response and the work of the handler. It is
	// Release if the policy was Commit and the commit failed. Executed only.
	Policy   ResponsePolicy
	Duration time.Duration // from the arrival to the end of the answer
	// Err is the error of the store, the transaction, the key or the body. With Executed it means
	// that the handler has done its work and its response was sent, but could not be recorded, or
	// that the handler panicked (ErrPanicked).
	Err error
}

// told logs errors that an operator should see, and calls the Observer for every request.
func (m *Middleware) told(ctx context.Context, info Info) {
	if l := m.cfg.Logger; l != nil && info.Err != nil &&
		(info.Status >= 500 || info.Answer == Executed || info.Answer == Bypassed) {
		args := []any{
			"answer", info.Answer, "method", info.Method, "route", info.Route, "status", info.Status, "err",
			info.Err,
		}
		if p, ok := errors.AsType[*core.PanicError](info.Err); ok {
			args = append(args, "stack", string(p.Stack))
		}
		l.ErrorContext(ctx, "httpkey: request failed", args...)
	}
	if o := m.cfg.Observer; o != nil && o.Handled != nil {
		o.Handled(info)
	}
}
