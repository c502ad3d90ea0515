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

// detach returns a context for the handler: the context of the request without its cancellation,
// but with its deadline. Until untie is called, just before the handler runs, the context ends with
// the client. tie undoes untie for a response that is streamed.
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

// Retry asks the middleware to roll back and to run the handler again because of err, and reports
// whether it will. In the transaction form it does so if err was caused only by other transactions,
// such as a deadlock (core.Retryable). The handler then returns, and the response that it has
// written is not sent. ctx is the context of the request.
//
//	if err := tx.Create(&payment).Error; err != nil {
//		if !httpkey.Retry(r.Context(), err) {
//			http.Error(w, "try again later", http.StatusInternalServerError)
//		}
//		return
//	}
//
// The handler is run at most ten times and for twenty seconds. Then the client gets a 503.
func Retry(ctx context.Context, err error) bool {
	c := callOf(ctx)
	if c == nil || c.m.cfg.Transactor == nil || !core.Retryable(err) {
		return false
	}
	c.again = err
	return true
}
