package relay

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay/internal/guard"
)

// engine is a relay at work, from the first call of Run or Drain until the last one returns. The table
// is the only source of truth. The engine may lose everything it holds in memory: the poller of some
// process finds the rows again.
type engine struct {
	*outbox
	guard   *guard.Guard[state]
	signals signals
	db      recovery
	janitor *janitor
	turns   turns
	life    lifetime
}

// do runs fn with the state, which no other goroutine has meanwhile. No I/O and no callback of the
// user happens in it.
func (r *engine) do(fn func(s *state)) { r.guard.Do(fn) }

// ask is do with a result.
func ask[T any](r *engine, fn func(s *state) T) T { return guard.Ask(r.guard, fn) }

// lifetime has the means that end the goroutines of a relay.
type lifetime struct {
	publishes, writes             context.Context //nolint:containedctx // shutdown ends one after the other
	cancelPublishes, cancelWrites context.CancelFunc
	deadlines                     deadlines      // of publishes; has a mutex of its own
	workers                       sync.WaitGroup // the workers, the writer and who follows operators
	abandon                       chan struct{}  // closed: marks that cannot be written are given up
	stopRenew, renewDone          chan struct{}
	renewFails                    atomic.Bool // the last renewal failed
	unrecorded                    atomic.Bool // the history could not be written
	vitals                        vitals
	clocks                        clocks
	pollFails                     atomic.Pointer[error] // the last error of several in a row
	poolClosed                    chan struct{}         // closed when the pool is: nothing can be written any more
	closePool                     func()                // closes that channel, once
}

func newEngine(of *outbox) *engine {
	r := &engine{
		outbox: of, signals: newSignals(), turns: make(turns, 1),
		life: lifetime{
			stopRenew: make(chan struct{}), renewDone: make(chan struct{}), abandon: make(chan struct{}),
			poolClosed: make(chan struct{}),
		},
	}
	startWorker := func() { r.life.workers.Go(r.worker) }
	r.guard = guard.New(func(e *guard.Effects) *state { return newState(of, e, r.signals, startWorker) })
	r.janitor = newJanitor(of, r.doubt)
	r.life.vitals.started = time.Now()
	r.life.closePool = sync.OnceFunc(func() { close(r.life.poolClosed) })
	//nolint:fatcontext // its parent is context.Background
	r.life.publishes, r.life.cancelPublishes = context.WithCancel(context.Background())
	r.life.writes, r.life.cancelWrites = context.WithCancel(context.Background())
	return r
}

// run relays until ctx ends or the pool is closed. It returns how long the last of its goroutines took
// to end after that.
func (r *engine) run(ctx context.Context) (spent time.Duration) {
	if foreign := r.topics.foreign; len(foreign) > 0 {
		r.ob.Logger.WarnContext(ctx, "outbox: Routes name topics that this process does not relay: another one has to",
			"destinations", foreign)
	}
	r.life.vitals.stamp(&r.life.vitals.turned)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { r.poll(ctx) })
	wg.Go(func() { r.listen(ctx) })
	wg.Go(func() { r.beat(ctx) })
	wg.Go(func() { r.record(ctx) })
	if !r.cfg.DisableJanitor {
		wg.Go(func() { r.janitor.clean(ctx) })
	}
	select {
	case <-ctx.Done():
	case <-r.life.poolClosed:
		stop()
	}
	ended := time.Now()
	wg.Wait()
	return time.Since(ended)
}

// noPool reports whether an error means that the program has closed the pool. Then no mark can be
// written any more, and Run ends.
func (r *engine) noPool(err error) bool {
	if err == nil || r.repo().Classify(err) != core.ErrorPoolClosed {
		return false
	}
	r.life.closePool()
	return true
}

func (r *engine) start() {
	r.life.workers.Go(r.writeMarks)
	r.life.workers.Go(r.followOperators)
	go r.renewLeases()
}
