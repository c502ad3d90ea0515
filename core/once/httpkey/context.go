package httpkey

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/ormoutbox/ormoutbox/core"
)

var (
	errGone   = errors.New("httpkey: the client has left")
	errWaited = errors.New("httpkey: waited long enough")
)

// detach returns a context for the handler: that of the request without its cancellation, but with
// its deadline. untie is called when the handler is about to run: until then the context ends with
// the client. tie undoes that for a response that is streamed.
func detach(r *http.Request) (ctx context.Context, cancel context.CancelCauseFunc, untie func() bool, tie func()) {
	client := r.Context()
	ctx, cancel = context.WithCancelCause(context.WithoutCancel(client))
	if deadline, ok := client.Deadline(); ok {
		inner := cancel
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, deadline)
		cancel = func(cause error) {
			inner(cause)
			stop()
		}
	}
	gone := func() { cancel(fmt.Errorf("%w: %w", errGone, context.Cause(client))) }
	untie = context.AfterFunc(client, gone)
	return ctx, cancel, untie, func() { context.AfterFunc(client, gone) }
}

// Retry asks the middleware to roll back and to run the handler again, because of err, and reports
// whether it will. It does so in the transaction form when err says that the transaction failed
// only because of others, a deadlock say (core.Retryable). The handler then returns; what it has
// written to its ResponseWriter is dropped. ctx is that of the request.
//
//	if err := tx.Create(&payment).Error; err != nil {
//		if !httpkey.Retry(r.Context(), err) {
//			http.Error(w, "try again later", http.StatusInternalServerError)
//		}
//		return
//	}
//
// The handler is run at most ten times and for twenty seconds; then the client gets a 503.
func Retry(ctx context.Context, err error) bool {
	c := callOf(ctx)
	if c == nil || c.m.cfg.Transactor == nil || !core.Retryable(err) {
		return false
	}
	c.again = err
	return true
}
