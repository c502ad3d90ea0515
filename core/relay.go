package core

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/mutant"
)

// relay is the background side of an Outbox: dispatcher, poller, janitor. It holds no truth: the
// table does. What it holds may be dropped at any time, and is found again by the poller of some
// process.
//
// One mutex guards the parts of its state, which are types of their own; no I/O and no callback of
// the user happens under it.
type relay struct {
	o   *Outbox
	cfg *Config

	mu       sync.Mutex
	phase    relayPhase
	notices  notices
	inflight inflight
	lanes    lanes
	dests    destinations
	queue    workQueue
	crew     crew
	marks    marks
	wakes    wakeups
	poller   poller

	writer writer
	db     recovery
	life   lifetime
}

// relayPhase is how far the end of a relay has come.
type relayPhase uint8

const (
	phaseRunning  relayPhase = iota
	phaseClosing             // no new slots, no claims
	phaseStopping            // no new publishes
	phaseClosed              // over
)

// lifetime is what ends the goroutines of a relay.
type lifetime struct {
	publishes, writes             context.Context //nolint:containedctx // shutdown ends them one after the other
	cancelPublishes, cancelWrites context.CancelFunc
	workers                       sync.WaitGroup // and the writer
	stopRenew, renewDone          chan struct{}
	renewFails                    atomic.Bool // the last renewal failed
}

// shutdownGrace is how much of Config.ShutdownTimeout is left to publishers to notice that their
// context ended, and to the last marks to be written: at most a quarter of it.
const shutdownGrace = 5 * time.Second

func newRelay(o *Outbox) *relay {
	r := &relay{
		o: o, cfg: &o.cfg, wakes: newWakeups(), poller: poller{turn: make(chan struct{}, 1)},
		writer: writer{kick: make(chan struct{}, 1), abandon: make(chan struct{})},
		life:   lifetime{stopRenew: make(chan struct{}), renewDone: make(chan struct{})},
	}
	r.crew = crew{size: r.cfg.Workers, alive: r.cfg.Workers, work: sync.NewCond(&r.mu)}
	//nolint:fatcontext // it is not nested in anything
	r.life.publishes, r.life.cancelPublishes = context.WithCancel(context.Background())
	r.life.writes, r.life.cancelWrites = context.WithCancel(context.Background())
	return r
}

// repo is the table.
func (r *relay) repo() Repository { return r.cfg.Repository }

// random is in [0, 1).
func (r *relay) random() float64 { return r.o.random() }

// unlock gives the lock up and makes the calls that were noted under it.
func (r *relay) unlock() { r.notices.unlock(&r.mu) }

// Run relays events until ctx ends, then publishes what it has begun and writes the outcomes, gives
// the rest back, and returns nil, after Config.ShutdownTimeout at most. It owns its goroutines:
// none is left when it returns nil. Errors of the database or of the publisher do not end it:
// before it works it looks at the tables, and waits while the database is away. The fast path
// exists while Run runs: what was inserted before waits for the poller.
//
// It returns ErrNoPublisher without a Publisher, ErrRunning when it runs already, an error wrapping
// ErrNoTables when the tables are missing, and ErrShutdownTimeout when a publisher did not return
// although its context had ended. What it returns is also logged, so that "go ob.Run(ctx)" does not
// hide it.
func (o *Outbox) Run(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			o.cfg.Logger.ErrorContext(ctx, "outbox: the relay has ended", "component", "outbox", "err", errorText(err))
		}
	}()
	if o.cfg.Publisher == nil {
		return ErrNoPublisher
	}
	o.mu.Lock()
	if o.running {
		o.mu.Unlock()
		return ErrRunning
	}
	o.running = true
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		o.running = false
		o.mu.Unlock()
	}()
	if err := o.checkTables(ctx); err != nil {
		return err
	}

	if foreign := o.foreignTopics(); len(foreign) > 0 {
		o.cfg.Logger.WarnContext(ctx, "outbox: Routes name topics that this process does not relay: another one has to",
			"component", "outbox",
			"destinations", foreign)
	}
	r := o.acquire()
	var wg sync.WaitGroup
	wg.Go(func() { r.poll(ctx) })
	if !o.cfg.DisableJanitor {
		wg.Go(func() { r.clean(ctx) })
	}
	<-ctx.Done()
	wg.Wait()
	return o.giveUp(r)
}

// Drain publishes everything that is due now and returns when it is done and recorded: for tests,
// scheduled jobs and commands. It may be called with or without Run. What is due later (retries,
// delays), leased by another process or behind a dead event stays. It returns an error wrapping
// ErrStopped when a destination is unavailable.
func (o *Outbox) Drain(ctx context.Context) (err error) {
	if o.cfg.Publisher == nil {
		return ErrNoPublisher
	}
	r := o.acquire()
	defer func() {
		if e := o.giveUp(r); err == nil {
			err = e
		}
	}()
	r.drain(1)
	defer r.drain(-1)
	for {
		res, err := r.round(ctx, &idleKinds{})
		if err != nil {
			return fmt.Errorf("outbox: drain: %w", err)
		}
		if res == (roundResult{}) && r.isIdle() {
			break
		}
		if r.standsStill() {
			return fmt.Errorf("%w: every publish of this process is stuck", ErrStopped)
		}
		if err := r.waitIdle(ctx); err != nil {
			return fmt.Errorf("outbox: drain: %w", err)
		}
		if at, ok := r.nextLaneWake(); ok && !sleep(ctx, time.Until(at)) {
			return fmt.Errorf("outbox: drain: %w", ctx.Err())
		}
	}
	if topics := r.stopped(); len(topics) > 0 {
		return fmt.Errorf("%w: %s", ErrStopped, strings.Join(topics, ", "))
	}
	return nil
}

// standsStill reports whether nobody is left who could publish, and nothing is to be written.
func (r *relay) standsStill() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.crew.alive == 0 && r.inflight.active() == 0
}

// drain counts calls of Drain.
func (r *relay) drain(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.poller.drains += n
}

// acquire returns the running relay, or starts one.
func (o *Outbox) acquire() *relay {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.users++
	if r := o.relay.Load(); r != nil {
		return r
	}
	r := newRelay(o)
	r.start()
	o.relay.Store(r)
	return r
}

// giveUp ends a use of the relay; the last one shuts it down.
func (o *Outbox) giveUp(r *relay) error {
	o.mu.Lock()
	o.users--
	last := o.users == 0
	if last {
		o.relay.Store(nil) // from here on Publish inserts free rows
	}
	o.mu.Unlock()
	if !last {
		return nil
	}
	return r.shutdown()
}

func (r *relay) start() {
	for range r.cfg.Workers {
		r.life.workers.Go(r.worker)
	}
	r.life.workers.Go(r.writeMarks)
	go r.renewLeases()
}

// shutdown ends the relay in phases: no new work, publish what is held, cancel, write marks, give
// back. All of it takes no longer than Config.ShutdownTimeout.
func (r *relay) shutdown() error {
	abandon := time.AfterFunc(r.cfg.ShutdownTimeout, func() {
		close(r.writer.abandon)
		r.life.cancelWrites()
	})
	defer abandon.Stop()
	r.mu.Lock()
	r.phase = phaseClosing
	// what waits for another event of its key may wait for long, and others can have it
	for _, it := range r.inflight.sorted() {
		if it.state == itemWaiting {
			r.release(it, FallbackShutdown, false)
		}
	}
	r.unlock()

	deadline := time.NewTimer(r.cfg.ShutdownTimeout - min(shutdownGrace, r.cfg.ShutdownTimeout/4))
	defer deadline.Stop()
	select {
	case <-r.idleChan():
	case <-deadline.C:
	}

	r.mu.Lock()
	r.phase = phaseStopping
	for _, it := range r.inflight.sorted() {
		switch it.state {
		case itemWaiting, itemReady:
			r.release(it, FallbackShutdown, false)
		case itemReserved: // its transaction is still open: the row cannot be given back, its lease will end
			r.forget(it)
		case itemNew, itemPublishing, itemAcked, itemFailed, itemReleasing, itemGone, itemStates:
		}
	}
	r.crew.work.Broadcast()
	r.unlock()
	r.life.cancelPublishes()

	// Publishers were told to stop; marks are written as they come in. What is not written by then
	// is published again.
	select {
	case <-r.idleChan():
	case <-r.writer.abandon:
	}
	close(r.life.stopRenew)
	<-r.life.renewDone
	r.mu.Lock()
	r.phase = phaseClosed
	stuck := r.inflight.count[itemPublishing] + r.crew.stuck
	r.unlock()
	r.writer.wake()
	if stuck > 0 {
		return fmt.Errorf("%w: %d publishes have not returned", ErrShutdownTimeout, stuck)
	}
	r.life.workers.Wait()
	return nil
}

// idleChan returns a channel that is closed when nothing is held any more, except for open
// transactions.
func (r *relay) idleChan() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inflight.idleChan()
}

// stopped returns the topics whose destination is stopped, sorted.
func (r *relay) stopped() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dests.stoppedTopics()
}

// isIdle reports whether nothing is held and no lane waits for a look.
func (r *relay) isIdle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inflight.active() == 0 && len(r.wakes.lanes) == 0
}

func (r *relay) waitIdle(ctx context.Context) error {
	select {
	case <-r.idleChan():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reportIllegalMove is called when an item changes its state as it must not. Tests replace it.
var reportIllegalMove = func(r *relay, it *item, err error) {
	id := it.id.String()
	r.notices.add(func() {
		r.cfg.Logger.Error("outbox: a defect of the relay: please report it", "component", "outbox", "row_id", id,
			"err", err)
	})
}

// move changes the state of an item.
func (r *relay) move(it *item, to itemState) {
	if err := r.inflight.move(it, to); err != nil {
		reportIllegalMove(r, it, err)
	}
}

// forget ends an item: its slot is free, and nobody waits for it any more.
func (r *relay) forget(it *item) {
	if it.state == itemGone {
		return
	}
	was := it.state
	r.move(it, itemGone)
	if it.path == PathCold && r.room() > 0 {
		r.wakeForRoom()
	}
	if it.suspect {
		r.queue.suspects.held--
		r.suspectDone(it)
	}
	if it.probe && mutant.Active != mutant.ProbeKept {
		it.dest.probing = false
	}
	if was == itemReserved && !it.lane.IsZero() {
		r.advance(it.lane) // somebody may have waited for it
	}
}

// wakeForRoom wakes the poller that waits until there is room, or somebody to publish.
func (r *relay) wakeForRoom() {
	if r.crew.alive > 0 {
		r.wakes.room()
	}
}
