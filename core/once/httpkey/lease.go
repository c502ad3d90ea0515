package httpkey

import (
	"context"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// errReleased makes a runner keep no response.
var errReleased = errors.New("httpkey: the response is not kept")

// serveLease carries the request out under a lease.
func (c *call) serveLease() {
	ctx, cancel, untie, tie := detach(c.r)
	defer cancel(nil)
	defer untie()
	policy := Release
	res, _, err := c.m.runner.Do(ctx, c.key, c.fp, func(ctx context.Context) (once.Result, error) {
		if !untie() { // the client has just left
			return once.Result{}, errGone
		}
		policy = c.run(ctx, tie)
		switch {
		case c.silent:
			return once.Result{}, ErrNoResponse
		case policy == Release:
			return once.Result{}, errReleased
		}
		return c.rec.encode(c.m.cfg.KeepHeaders), nil
	})
	switch {
	case c.entered:
		c.finishLease(ctx, policy, err)
	case err == nil:
		c.answer(res)
	case errors.Is(err, once.ErrStore) && c.m.cfg.FailOpen && c.r.Context().Err() == nil:
		r := c.r.Clone(c.r.Context())
		r.Body = newBody(c.body)
		c.bypass(r, err)
	default:
		c.refuseEarly(c.gone(ctx, err))
	}
}

// gone returns an error wrapping errGone if the client has left, and otherwise err. The context of
// the request may end a moment before ctx.
func (c *call) gone(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errGone) {
		return cause
	}
	if client := c.r.Context(); errors.Is(client.Err(), context.Canceled) {
		return fmt.Errorf("%w: %w", errGone, context.Cause(client))
	}
	return err
}

// finishLease answers after the handler has run. The handler's effects exist even if the store
// fails, so its response is sent. If another process holds the key by now, the response of that
// process is sent instead.
func (c *call) finishLease(ctx context.Context, policy ResponsePolicy, err error) {
	taken := errors.Is(err, once.ErrLeaseLost) || errors.Is(err, once.ErrAlreadyDone)
	switch {
	case err == nil:
		c.send(policy, nil)
	case errors.Is(err, errReleased):
		if err == errReleased { //nolint:errorlint // an error that wraps it has further causes
			err = nil
		}
		c.send(Release, err)
	case taken && !c.rec.passed:
		c.answerOther(ctx, err)
	case c.silent:
		c.refuse(failed, "", err)
	default:
		c.send(Release, err)
	}
}

// answerOther answers with the response of the process that took the key over.
func (c *call) answerOther(ctx context.Context, lost error) {
	res, replayed, err := c.m.runner.Do(ctx, c.key, c.fp, func(context.Context) (once.Result, error) {
		// that process failed, and the key is free: the client may try again
		return once.Result{}, errReleased
	})
	switch {
	case err == nil && replayed:
		c.answer(res)
	case errors.Is(err, once.ErrStore):
		c.refuse(storeUnavailable, "", errors.Join(lost, err))
	default:
		c.refuseInFlight(err)
	}
	c.info.Err = errors.Join(lost, c.info.Err)
}
