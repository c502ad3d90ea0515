package httpkey

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// errHung: a request was answered without the store.
var errHung = errors.New("httpkey: the database does not answer")

// txRun is one request in the transaction form. The transaction has a goroutine of its own: a
// database that hangs may hold a statement, above all COMMIT, for longer than a client waits, even
// after its context has ended. The handler runs in the goroutine of the request, where its panics
// go to the server.
type txRun struct {
	c      *call
	ctx    context.Context //nolint:containedctx // the context of this one request
	cancel context.CancelCauseFunc
	untie  func() bool
	leave  func(*once.Result)

	work chan *handlerRun // asks for a run of the handler
	// closed when the request was answered without the store: the handler does not run any more
	quit chan struct{}
	// closed when the transaction has ended; the fields below are then readable
	done chan struct{}

	res      once.Result
	replayed bool
	err      error
	panicked *core.PanicError // panic of the Transactor or the store
}

// handlerRun is one run of the handler, within the transaction of ctx.
type handlerRun struct {
	ctx   context.Context //nolint:containedctx // the context of this one run
	ended chan struct{}   // closed when res and err are readable
	res   once.Result
	err   error
}

// serve waits for the transaction, runs the handler when it asks for it, and answers.
func (t *txRun) serve() {
	go t.transaction()
	// Waiting for the lock of the key is not the fault of the database.
	patience := t.c.m.cfg.Keys.StoreTimeout + max(t.c.m.cfg.Keys.Wait, minLockWait)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	policy := Release
	for {
		select {
		case run := <-t.work:
			timer.Stop()
			policy = t.handle(run)
			patience = t.c.m.cfg.Keys.StoreTimeout
			timer.Reset(patience)
		case <-t.done:
			if t.panicked != nil {
				t.c.info.Err = t.panicked
				panic(t.panicked.Value) //nolint:forbidigo // the Transactor's panic goes on to the server
			}
			t.c.answerTx(t.ctx, t.res, t.replayed, policy, t.err)
			return
		case <-timer.C:
			t.cancel(errHung)
			close(t.quit)
			t.c.refuse(storeUnavailable, safeAgain, fmt.Errorf("%w: %w within %s", once.ErrStore, errHung, patience))
			return
		}
	}
}

// handle runs the handler. If the handler panics, the transaction ends before the panic goes on, so
// that the key is free.
func (t *txRun) handle(run *handlerRun) (policy ResponsePolicy) {
	returned := false
	defer func() {
		if returned {
			close(run.ended)
			return
		}
		v := recover() // nil after runtime.Goexit, which goes on too
		run.err = panicked(v)
		close(run.ended)
		select {
		case <-t.done:
		case <-time.After(t.c.m.cfg.Keys.StoreTimeout):
			t.cancel(errHung)
		}
		if v != nil {
			panic(v) //nolint:forbidigo // the handler's panic goes on to the server
		}
	}()
	run.res, policy, run.err = t.c.handle(run.ctx, t.untie)
	returned = true
	return policy
}

// transaction opens the transaction, and ends it by the policy for the handler's response.
func (t *txRun) transaction() {
	defer close(t.done)
	defer t.cancel(nil)
	defer func() {
		if t.err == nil && t.panicked == nil {
			t.leave(&t.res) // waiting requests need not wait for this client to read
		} else {
			t.leave(nil)
		}
	}()
	defer func() {
		if v := recover(); v != nil {
			t.panicked = core.NewPanicError(v)
		}
	}()
	t.err = errors.New("httpkey: the Transactor ended its goroutine")
	res, replayed, err := t.c.inTx(t.ctx, t.cancel, t.ask)
	if errors.Is(err, errKept) {
		// The handler's changes are rolled back, and the key with them. Another request may take
		// the key first: then its response counts.
		res, replayed, err = t.c.inTx(t.ctx, t.cancel, func(context.Context) (once.Result, error) {
			return t.c.rec.encode(t.c.m.cfg.KeepHeaders), nil
		})
	}
	t.res, t.replayed, t.err = res, replayed, err
}

// ask runs the handler in the goroutine of the request.
func (t *txRun) ask(ctx context.Context) (once.Result, error) {
	run := &handlerRun{ctx: ctx, ended: make(chan struct{})}
	select {
	case t.work <- run:
	case <-t.quit:
		return once.Result{}, errHung
	}
	<-run.ended
	return run.res, run.err
}
