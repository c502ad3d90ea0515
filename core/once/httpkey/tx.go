package httpkey

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/turns"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// errKept makes a Runner roll back, although the response is kept.
var errKept = errors.New("httpkey: only the response is kept")

// minLockWait is the shortest time that a request waits for the lock of its key, because taking a
// free key takes time too.
const minLockWait = 250 * time.Millisecond

const safeAgain = "Send the same request again with the same key: it is not carried out twice."

// serveTx carries the request out in a transaction.
func (c *call) serveTx() {
	if _, nested := core.TxFromContext(c.r.Context()); nested {
		c.refuse(failed, "", ErrNested)
		return
	}
	ctx, cancel, untie, _ := detach(c.r)
	defer untie()
	waiting, stop := context.WithTimeoutCause(ctx, c.m.cfg.Keys.Wait, once.ErrInProgress)
	leave, kept, err := c.m.turns.Enter(waiting, c.key, c.fp)
	stop()
	if errors.Is(err, turns.ErrTag) {
		err = once.ErrFingerprintMismatch
	}
	switch {
	case err != nil:
		cancel(nil)
		c.refuseEarly(err)
	case kept != nil:
		cancel(nil)
		c.answer(*kept)
	default:
		t := &txRun{
			c: c, ctx: ctx, cancel: cancel, untie: untie, leave: leave,
			work: make(chan *handlerRun), quit: make(chan struct{}), done: make(chan struct{}),
		}
		t.serve()
	}
}

// handle runs the handler once in a transaction and applies the policy to its response.
func (c *call) handle(ctx context.Context, untie func() bool) (once.Result, ResponsePolicy, error) {
	if !c.entered && !untie() { // the client has just left
		return once.Result{}, Release, errGone
	}
	policy := c.run(ctx, nil)
	switch {
	case c.again != nil:
		return once.Result{}, policy, c.again
	case c.rec.tooLarge:
		return once.Result{}, policy, ErrResponseTooLarge
	case c.silent:
		return once.Result{}, policy, ErrNoResponse
	case policy == Release:
		return once.Result{}, policy, errReleased
	}
	res := c.rec.encode(c.m.cfg.KeepHeaders)
	if s, err := decode(res); err != nil || s.NotKept { // its headers are too large
		return once.Result{}, policy, ErrResponseTooLarge
	}
	if policy == Keep {
		return res, policy, errKept
	}
	return res, policy, nil
}

// answerTx answers when the transaction has ended.
func (c *call) answerTx(ctx context.Context, res once.Result, replayed bool, policy ResponsePolicy, err error) {
	switch {
	case err == nil && replayed:
		c.answer(res)
	case err == nil:
		c.send(policy, nil)
	case errors.Is(err, errReleased):
		if err == errReleased { //nolint:errorlint // an error that wraps it has further causes
			err = nil
		}
		c.send(Release, err)
	case errors.Is(context.Cause(ctx), errWaited):
		c.refuseEarly(once.ErrInProgress)
	case !c.entered:
		c.refuseEarly(c.gone(ctx, err))
	default:
		c.refuseTx(err)
	}
}

// refuseTx answers if the handler has run and its transaction did not commit, or its outcome is
// unknown.
func (c *call) refuseTx(err error) {
	switch {
	case errors.Is(err, once.ErrInProgress), errors.Is(err, once.ErrFingerprintMismatch),
		errors.Is(err, once.ErrAbandoned):
		c.refuseEarly(err) // another request took the key between two runs
	case sqlerr.Retryable(err), errors.Is(err, core.ErrCommitUnknown), errors.Is(err, once.ErrStore):
		c.refuse(storeUnavailable, safeAgain, err)
	default:
		c.refuse(failed, safeAgain, err)
	}
}

// inTx runs fn once per key in a transaction, and bounds how long it waits for the key.
func (c *call) inTx(ctx context.Context, cancel context.CancelCauseFunc,
	fn func(ctx context.Context) (once.Result, error),
) (once.Result, bool, error) {
	t := &impatient{Transactor: c.m.cfg.Transactor, wait: max(c.m.cfg.Keys.Wait, minLockWait), cancel: cancel}
	return c.m.runner.RunInTx(ctx, t, c.key, c.fp, func(ctx context.Context, _ core.Tx) (once.Result, error) {
		if !t.timer.Stop() {
			return once.Result{}, errWaited // the context has ended, or is about to
		}
		return fn(ctx)
	})
}

// impatient ends the context if the lock of the key is not acquired in time. The time starts when
// the transaction has begun, because a wait for a connection has other reasons.
type impatient struct {
	core.Transactor
	wait   time.Duration
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

func (t *impatient) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	return t.Transactor.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		t.timer = time.AfterFunc(t.wait, func() { t.cancel(errWaited) })
		defer t.timer.Stop()
		return fn(ctx, tx)
	})
}

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
// such as a deadlock (sqltx.Retryable). The handler then returns, and the response that it has
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
	if c == nil || c.m.cfg.Transactor == nil || !sqlerr.Retryable(err) {
		return false
	}
	c.again = err
	return true
}
