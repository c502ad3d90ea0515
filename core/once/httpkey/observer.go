package httpkey

import (
	"context"
	"errors"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Observer is told how requests end: the seam for metrics, logs and traces. Config.Keys.Observer
// hears more of what happens to the keys.
type Observer struct {
	// Handled: a request was answered. It is called by the goroutine of the request after the
	// response was written; it must be fast and must not panic. May be nil.
	Handled func(info Info)
}

// Outcome says how a request ended.
type Outcome string

// Outcomes.
const (
	Executed       Outcome = "executed"        // the handler ran; Info.Fate says whether its response was kept
	Replayed       Outcome = "replayed"        // answered with the response of an earlier request
	InFlight       Outcome = "in_flight"       // 409: another request with this key is being carried out
	Mismatch       Outcome = "mismatch"        // 422: the key was used for a different request
	MissingKey     Outcome = "missing_key"     // 400
	InvalidKey     Outcome = "invalid_key"     // 400
	MissingScope   Outcome = "missing_scope"   // 500: Config.Scope returned ""
	UnreadableBody Outcome = "unreadable_body" // 400
	BodyTooLarge   Outcome = "body_too_large"  // 413
	// 409: an earlier attempt was abandoned, and Config.Keys.RefuseStale is set
	OutcomeUnknown Outcome = "outcome_unknown"
	NotKept        Outcome = "not_kept" // 409: carried out before, but its response was not kept
	// the handler ran without protection: another method, no key, or FailOpen with Info.Err
	Bypassed   Outcome = "bypassed"
	StoreError Outcome = "store_error" // 503 or 500: the store, or the transaction, failed
	ClientGone Outcome = "client_gone" // the client left while it waited; the handler did not run
)

// Info describes one request.
type Info struct {
	Outcome Outcome
	Key     once.Key // zero if there is none. Its ID and Tenant come from clients: no labels for a metric
	Method  string
	Route   string // see Config.Route
	Status  int    // of the response; 0 when it is not known: bypassed, hijacked, panicked
	// Fate of what the handler did. It says Release where it meant to commit and failed. Executed
	// only.
	Fate     Fate
	Duration time.Duration // from the arrival to the end of the answer
	// Err says what went wrong with the store, the transaction, the key or the body. With Executed:
	// the handler has done its work and its response was sent, but could not be recorded, or the
	// handler panicked (ErrPanicked).
	Err error
}

// told logs what somebody has to look at, and tells the Observer of everything.
func (m *Middleware) told(ctx context.Context, info Info) {
	if l := m.cfg.Logger; l != nil && info.Err != nil &&
		(info.Status >= 500 || info.Outcome == Executed || info.Outcome == Bypassed) {
		args := []any{
			"outcome", info.Outcome, "method", info.Method, "route", info.Route, "status", info.Status, "err",
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
