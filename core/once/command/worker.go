package command

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// Handler executes an effect and returns the id that the other side gave it, if any. It gives
// Effect.IdempotencyKey to the other side, because it is called again when a process died before it
// could record the success. It stops when ctx ends, which carries the outbox's PublishTimeout, or
// SweepTimeout, and has the cause once.ErrLeaseLost when another worker may have begun.
//
// An error says what to do, as that of a core.Publisher: core.Permanent parks the effect at once,
// core.Unavailable stops the channel, or its destination (see WorkerConfig.Destination), until the
// other side is back and costs no attempt, everything else spends an attempt. The text of the error
// is stored: keep secrets out of it.
type Handler func(ctx context.Context, e Effect) (externalRef string, err error)

// WorkerConfig says how effects are executed.
type WorkerConfig struct {
	// Store of the effects: sqlcommand.New. Required.
	Store Store
	// Handlers of the channels. At least one.
	Handlers map[string]Handler
	// Destination says where an effect goes, if the effects of a channel go to places that fail
	// apart from each other: the host of a webhook's subscriber, say. An outage then stops that
	// destination and no other one of the channel; see PerDestination. It must be quick and not
	// panic. Default: none, a channel is one destination, as a mail server is. Set it for webhooks:
	// nothing that an effect says by itself tells where it goes. Its key is another one for each
	// effect, so that an outage would never be noticed; and one tenant may have many places, as
	// many tenants may share one, which would then be tried by each of them in an outage. A channel
	// that looks as if it were several is logged.
	Destination func(e Effect) string
	// PerDestination is how many effects of one Destination are executed at once in this process,
	// so that one that hangs does not take all workers of the relay: keep it at a quarter of
	// core.Config.Workers, or less. Default: 8. Without Destination it means nothing.
	PerDestination int
	// MaxAttempts is after how many failed attempts an effect is parked, or after how many
	// processes that died with it. An error that the handler did not mark does not spend the last
	// of them while its destination has taken nothing else since it refused the effect first: that
	// may be an outage. It must not be more than Retry.MaxAttempts of the outbox, which would give
	// the event up first. Default: 10, as there.
	MaxAttempts int
	// Lease is how long an effect stays held by a process that died. It is extended every third of
	// it. Default: 30 s, from 100 ms to once.MaxLease.
	Lease time.Duration
	// StoreTimeout bounds the recording of an outcome, which goes on when the handler's context has
	// ended. Default: 5 s, or half of a Lease that is not longer.
	StoreTimeout time.Duration
	// OverdueAfter is how long an effect may be due, or left alone by a process that died, before
	// Run and Sweep execute it without an event. It should be longer than Retry.MaxDelay of the
	// outbox, whose pauses it cuts short. Default: 5 min, at least 1 ms.
	OverdueAfter time.Duration
	// SweepInterval is the pause between two sweeps in Run, changed by up to a fifth, so that
	// several processes do not sweep at once. Default: 1 min.
	SweepInterval time.Duration
	// SweepTimeout bounds a handler that Run or Sweep calls, as PublishTimeout of the outbox bounds
	// one that the relay calls: give it the same. It costs the effect no attempt. Default: 5 s, as
	// there.
	SweepTimeout time.Duration
	// Classifier says what an error means that does not say it itself. Default:
	// core.DefaultClassifier.
	Classifier func(error) core.Class
	// Node names this process in the effects it holds. Default: host name and process id. At most
	// 128 bytes.
	Node string
	// Logger is told of channels that seem to be more than one destination. Default:
	// core.DefaultLogger, warnings and errors to slog.Default(). To silence it:
	// slog.New(slog.DiscardHandler).
	Logger *slog.Logger
	// Observer is told about each execution, for metrics. It must not block. Default: none.
	Observer func(info ExecInfo)
}

// ExecOutcome says how an execution ended.
type ExecOutcome string

// Outcomes.
const (
	Executed ExecOutcome = "executed" // and recorded
	Retried  ExecOutcome = "retried"  // failed: the relay tries again
	Parked   ExecOutcome = "parked"   // waits for a person
	// its end could not be recorded: it will be executed again, unless another worker has done so
	Lost    ExecOutcome = "lost"
	Skipped ExecOutcome = "skipped" // completed or parked before, or another worker is at it
	PutOff  ExecOutcome = "put_off" // not executed: its destination is stopped, or has PerDestination effects
)

// ExecInfo describes the execution of an effect.
type ExecInfo struct {
	Tenant, Channel, Key, ID string
	Outcome                  ExecOutcome
	// of the event that woke the worker up, or of the effect when Run or Sweep found it; from 1
	Attempt  int
	Duration time.Duration
	Err      error
}

func (c WorkerConfig) withDefaults() WorkerConfig {
	def(&c.MaxAttempts, 10)
	def(&c.Lease, 30*time.Second)
	def(&c.StoreTimeout, min(5*time.Second, c.Lease/2))
	def(&c.PerDestination, 8)
	def(&c.OverdueAfter, 5*time.Minute)
	def(&c.SweepInterval, time.Minute)
	def(&c.SweepTimeout, 5*time.Second)
	if c.Classifier == nil {
		c.Classifier = core.DefaultClassifier
	}
	if c.Observer == nil {
		c.Observer = func(ExecInfo) {}
	}
	if c.Logger == nil {
		c.Logger = core.DefaultLogger()
	}
	if c.Node == "" {
		host, _ := os.Hostname()
		c.Node = fmt.Sprintf("%.100s/%d", host, os.Getpid())
	}
	return c
}

// Validate reports every problem of c at once. NewWorker calls it.
func (c WorkerConfig) Validate() error {
	c = c.withDefaults()
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("command: config: "+format, args...))
	}
	if c.Store == nil {
		bad("Store is missing")
	}
	if len(c.Handlers) == 0 {
		bad("Handlers is empty")
	}
	for _, channel := range slices.Sorted(maps.Keys(c.Handlers)) {
		if c.Handlers[channel] == nil {
			bad("the handler of channel %q is nil", channel)
		}
		if err := (Effect{Channel: channel, Key: "k"}).Validate(); err != nil {
			bad("Handlers: %w", err)
		}
	}
	if c.PerDestination < 1 {
		bad("PerDestination %d is less than 1", c.PerDestination)
	}
	if c.MaxAttempts < 1 {
		bad("MaxAttempts %d is less than 1", c.MaxAttempts)
	}
	if c.Lease < 100*time.Millisecond || c.Lease > once.MaxLease {
		bad("Lease %s is not between 100ms and %s", c.Lease, once.MaxLease)
	}
	if c.StoreTimeout <= 0 || c.StoreTimeout >= c.Lease {
		bad("StoreTimeout %s is not between 0 and Lease %s", c.StoreTimeout, c.Lease)
	}
	if c.OverdueAfter < time.Millisecond || c.OverdueAfter > once.MaxTTL {
		bad("OverdueAfter %s is not between 1ms and %s", c.OverdueAfter, once.MaxTTL)
	}
	if c.SweepInterval < 0 {
		bad("SweepInterval %s is negative", c.SweepInterval)
	}
	if c.SweepTimeout < 0 {
		bad("SweepTimeout %s is negative", c.SweepTimeout)
	}
	if len(c.Node) > 128 {
		bad("Node has %d bytes, more than 128", len(c.Node))
	}
	return errors.Join(problems...)
}

// Worker executes effects for the relay: it is a core.Publisher of the topics of its channels. Its
// Run executes those that no event wakes up any more. Make it with NewWorker; it is safe for use by
// several goroutines.
type Worker struct {
	cfg   WorkerConfig
	node  string
	runs  atomic.Uint64
	away  *destinations // nil without WorkerConfig.Destination
	mixed mixed         // without it
}

var (
	_ core.ReceiptPublisher = (*Worker)(nil)
	_ core.TopicLister      = (*Worker)(nil)
)

// NewWorker returns a Worker, or every problem of cfg at once.
func NewWorker(cfg WorkerConfig) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	cfg.Handlers = maps.Clone(cfg.Handlers)
	var incarnation [8]byte
	_, _ = rand.Read(incarnation[:]) // never fails
	w := &Worker{cfg: cfg, node: cfg.Node + "/" + hex.EncodeToString(incarnation[:])}
	w.mixed = mixed{logger: cfg.Logger, channels: map[string]*mixture{}}
	if cfg.Destination != nil {
		w.away = newDestinations(cfg.PerDestination)
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

// PublishWithReceipt executes the effect that the event names, unless that is done, parked or in
// other hands. Nil means that this event has nothing left to do: the effect is completed, or
// parked, in which case Release writes another event.
func (w *Worker) PublishWithReceipt(ctx context.Context, d core.Delivery) (receipt string, err error) {
	channel := strings.TrimPrefix(d.Topic, topicPrefix)
	handler := w.cfg.Handlers[channel]
	if handler == nil { // another process may know it
		return "", core.Unavailable(fmt.Errorf("%w: no handler for effects of channel %q", core.ErrNoRoute, channel))
	}
	info := ExecInfo{Tenant: d.TenantID, Channel: channel, ID: d.AggregateID, Attempt: max(1, d.Attempt)}
	if w.away != nil {
		if wait, yes := w.away.turnedAway(info.ID); yes {
			info.Outcome, info.Err = PutOff, errStopped
			w.cfg.Observer(info)
			return "", core.PutOff(errStopped, wait)
		}
	}
	receipt, _, err = w.perform(ctx, info, handler)
	return receipt, err
}

// perform executes the effect that info names; an Attempt of 0 stands for the next one of the
// effect. The outcome is empty when the effect could not be claimed for want of a store.
func (w *Worker) perform(ctx context.Context, info ExecInfo,
	handler Handler,
) (receipt string, outcome ExecOutcome, err error) {
	start := time.Now()
	claim := Claim{ID: info.ID, Owner: w.node + "/" + strconv.FormatUint(w.runs.Add(1), 36)}
	got, err := w.cfg.Store.Claim(ctx, claim.ID, claim.Owner, w.cfg.Lease)
	switch {
	case errors.Is(err, ErrNoEffect): // DEAD and visible: a worker with the wrong table must not lose effects
		return "", "", core.Permanent(fmt.Errorf("command: effect %s: %w", claim.ID, err))
	case err != nil: // of our own store, not of the other side
		return "", "", core.UnavailableForKey(fmt.Errorf("command: claim: %w", err))
	}
	claim.Fence, info.Key = got.Fence, got.Key
	if !got.Fresh {
		info.Outcome = Skipped
		w.cfg.Observer(info)
		switch got.Status {
		case StatusCompleted:
			return got.ExternalRef, Skipped, nil
		case StatusDead:
			return "parked", Skipped, nil
		case StatusPending, StatusProcessing, StatusFailed:
		}
		return "", Skipped, core.UnavailableForKey(fmt.Errorf("%w: effect %s, its lease ends in %s", once.ErrInProgress,
			claim.ID, got.RetryAfter))
	}
	if got.LostLeases >= w.cfg.MaxAttempts {
		err = fmt.Errorf("command: %d processes disappeared while they executed it", got.LostLeases)
		ref, outcome, end := w.park(ctx, claim, Failure{Free: true, Code: "lost", Text: err.Error()})
		info.Outcome, info.Err = outcome, errors.Join(err, end)
		w.cfg.Observer(info)
		return ref, outcome, end
	}
	run := execution{claim: claim, effect: got.Effect, attempt: info.Attempt, held: start, swept: info.Attempt == 0}
	if run.swept || w.away != nil { // the relay counts the refusals of one destination for each channel
		run.attempt = got.Attempts + 1
		info.Attempt = run.attempt
	}
	if w.away != nil {
		at := place{info.Channel, w.cfg.Destination(got.Effect)}
		var wait time.Duration
		if run.visit, wait = w.away.enter(at, claim.ID); run.visit == nil {
			info.Outcome, info.Err = PutOff, stoppedError(at)
			f := Failure{Free: true, Code: "put_off", Text: errorText(info.Err)}
			if err := w.record(ctx,
				func(ctx context.Context) error { return w.cfg.Store.Fail(ctx, claim, f) }); err != nil {
				info.Err = errors.Join(info.Err, err) // the lease will end
			}
			w.cfg.Observer(info)
			return "", PutOff, core.PutOff(info.Err, wait)
		}
	}
	receipt, info.Outcome, err = w.execute(ctx, run, handler, &info.Err)
	info.Duration = time.Since(start)
	w.cfg.Observer(info)
	return receipt, info.Outcome, err
}

// execution is one execution of an effect, under a claim that was asked for at the instant held.
type execution struct {
	claim   Claim
	effect  Effect
	attempt int
	held    time.Time
	swept   bool   // not asked for by the relay
	visit   *visit // of its destination; nil without WorkerConfig.Destination
}

func (w *Worker) park(ctx context.Context, c Claim, f Failure) (string, ExecOutcome, error) {
	f.Dead = true
	if err := w.record(ctx, func(ctx context.Context) error { return w.cfg.Store.Fail(ctx, c, f) }); err != nil {
		return "", Lost, core.UnavailableForKey(fmt.Errorf("command: park: %w", err))
	}
	return "parked", Parked, nil
}

// execute calls the handler under the lease and records how that ended. The error is for the relay;
// cause is told to the observer.
func (w *Worker) execute(ctx context.Context, run execution, handler Handler,
	cause *error,
) (ref string, outcome ExecOutcome, err error) {
	c := run.claim
	runCtx, cancel := context.WithCancelCause(ctx)
	stop := w.keepAlive(runCtx, cancel, c, run.held)
	finished := false
	defer func() {
		stop()
		cancel(nil)
		if finished {
			return
		}
		v := recover() // nil: runtime.Goexit, which goes on too
		w.leave(run, visitRefused)
		f := Failure{Dead: run.attempt >= w.cfg.MaxAttempts, Code: "panic", Text: errorText(didNotReturn(v))}
		if v == nil {
			f.Code = "goexit"
		}
		_ = w.record(ctx, func(ctx context.Context) error { return w.cfg.Store.Fail(ctx, c, f) })
		if v != nil {
			panic(v) //nolint:forbidigo // to the relay, which counts it as a refusal, with the stack that it had
		}
	}()
	ref, failure := handler(runCtx, run.effect)
	finished = true
	stop()
	*cause = failure
	if failure == nil {
		w.leave(run, visitGood)
		err := w.record(ctx, func(ctx context.Context) error { return w.cfg.Store.Complete(ctx, c, ref) })
		if err == nil || errors.Is(err, once.ErrAlreadyDone) {
			return ref, Executed, nil
		}
		*cause = fmt.Errorf("command: executed, but that could not be recorded: %w", err)
		return "", Lost, core.UnavailableForKey(*cause)
	}
	if errors.Is(context.Cause(runCtx), once.ErrLeaseLost) {
		w.leave(run, visitUnclear)
		*cause = fmt.Errorf("%w: %w", once.ErrLeaseLost, failure)
		return "", Lost, core.UnavailableForKey(*cause)
	}
	class, marked := core.ClassOf(failure)
	if !marked {
		class = w.cfg.Classifier(failure)
	}
	late := errors.Is(ctx.Err(), context.DeadlineExceeded) && (class != core.ClassPermanent || !marked)
	if (run.swept || run.visit != nil) && late { // whether the channel is stuck as a whole, nobody knows here
		class, marked = core.ClassUnavailable, false
	}
	stopping := errors.Is(ctx.Err(), context.Canceled) // the relay shuts down
	class, pause := w.judge(run, class, marked, late, stopping)
	f := Failure{Code: class.String(), Text: errorText(failure), Free: stopping ||
		class == core.ClassUnavailable || class == core.ClassKeyUnavailable ||
		class == core.ClassUnroutable}
	if !stopping && (class == core.ClassPermanent || class == core.ClassTransient && run.attempt >= w.cfg.MaxAttempts) {
		return w.park(ctx, c, f)
	}
	if err := w.record(ctx, func(ctx context.Context) error { return w.cfg.Store.Fail(ctx, c, f) }); err != nil {
		*cause = errors.Join(failure, err) // the lease will end
	}
	switch {
	case pause > 0:
		return "", Retried, core.PutOff(failure, pause)
	case marked: // by a handler that may have said when to come back
		return "", Retried, failure
	}
	return "", Retried, mark(class, failure)
}

// didNotReturn is the error for a handler that panicked with v, or called runtime.Goexit when v is
// nil.
func didNotReturn(v any) error {
	return fmt.Errorf("command: the handler did not return: %w", core.NewPanicError(v))
}

// mark makes an error say the class that the Classifier of the Worker found, because that of the
// relay may find another. A deadline that ended is left to the relay, which knows whether the
// channel is stuck as a whole.
func mark(class core.Class, err error) error {
	switch class {
	case core.ClassUnavailable:
		return core.Unavailable(err)
	case core.ClassUnroutable:
		return core.Unroutable(err)
	case core.ClassKeyUnavailable:
		return core.UnavailableForKey(err)
	case core.ClassPermanent:
		return core.Permanent(err)
	case core.ClassTransient:
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return core.Transient(err)
}
