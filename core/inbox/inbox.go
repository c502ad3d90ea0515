package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/cause"
	"github.com/ormoutbox/ormoutbox/core/internal/cleaner"
	"github.com/ormoutbox/ormoutbox/core/internal/cleaning"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/turns"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Inbox processes each event once. Create it with New. It is safe for use by several goroutines;
// its zero value is not usable.
type Inbox struct {
	cfg    Config
	obs    Observer
	pauses pauses
	// copies lets one copy of an event at a time begin a transaction in this process. The others
	// wait here: in transactions of their own, each would keep a connection until the first has
	// ended.
	copies turns.Turns[Key, struct{}]
	names  names

	cleaned atomic.Int64 // when a cleanup last began, in Unix nanoseconds

	events *cleaner.Cleaner[ArchivedEvent] // of a cleanup
	keys   cleaning.Batch
}

// New returns an Inbox, or an error that names every problem of cfg.
func New(cfg Config) (*Inbox, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return newInbox(cfg), nil
}

// newInbox takes a Config that is complete.
func newInbox(cfg Config) *Inbox {
	in := &Inbox{
		keys: cleaning.Batch{TimeLimit: sqlerr.TimeLimit},
		cfg:  cfg, obs: cfg.Observer.withDefaults(),
		pauses: pauses{first: cfg.RetryPause, max: cfg.MaxRetryPause},
		events: cleaner.New("Config.Archive", cfg.Archive),
	}
	in.cleaned.Store(time.Now().UnixNano())
	return in
}

// Consumer returns the name of the consumer.
func (in *Inbox) Consumer() string { return in.cfg.Consumer }

// Handler processes a message in tx, the transaction in which the inbox writes too. ctx carries tx
// for the adapters of ORMs: gormoutbox.FromContext(ctx), for example. Events that are published with
// ctx carry cause and chain: see core.HeaderCausationID.
type Handler func(ctx context.Context, tx core.Tx, msg Message) error

// Process runs h in a transaction unless the event of msg was processed before. The Result is the
// answer to the message. The event's key, the changes of h in the transaction, and the events that
// h publishes through an outbox there commit together.
//
// h may run several times. A transaction that failed only because of others (sqltx.Retryable) is run
// again as a whole, at most ten times and for twenty seconds. The database rolls the work of a
// failed transaction back. While another copy of the message is being processed, Process waits
// until that has ended.
//
// Process does not pause: see Result. Only a panic of h is different: Process rolls back, counts a
// failed attempt and pauses, and then the panic goes on.
func (in *Inbox) Process(ctx context.Context, msg Message, h Handler) Result {
	if t := in.cfg.Tracer; t.on() {
		return t.one(ctx, in.cfg.Consumer, msg, func(ctx context.Context) Result { return in.process(ctx, msg, h) })
	}
	return in.process(ctx, msg, h)
}

func (in *Inbox) process(ctx context.Context, msg Message, h Handler) Result {
	msg.Headers = core.UnpackFields(msg.Headers)
	e, err := in.Event(msg)
	if err != nil {
		return in.invalid(newDelivery(e, msg).infoAfter(0, err))
	}
	d := newDelivery(e, msg)
	ctx = in.withProduced(cause.With(ctx, causeOf(msg, e)), d)
	return in.run(ctx, d, func(ctx context.Context, tx core.Tx) error { return h(ctx, tx, msg) })
}

// delivery is one message on its way through the inbox.
type delivery struct {
	info  Info
	came  time.Time
	acked <-chan struct{}
}

// refused returns [ErrAcknowledged] if the message is acknowledged already, so that it does not
// come again.
func (d delivery) refused() error {
	select {
	case <-d.acked:
		return ErrAcknowledged
	default:
		return nil
	}
}

// infoAfter returns the Info for observers.
func (d delivery) infoAfter(attempt int, err error) Info {
	i := d.info
	i.Attempt, i.Err, i.Duration = attempt, err, time.Since(d.came)
	return i
}

// outcome is the result of one transaction.
type outcome struct {
	state   State
	attempt int
	stale   bool
	ran     bool // the handler began
	end     *end
	kept    bool // an earlier transaction failed, but may have been committed
}

// end is the reported outcome of a transaction, if any.
type end struct{ reported atomic.Int32 }

// endOf listens for the end of tx. A lost answer to COMMIT is reported too.
func endOf(tx core.Tx) *end {
	e := &end{}
	tx.OnOutcome(func(o core.Outcome) { e.reported.Store(1 + int32(o)) })
	return e
}

// rolledBack is false if an outcome other than a rollback was reported.
func (e *end) rolledBack() bool {
	reported := e.reported.Load()
	return reported == 0 || reported == 1+int32(core.RolledBack)
}

// maybeKept reports whether the writes of a failed transaction may have been committed, together
// with the row that marks the event as processed. This happens when the handler ended the
// transaction.
func (o outcome) maybeKept() bool { return o.kept || o.ran && o.end != nil && !o.end.rolledBack() }

// errSeen rolls back a transaction that had nothing to do. That is cheaper than a commit.
var errSeen = errors.New("inbox: seen before")

// run processes one event.
func (in *Inbox) run(ctx context.Context, d delivery, fn func(context.Context, core.Tx) error) (res Result) {
	if _, ok := core.TxFromContext(ctx); ok {
		return retry(in.pauses.mistake(), in.failed(ctx, d.infoAfter(0, ErrInTransaction)))
	}
	if in.cached(ctx, d) {
		in.obs.Duplicate(d.infoAfter(0, nil))
		return ack(duplicate)
	}
	early := d.refused()
	if early != nil { // which has ended ctx, perhaps
		ctx = context.WithoutCancel(ctx)
	}
	if err := in.register(ctx, d.info.Event); err != nil {
		return retry(in.pauses.outage(ctx), in.failed(ctx, d.infoAfter(0, err)))
	}
	if early != nil {
		return in.fail(ctx, d, outcome{}, early)
	}
	leave, done, err := in.copies.Enter(ctx, d.info.Event.Key, nil)
	switch {
	case err != nil:
		return retry(0, in.failed(ctx, d.infoAfter(0, err)))
	case done != nil: // another copy has processed it meanwhile
		in.obs.Duplicate(d.infoAfter(0, nil))
		return ack(duplicate)
	}
	defer func() { leave(done) }()
	var o outcome
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover() // v is nil after runtime.Goexit, which goes on too
		if o.ran {
			failed := in.fail(ctx, d, o, panicked(v))
			leave(nil)
			sleep(ctx, failed.After)
		}
		if v != nil {
			panic(v) //nolint:forbidigo // the panic of the caller's function goes on
		}
	}()
	err = sqltx.RetryTx(ctx, in.cfg.Transactor, func(ctx context.Context, tx core.Tx) error {
		o = outcome{end: endOf(tx), kept: o.maybeKept()}
		if err := in.inTx(ctx, tx, d.info.Event, &o, fn); err != nil {
			return err
		}
		return d.refused()
	})
	returned = true
	res = in.conclude(ctx, d, o, err)
	if res.Action == Ack {
		done = &struct{}{}
	}
	return res
}

// inTx is the work of one event's transaction.
func (in *Inbox) inTx(ctx context.Context, tx core.Tx, e Event, o *outcome,
	fn func(context.Context, core.Tx) error,
) (err error) {
	if o.state, o.attempt, err = in.cfg.Store.Begin(ctx, tx, e); err != nil {
		return err
	}
	if o.state != StateFresh {
		return errSeen
	}
	if o.stale, err = in.stale(ctx, tx, e); err != nil || o.stale {
		return err
	}
	o.ran = true
	return fn(ctx, tx)
}

// stale reports whether OnlyNewer lets an event be skipped. Otherwise it is the newest of its key now.
func (in *Inbox) stale(ctx context.Context, tx core.Tx, e Event) (bool, error) {
	if !slices.Contains(in.cfg.OnlyNewer, e.Handler) {
		return false, nil
	}
	newer, err := in.cfg.Store.Advance(ctx, tx, e)
	return !newer, err
}

// conclude returns the answer to the message after a transaction.
func (in *Inbox) conclude(ctx context.Context, d delivery, o outcome, err error) Result {
	switch {
	case o.state == StateProcessed && o.kept:
		return in.ended(ctx, d, o, nil)
	case o.state != 0 && o.state != StateFresh: // whether the rollback succeeded or not
		return in.seen(ctx, d, o)
	}
	switch {
	case err == nil && o.stale:
		in.remember(ctx, d)
		in.pauses.reset()
		in.obs.Stale(d.infoAfter(o.attempt, nil))
		return ack(stale)
	case err == nil:
		in.remember(ctx, d)
		in.pauses.reset()
		in.cleanBeside()
		in.obs.Processed(d.infoAfter(o.attempt, nil))
		return ack(processed)
	case !o.ran: // for example, the database could not be reached
		return retry(in.pauses.outage(ctx), in.failed(ctx, d.infoAfter(o.attempt, err)))
	}
	return in.fail(ctx, d, o, err)
}

// seen returns the answer to a message whose event has a row already.
func (in *Inbox) seen(ctx context.Context, d delivery, o outcome) Result {
	in.pauses.reset()
	if o.state == StateProcessed {
		in.remember(ctx, d)
		in.obs.Duplicate(d.infoAfter(o.attempt, nil))
		return ack(duplicate)
	}
	if o.state == StateDead {
		// The event was given up before and is here again: nobody took its message out of the
		// queue.
		return in.dead(in.pauses.dead(), d.infoAfter(o.attempt, in.why(ctx, d.info.Event.Key)))
	}
	in.obs.InProgress(d.infoAfter(o.attempt, ErrInProgress))
	return inProgress(in.pauses.longest(), ErrInProgress)
}

// ended is for a handler that ended the transaction and failed. The table has the event as
// processed, as after a copy that was processed. So only this delivery gets the error, and the next
// one is a duplicate.
func (in *Inbox) ended(ctx context.Context, d delivery, o outcome, cause error) Result {
	err := ErrTransactionEnded
	if cause != nil {
		err = errtext.Errorf("%w: %w", err, cause)
	}
	return retry(0, in.failed(ctx, d.infoAfter(o.attempt, err)))
}

// why is the error for an event that is dead. It reads the reason from the table.
func (in *Inbox) why(ctx context.Context, k Key) error {
	const redrive = "Redrive lets it be processed again"
	list, err := in.cfg.Store.ListDead(ctx, DeadQuery{
		Consumer: k.Consumer, Handler: k.Handler,
		Tenant: k.Tenant, EventID: k.EventID, Limit: 1,
	})
	switch {
	case err != nil:
		// %v: a failed read must not decide how the message is answered
		return errtext.Errorf("%w: %s; its error could not be read: %v", ErrDead, redrive, err)
	case len(list) == 0 || list[0].Text == "":
		return fmt.Errorf("%w: %s", ErrDead, redrive)
	}
	return errtext.Errorf("%w: %s; it failed (attempts: %d) with: %s", ErrDead, redrive, list[0].Attempts, list[0].Text)
}

// failed reports a message that was not processed to the observer and the log, and returns the
// error with its cause. A message that was cut short because its consumer stops spent no attempt
// and needs no attention.
func (in *Inbox) failed(ctx context.Context, i Info) error {
	level := slog.LevelWarn
	if errors.Is(ctx.Err(), context.Canceled) {
		i.Attempt = 0 // it spent none, even if the handler panicked
	}
	if cutShort(ctx, i.Err) {
		level = slog.LevelDebug
		if cause := context.Cause(ctx); !errors.Is(i.Err, cause) {
			i.Err = errtext.Errorf("inbox: cut short: %w: %w", cause, i.Err)
		}
	}
	in.obs.Failed(i)
	in.cfg.Logger.Log(ctx, level, "inbox: event failed", logged(i)...)
	return i.Err
}

// cutShort reports whether err probably came from the end of a message's context.
func cutShort(ctx context.Context, err error) bool {
	return errors.Is(ctx.Err(), context.Canceled) && !errors.Is(err, ErrPanicked) &&
		!errors.Is(err, core.ErrCommitUnknown)
}

func logged(i Info) []any {
	e := i.Event
	args := []any{
		"handler", e.Handler, "tenant_id", e.Tenant, "event_id", e.EventID, "event_type",
		e.Type, "topic", e.Topic, "attempt", i.Attempt, "error", i.Err,
	}
	if e.Located {
		args = append(args, "partition", e.Partition, "offset", e.Offset)
	}
	if p, ok := errors.AsType[*core.PanicError](i.Err); ok {
		args = append(args, "stack", string(p.Stack))
	}
	return args
}

func (in *Inbox) cached(ctx context.Context, d delivery) bool {
	if in.cfg.Cache == nil {
		return false
	}
	hit, err := in.cfg.Cache.Seen(ctx, cacheKey(d.info.Event.Key))
	hit = hit && err == nil
	in.obs.Cached(d.infoAfter(0, err), hit)
	return hit
}

// remember is called after a commit only.
func (in *Inbox) remember(ctx context.Context, d delivery) {
	if in.cfg.Cache != nil {
		_ = in.cfg.Cache.Remember(ctx, cacheKey(d.info.Event.Key)) // the table has the event
	}
}

func cacheKey(k Key) string {
	return once.Key{Scope: once.Scope("inbox", k.Consumer, k.Handler), Tenant: k.Tenant, ID: k.EventID}.String()
}

func newDelivery(e Event, msg Message) delivery {
	return delivery{info: Info{Event: e, OccurredAt: occurredAt(msg)}, came: time.Now(), acked: msg.Acked}
}
