package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/cause"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// batchHandler processes several messages in tx, as a Handler processes one.
type batchHandler = func(ctx context.Context, tx core.Tx, fresh []Message) error

// ProcessBatch runs h once, in one transaction, with the messages that were not processed before,
// in their order. If there are none, it does not run h. All messages must be for one handler. It
// returns a Result for each message, as Process would. Events that are published with the ctx of h
// carry the chain if all messages in fresh share one, and the cause if fresh has one message.
//
// When h or the commit fails, the transaction of the batch is rolled back, and each message is
// processed alone: h runs with one message. So one bad message does not hold up the others, and
// only its own attempts are counted.
//
// A panic of h is an error of its messages, [ErrPanicked]. It counts as a failed attempt of the
// message whose own run panics.
func (in *Inbox) ProcessBatch(ctx context.Context, msgs []Message,
	h func(ctx context.Context, tx core.Tx, fresh []Message) error,
) []Result {
	if t := in.cfg.Tracer; t.on() && len(msgs) > 0 {
		return t.traced(ctx, in.cfg.Consumer, msgs, func(ctx context.Context) []Result {
			return in.processBatch(ctx, msgs, h)
		})
	}
	return in.processBatch(ctx, msgs, h)
}

func (in *Inbox) processBatch(ctx context.Context, msgs []Message, h batchHandler) []Result {
	b := &batch{in: in, ctx: ctx, h: h, results: make([]Result, len(msgs))}
	for n, msg := range msgs {
		msg.Headers = core.UnpackFields(msg.Headers)
		e, err := in.Event(msg)
		if err != nil {
			b.results[n] = in.invalid(newDelivery(e, msg).infoAfter(0, err))
			continue
		}
		d := newDelivery(e, msg)
		if in.cached(ctx, d) {
			in.obs.Duplicate(d.infoAfter(0, nil))
			b.results[n] = ack(duplicate)
			continue
		}
		b.items = append(b.items, item{at: n, msg: msg, d: d})
	}
	b.run()
	return b.results
}

// item is one message of a batch that has a key.
type item struct {
	at  int // its index in results
	msg Message
	d   delivery
	o   outcome
}

type batch struct {
	in      *Inbox
	ctx     context.Context //nolint:containedctx // a batch lives as long as one call
	h       batchHandler
	items   []item
	results []Result
}

func (b *batch) run() {
	if len(b.items) == 0 {
		return
	}
	if _, ok := core.TxFromContext(b.ctx); ok {
		b.all(ErrInTransaction, b.in.pauses.mistake())
		return
	}
	if err := b.in.register(b.ctx, b.items[0].d.info.Event); err != nil {
		b.all(err, b.in.pauses.outage(b.ctx))
		return
	}
	var whole outcome // of the transaction of the whole batch
	err := sqltx.RetryTx(b.ctx, b.in.cfg.Transactor, func(ctx context.Context, tx core.Tx) error {
		whole = outcome{end: endOf(tx), kept: whole.maybeKept()}
		return b.inTx(ctx, tx, &whole)
	})
	switch {
	case err == nil, errors.Is(err, errSeen):
		for _, it := range b.items {
			b.results[it.at] = b.in.conclude(b.ctx, it.d, it.o, nil)
		}
	case !whole.ran, b.ctx.Err() != nil: // the database could not be reached, or ctx ended
		b.all(err, b.in.pauses.outage(b.ctx))
	case whole.maybeKept() && !errors.Is(err, core.ErrCommitUnknown): // each one would look like a duplicate
		b.all(errtext.Errorf("%w: %w", ErrTransactionEnded, err), 0)
	default:
		b.singles()
	}
}

func (b *batch) inTx(ctx context.Context, tx core.Tx, whole *outcome) error {
	events := make([]Event, len(b.items))
	for n, it := range b.items {
		events[n] = it.d.info.Event
	}
	states, err := b.in.cfg.Store.BeginBatch(ctx, tx, events)
	if err != nil {
		return err
	}
	var fresh []Message
	var by cause.Cause
	changed := false
	for n := range b.items {
		it := &b.items[n]
		it.o = outcome{state: states[n], kept: whole.kept}
		if states[n] != StateFresh {
			continue
		}
		changed = true
		if it.o.stale, err = b.in.stale(ctx, tx, events[n]); err != nil {
			return err
		}
		if it.o.stale {
			continue
		}
		it.o.ran = true
		by = sharedCause(by, causeOf(it.msg, events[n]), len(fresh))
		fresh = append(fresh, it.msg)
	}
	if !changed {
		return errSeen
	}
	if len(fresh) == 0 {
		return nil
	}
	whole.ran = true
	return b.call(cause.With(ctx, by), tx, fresh)
}

// sharedCause adds the cause of a message to what n messages before it share.
func sharedCause(by, next cause.Cause, n int) cause.Cause {
	switch {
	case n == 0:
		return next
	case by.Chain != next.Chain:
		return cause.Cause{}
	}
	return cause.Cause{Chain: by.Chain}
}

// call runs h. A panic becomes an error of the messages in fresh, which counts as a failure. The
// other messages of the batch go on.
func (b *batch) call(ctx context.Context, tx core.Tx, fresh []Message) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		p := core.NewPanicError(recover())
		b.in.cfg.Logger.Error("inbox: the function of a batch did not return", "messages", len(fresh),
			"error", p, "stack", string(p.Stack))
		err = fmt.Errorf("%w: %w", ErrPanicked, p) // after runtime.Goexit no caller gets it
	}()
	err = b.h(ctx, tx, fresh)
	returned = true
	return err
}

// singles processes each message alone.
func (b *batch) singles() {
	for _, it := range b.items {
		it.d.came = time.Now()
		ctx := cause.With(b.ctx, causeOf(it.msg, it.d.info.Event))
		b.results[it.at] = b.in.run(ctx, it.d, func(ctx context.Context, tx core.Tx) error {
			return b.call(ctx, tx, []Message{it.msg})
		})
	}
}

// all leaves every message of the batch to a further try, because err does not concern a single
// message.
func (b *batch) all(err error, wait time.Duration) {
	for _, it := range b.items {
		b.results[it.at] = retry(wait, errtext.Errorf("inbox: batch: %w", b.in.failed(b.ctx, it.d.infoAfter(0, err))))
	}
}
