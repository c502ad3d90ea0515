package command

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/cause"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/lease"
	"github.com/ormoutbox/ormoutbox/core/internal/problems"
	"github.com/ormoutbox/ormoutbox/core/internal/program"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Handler executes an effect and returns the id that the other side gave it, if any. It must give
// [Effect.IdempotencyKey] to the other side, because it is called again if a process died before it
// could record the success. It must stop when ctx ends: see [WorkerConfig.PerDestination]. ctx
// carries the outbox's PublishTimeout, or SweepTimeout. Its cause is once.ErrLeaseLost if another
// worker may have begun. Events that are published with ctx carry the effect's ID as their
// core.HeaderCausationID.
//
// Errors are marked as for a core.Publisher. core.Permanent makes the effect dead at once.
// core.Unavailable stops the channel, or its destination (see [WorkerConfig.Destination]), until
// the other side is back, and costs no attempt. Any other error spends an attempt. The text of the
// error is stored: keep secrets out of it.
type Handler func(ctx context.Context, e Effect) (externalRef string, err error)

// WorkerConfig configures a Worker.
type WorkerConfig struct {
	// Store of the effects: sqlcommand.New. Required.
	Store Store
	// Handlers of the channels. At least one.
	Handlers map[string]Handler
	// Destination returns the destination of an effect, such as the host of a webhook's subscriber.
	// An outage stops only that destination; see PerDestination. It must be quick and must not
	// panic. Default: the host in the error of an outage, as errors of net/http and net have it: the
	// effect then waits with all others that have met an outage of that host. Without a host it
	// waits alone.
	//
	// So each effect is tried once before its destination is known. Set Destination where that is
	// too often, or where errors name no host: no other field of an effect names the destination.
	// One tenant may have many destinations, and many tenants may share one.
	Destination func(e Effect) string
	// PerDestination is how many effects of one destination are executed at once in this process,
	// so that a destination that hangs does not take all workers of the relay. Keep it at a quarter
	// of relay.Config.Workers or less. A handler that ignores the end of its context counts until
	// it returns, but no worker waits for it: it is given up after half of its time more. Without
	// Destination the limit also holds for all effects together whose destination is not known,
	// while any of them meets an outage. Default: 8.
	PerDestination int
	// MaxAttempts is the number of failed attempts, or of processes that died during an attempt,
	// after which an effect is dead. An unmarked error does not spend the last attempt while its
	// destination has accepted no other effect since it first refused this one: that may be an
	// outage. MaxAttempts must not be more than Retry.MaxAttempts of the outbox, which would give
	// the event up first. Default: 10, as there.
	MaxAttempts int
	// Lease is how long an effect stays held by a process that died. A living process extends it at
	// each third of it. It should be longer than PublishTimeout of the outbox and SweepTimeout;
	// otherwise the Worker warns once. Default: 30 s, from 100 ms to once.MaxLease.
	Lease time.Duration
	// StoreTimeout bounds the recording of a result, which goes on after the handler's context has
	// ended. Default: 5 s, or half of Lease if that is shorter.
	StoreTimeout time.Duration
	// OverdueAfter is how long an effect may be due, or abandoned by a process that died, before
	// Run and Sweep execute it without an event. It should be longer than Retry.MaxDelay of the
	// outbox, because it cuts the pauses of its retries short. Default: 5 min, at least 1 ms.
	OverdueAfter time.Duration
	// SweepInterval is the pause between two sweeps in Run, with up to a fifth of jitter, so that
	// several processes do not sweep at once. Default: 1 min.
	SweepInterval time.Duration
	// SweepTimeout bounds a handler that Run or Sweep calls, as PublishTimeout of the outbox bounds
	// a handler that the relay calls: give it the same value. It costs the effect no attempt.
	// Default: 5 s, as there.
	SweepTimeout time.Duration
	// Classifier judges unmarked errors. Default: core.DefaultClassifier, and ClassUnavailable for
	// a database that cannot be used now.
	Classifier func(error) core.Class
	// Node names this process in the effects it holds. Default: host name and process id. At most
	// 128 bytes.
	Node string
	// Logger gets warnings about channels that seem to be more than one destination, and about a
	// Lease that is shorter than a handler may run, and errors about handlers that ignore the end
	// of their context. Default: core.DefaultLogger, which writes warnings and errors to
	// slog.Default(). To silence it: slog.New(slog.DiscardHandler).
	Logger *slog.Logger
	// Observer is called for each execution, for metrics. It must not block. Default: none.
	Observer func(info ExecInfo)
}

// Results of an execution.
const (
	resultExecuted = "executed"
	resultRetried  = "retried"
	resultDead     = "dead"
	resultLost     = "lost"
	resultSkipped  = "skipped"
	resultPutOff   = "put_off"
)

// ExecInfo describes the execution of an effect.
type ExecInfo struct {
	Tenant, Channel, Key, ID string
	// Result is one of:
	//
	//   - executed: done and recorded;
	//   - retried: failed, and the relay tries again;
	//   - dead: waits for a person;
	//   - lost: its end could not be recorded. It will be executed again, unless another worker has
	//     done so;
	//   - skipped: completed, dead or discarded before, or another worker executes it;
	//   - put_off: not executed, because its destination is stopped, or has PerDestination effects.
	Result string
	// of the event that woke the worker, or of the effect if Run or Sweep found it; from 1
	Attempt  int
	Duration time.Duration
	Err      error
}

// classify is the default of WorkerConfig.Classifier.
func classify(err error) core.Class {
	if sqlerr.Unavailable(err) {
		return core.ClassUnavailable
	}
	return core.DefaultClassifier(err)
}

func (c WorkerConfig) withDefaults() WorkerConfig {
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 10)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.StoreTimeout = cmp.Or(c.StoreTimeout, min(5*time.Second, c.Lease/2))
	c.PerDestination = cmp.Or(c.PerDestination, 8)
	c.OverdueAfter = cmp.Or(c.OverdueAfter, 5*time.Minute)
	c.SweepInterval = cmp.Or(c.SweepInterval, time.Minute)
	c.SweepTimeout = cmp.Or(c.SweepTimeout, 5*time.Second)
	if c.Classifier == nil {
		c.Classifier = classify
	}
	if c.Observer == nil {
		c.Observer = func(ExecInfo) {}
	}
	c.Logger = cmp.Or(c.Logger, core.DefaultLogger()).With("component", "command")
	if c.Node == "" {
		host, _ := os.Hostname()
		c.Node = fmt.Sprintf("%.100s/%d", host, os.Getpid())
	}
	return c
}

// Validate reports every problem of c at once. [NewWorker] calls it.
func (c WorkerConfig) Validate() error {
	c = c.withDefaults()
	bad := problems.List{Of: "command: config: "}
	bad.If(c.Store == nil, "Store is missing")
	bad.If(len(c.Handlers) == 0, "Handlers is empty")
	for _, channel := range slices.Sorted(maps.Keys(c.Handlers)) {
		bad.If(c.Handlers[channel] == nil, "the handler of channel %q is nil", channel)
		err := Effect{Channel: channel, Key: "k"}.Validate()
		bad.If(err != nil, "Handlers: %w", err)
	}
	bad.If(c.PerDestination < 1, "PerDestination %d is less than 1", c.PerDestination)
	bad.If(c.MaxAttempts < 1, "MaxAttempts %d is less than 1", c.MaxAttempts)
	bad.If(c.Lease < 100*time.Millisecond || c.Lease > once.MaxLease,
		"Lease %s is not between 100ms and %s", c.Lease, once.MaxLease)
	bad.If(c.StoreTimeout <= 0 || c.StoreTimeout >= c.Lease,
		"StoreTimeout %s is not between 0 and Lease %s", c.StoreTimeout, c.Lease)
	bad.If(c.OverdueAfter < time.Millisecond || c.OverdueAfter > once.MaxTTL,
		"OverdueAfter %s is not between 1ms and %s", c.OverdueAfter, once.MaxTTL)
	bad.If(c.SweepInterval < 0, "SweepInterval %s is negative", c.SweepInterval)
	bad.If(c.SweepTimeout < 0, "SweepTimeout %s is negative", c.SweepTimeout)
	bad.If(len(c.Node) > 128, "Node has %d bytes, more than 128", len(c.Node))
	return bad.Err()
}

// Worker executes effects for the relay: it is a core.Publisher of the topics of its channels. Its
// Run executes effects that no event wakes up. Create it with [NewWorker]. It is safe for use by
// several goroutines.
type Worker struct {
	cfg   WorkerConfig
	node  string
	runs  atomic.Uint64
	away  *destinations
	short shortLease
	names program.Names
	// leases keeps the leases of effects that are being executed.
	leases lease.Keeper
}

var (
	_ core.ReceiptPublisher = (*Worker)(nil)
	_ core.TopicLister      = (*Worker)(nil)
)

// NewWorker returns a Worker, or an error that names every problem of cfg.
func NewWorker(cfg WorkerConfig) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	cfg.Handlers = maps.Clone(cfg.Handlers)
	var incarnation [8]byte
	_, _ = rand.Read(incarnation[:]) // never fails
	w := &Worker{cfg: cfg, node: cfg.Node + "/" + hex.EncodeToString(incarnation[:])}
	w.away = newDestinations(cfg.PerDestination)
	w.leases = lease.Keeper{
		Lease: cfg.Lease, Timeout: cfg.StoreTimeout, Lost: once.ErrLeaseLost,
		Over: func(err error) bool { return errors.Is(err, once.ErrLeaseLost) || errors.Is(err, once.ErrAlreadyDone) },
	}
	return w, nil
}

// Topics implements core.TopicLister.
func (w *Worker) Topics() []string {
	var topics []string
	for channel := range w.cfg.Handlers {
		topics = append(topics, Topic(channel))
	}
	slices.Sort(topics)
	return topics
}

// AddTo routes the events of the Worker's channels to it.
func (w *Worker) AddTo(r *core.Router) {
	for _, t := range w.Topics() {
		r.Handle(t, w)
	}
}

// Publish implements core.Publisher.
func (w *Worker) Publish(ctx context.Context, d core.Delivery) error {
	_, err := w.PublishWithReceipt(ctx, d)
	return err
}

// PublishWithReceipt executes the effect that the event names, unless it is completed, dead,
// discarded, or held by another worker. Nil means that this event has nothing left to do: the
// effect is completed or discarded, or it is dead and Redrive will write another event.
func (w *Worker) PublishWithReceipt(ctx context.Context, d core.Delivery) (receipt string, err error) {
	channel := strings.TrimPrefix(d.Topic, topicPrefix)
	handler := w.cfg.Handlers[channel]
	if handler == nil { // another process may know the channel
		return "", core.Unavailable(fmt.Errorf("%w: no handler for effects of channel %q", core.ErrNoRoute, channel))
	}
	info := ExecInfo{Tenant: d.TenantID, Channel: channel, ID: d.AggregateID, Attempt: max(1, d.Attempt)}
	if wait, yes := w.away.turnedAway(info.ID); yes {
		info.Result, info.Err = resultPutOff, errStopped
		w.cfg.Observer(info)
		return "", core.PutOff(errStopped, wait)
	}
	receipt, _, err = w.perform(ctx, info, handler)
	return receipt, err
}

// claim leases an effect. A request that failed is repeated once: without the answer, nobody would
// execute the effect before its lease has ended.
func (w *Worker) claim(ctx context.Context, c Claim) (Claimed, error) {
	got, err := w.cfg.Store.Claim(ctx, c.ID, c.Owner, w.cfg.Lease)
	if err != nil && !errors.Is(err, ErrNoEffect) && ctx.Err() == nil {
		got, err = w.cfg.Store.Claim(ctx, c.ID, c.Owner, w.cfg.Lease)
	}
	return got, err
}

// perform executes the effect that info names. An Attempt of 0 stands for the next attempt of the
// effect. The result is empty if the store could not claim the effect.
func (w *Worker) perform(ctx context.Context, info ExecInfo,
	handler Handler,
) (receipt string, outcome string, err error) {
	w.register(ctx, info.Channel)
	start := time.Now()
	claim := Claim{ID: info.ID, Owner: w.node + "/" + strconv.FormatUint(w.runs.Add(1), 36)}
	got, err := w.claim(ctx, claim)
	switch {
	case errors.Is(err, ErrNoEffect): // the event becomes DEAD: a worker with the wrong table must not lose effects
		return "", "", core.Permanent(errtext.Errorf("command: effect %s: %w", claim.ID, err))
	case err != nil: // an error of this side's store, not of the other side
		return "", "", core.UnavailableForKey(errtext.Errorf("command: claim: %w", err))
	}
	claim.Fence, info.Key = got.Fence, got.Key
	if !got.Fresh {
		info.Result = resultSkipped
		w.cfg.Observer(info)
		switch got.Status {
		case StatusCompleted:
			return got.ExternalRef, resultSkipped, nil
		case StatusDead, StatusDiscarded:
			return got.Status.String(), resultSkipped, nil
		case StatusPending, StatusProcessing, StatusFailed:
		}
		return "", resultSkipped, core.UnavailableForKey(fmt.Errorf("%w: effect %s, its lease ends in %s",
			once.ErrInProgress, claim.ID, got.RetryAfter))
	}
	if got.LostLeases >= w.cfg.MaxAttempts {
		err = fmt.Errorf("command: %d processes disappeared while they executed it", got.LostLeases)
		ref, outcome, end := w.giveUp(ctx, claim, Failure{Free: true, Code: "lost", Text: err.Error()})
		info.Result, info.Err = outcome, errors.Join(err, end)
		w.cfg.Observer(info)
		return ref, outcome, end
	}
	run := execution{claim: claim, effect: got.Effect, attempt: info.Attempt, held: start, swept: info.Attempt == 0}
	if run.swept || w.cfg.Destination != nil { // the relay counts the refusals of one destination for each channel
		run.attempt = got.Attempts + 1
		info.Attempt = run.attempt
	}
	at := w.at(got.Effect)
	var wait time.Duration
	if run.visit, wait = w.away.enter(at, claim.ID); run.visit == nil {
		info.Result, info.Err = resultPutOff, stoppedError(at)
		f := Failure{Free: true, Code: "put_off", Text: errorText(info.Err)}
		if err := w.leases.Record(ctx,
			func(ctx context.Context) error { return w.cfg.Store.Fail(ctx, claim, f) }); err != nil {
			info.Err = errors.Join(info.Err, err) // the lease will end
		}
		w.cfg.Observer(info)
		return "", resultPutOff, core.PutOff(info.Err, wait)
	}
	ctx = cause.With(ctx, cause.New(claim.ID, got.CorrelationID))
	receipt, info.Result, err = w.execute(ctx, run, handler, &info.Err)
	info.Duration = time.Since(start)
	w.cfg.Observer(info)
	return receipt, info.Result, err
}

// execution is one execution of an effect, under a claim that was requested at held.
type execution struct {
	claim   Claim
	effect  Effect
	attempt int
	held    time.Time
	swept   bool   // a sweep runs it, and not the relay
	visit   *visit // the visit of its destination
}

func (w *Worker) giveUp(ctx context.Context, c Claim, f Failure) (string, string, error) {
	f.Dead = true
	if err := w.leases.Record(ctx, func(ctx context.Context) error { return w.cfg.Store.Fail(ctx, c, f) }); err != nil {
		return "", resultLost, core.UnavailableForKey(errtext.Errorf("command: give up: %w", err))
	}
	return "dead", resultDead, nil
}

// execute calls the handler under the lease and records the result. The error is for the relay.
// cause is for the observer.
func (w *Worker) execute(ctx context.Context, run execution, handler Handler,
	cause *error,
) (ref string, outcome string, err error) {
	w.short.check(ctx, w.cfg.Lease, w.cfg.Logger)
	runCtx, cancel := context.WithCancelCause(ctx)
	stop := w.leases.Keep(runCtx, run.held,
		func(ctx context.Context) error { return w.cfg.Store.Extend(ctx, run.claim, w.cfg.Lease) },
		func(err error) { cancel(err) })
	finish := func(end handlerEnd, cause *error) (string, string, error) {
		stop()
		defer cancel(nil)
		return w.conclude(ctx, runCtx, run, end, cause)
	}
	ended := call(runCtx, handler, run.effect)
	if end, ok := w.await(ctx, run, ended); ok {
		return finish(end, cause)
	}
	*cause = errStuck
	return "", resultRetried, core.PutOff(errStuck, w.abandon(run, ended, finish))
}

// conclude records how a handler ended. A panic goes on to the caller, and so does runtime.Goexit.
func (w *Worker) conclude(ctx, runCtx context.Context, run execution, end handlerEnd,
	cause *error,
) (ref string, outcome string, err error) {
	c := run.claim
	if p := end.panicked; p != nil {
		w.leave(run, visitRefused)
		f := Failure{Dead: run.attempt >= w.cfg.MaxAttempts, Code: "panic", Text: errorText(didNotReturn(p))}
		if p.Value == nil {
			f.Code = "goexit"
		}
		_ = w.leases.Record(ctx, func(ctx context.Context) error { return w.cfg.Store.Fail(ctx, c, f) })
		if p.Value == nil {
			runtime.Goexit()
		}
		panic(p) //nolint:forbidigo // the handler's panic goes on to the relay, which counts a refusal
	}
	ref, failure := end.ref, end.err
	*cause = failure
	if failure == nil {
		w.leave(run, visitGood)
		err := w.leases.Record(ctx, func(ctx context.Context) error { return w.cfg.Store.Complete(ctx, c, ref) })
		if err == nil || errors.Is(err, once.ErrAlreadyDone) {
			return ref, resultExecuted, nil
		}
		*cause = errtext.Errorf("command: executed, but that could not be recorded: %w", err)
		return "", resultLost, core.UnavailableForKey(*cause)
	}
	if errors.Is(context.Cause(runCtx), once.ErrLeaseLost) {
		w.leave(run, visitUnclear)
		*cause = errtext.Errorf("%w: %w", once.ErrLeaseLost, failure)
		return "", resultLost, core.UnavailableForKey(*cause)
	}
	class, marked := core.ClassOf(failure)
	if !marked {
		class = w.cfg.Classifier(failure)
	}
	late := errors.Is(ctx.Err(), context.DeadlineExceeded) && (class != core.ClassPermanent || !marked)
	// It is not known here whether the whole channel is stuck.
	if (run.swept || w.cfg.Destination != nil) && late {
		class, marked = core.ClassUnavailable, false
	}
	stopping := errors.Is(ctx.Err(), context.Canceled) // the relay shuts down
	class, pause := w.judge(run, failure, class, marked, late, stopping)
	f := Failure{Code: class.String(), Text: errorText(failure), Free: stopping ||
		class == core.ClassUnavailable || class == core.ClassKeyUnavailable ||
		class == core.ClassUnroutable}
	if !stopping && (class == core.ClassPermanent || class == core.ClassTransient && run.attempt >= w.cfg.MaxAttempts) {
		return w.giveUp(ctx, c, f)
	}
	if err := w.leases.Record(ctx, func(ctx context.Context) error { return w.cfg.Store.Fail(ctx, c, f) }); err != nil {
		*cause = errors.Join(failure, err) // the lease will end
	}
	switch {
	case pause > 0:
		return "", resultRetried, core.PutOff(failure, pause)
	case marked: // the handler may have said when to try again
		return "", resultRetried, failure
	}
	return "", resultRetried, mark(class, failure)
}

// didNotReturn returns the error of a handler that panicked with v. A nil v means that it called
// runtime.Goexit.
func didNotReturn(v any) error {
	return fmt.Errorf("command: the handler did not return: %w", core.NewPanicError(v))
}

// mark marks an error with the class that the Classifier of the Worker found, because the relay's
// classifier may find another. A timeout is left to the relay, which can recognise that the whole
// channel is stuck.
func mark(class core.Class, err error) error {
	if class == core.ClassTransient && errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return class.Mark(err)
}

var (
	urlSecret = regexp.MustCompile(`://[^/\s@]*@`)
	urlQuery  = regexp.MustCompile(`(https?://[^\s"?]*)\?[^\s"]*`)
)

// errorText is the text of an error that is stored, without the credentials that URLs carry.
func errorText(err error) string {
	return urlQuery.ReplaceAllString(urlSecret.ReplaceAllString(err.Error(), "://***@"), "$1?***")
}
