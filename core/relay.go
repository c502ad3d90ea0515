package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// relay is the background side of an Outbox: dispatcher, poller and janitor. The table is the only
// source of truth. The relay may lose everything it holds in memory: the poller of some process
// finds the rows again.
//
// One mutex guards the parts of its state, which are types of their own. No I/O and no callback of
// the user happens under the mutex.
type relay struct {
	o   *Outbox
	cfg *Config

	mu       sync.Mutex
	notices  notices
	inflight inflight
	lanes    lanes
	dests    destinations
	crew     crew
	writer   writer
	wakes    wakeups
	poller   poller

	operators chan struct{} // what operators have set is to be read now
	db        recovery
	janitor   *janitor
	life      lifetime
}

// relayPhase is the phase of the shutdown of a relay.
type relayPhase uint8

const (
	phaseRunning  relayPhase = iota
	phaseClosing             // no new slots, no claims
	phaseStopping            // no new publishes
	phaseClosed              // the relay has ended
)

// lifetime has the means that end the goroutines of a relay.
type lifetime struct {
	phase                         relayPhase      // guarded by relay.mu
	publishes, writes             context.Context //nolint:containedctx // shutdown ends one after the other
	cancelPublishes, cancelWrites context.CancelFunc
	deadlines                     deadlines      // of publishes; has a mutex of its own
	workers                       sync.WaitGroup // the workers and the writer
	stopRenew, renewDone          chan struct{}
	renewFails                    atomic.Bool // the last renewal failed
	vitals                        vitals
	pollFails                     atomic.Pointer[error] // the last error of several in a row
	news                          chan struct{}         // the next heartbeat shall come soon; capacity 1
	poolClosed                    chan struct{}         // closed when the pool is: nothing can be written any more
	closePool                     func()                // closes that channel, once
}

// shutdownGrace is the part of Config.ShutdownTimeout in which publishers notice that their context
// ended, and the last marks are written. It is at most a quarter of that time.
const shutdownGrace = 5 * time.Second

func newRelay(o *Outbox) *relay {
	r := &relay{
		o: o, cfg: &o.cfg, wakes: newWakeups(), poller: newPoller(),
		operators: make(chan struct{}, 1),
		writer:    newWriter(&o.cfg), janitor: newJanitor(o),
		life: lifetime{stopRenew: make(chan struct{}), renewDone: make(chan struct{}), news: make(chan struct{}, 1)},
	}
	r.life.vitals.started = time.Now()
	r.crew = newCrew(r.cfg, &r.mu)
	r.life.poolClosed = make(chan struct{})
	r.life.closePool = sync.OnceFunc(func() { close(r.life.poolClosed) })
	//nolint:fatcontext // its parent is context.Background
	r.life.publishes, r.life.cancelPublishes = context.WithCancel(context.Background())
	r.life.writes, r.life.cancelWrites = context.WithCancel(context.Background())
	return r
}

// repo is the table.
func (r *relay) repo() Repository { return r.cfg.Repository }

// random is in [0, 1).
func (r *relay) random() float64 { return r.o.random() }

// unlock unlocks the mutex and makes the calls that were noted under it.
func (r *relay) unlock() { r.notices.unlock(&r.mu) }

// Run relays events until ctx ends. Then it finishes the publishes that it has begun, writes the
// marks, gives the other rows back, and returns nil. That takes at most Config.ShutdownTimeout.
// None of its goroutines is left when it returns nil. Before it starts, Run checks the tables, and
// waits while the database is away. Errors of the database or of the publisher do not end it. The
// fast path exists while Run runs; the poller publishes the events that were inserted before.
//
// With Config.RelayedByLog and without a Publisher, Run only deletes what Retention says. Run
// returns ErrNoPublisher without both, ErrRunning if it runs already, an error wrapping
// ErrNoTables if the tables are missing, and ErrShutdownTimeout if a publisher did not return
// although its context had ended, and ErrPoolClosed if the program closed the pool before. Run also
// logs the error that it returns, so that "go ob.Run(ctx)" does not hide it.
func (o *Outbox) Run(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			o.cfg.Logger.ErrorContext(ctx, "outbox: the relay has ended", "component", "outbox", "err", errorText(err))
		}
	}()
	if o.cfg.Publisher == nil && !o.cfg.RelayedByLog {
		return ErrNoPublisher
	}
	o.unrelayed.relays.Store(true)
	o.mu.Lock()
	if o.running {
		o.mu.Unlock()
		return ErrRunning
	}
	o.running, o.ended = true, nil
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		o.running, o.ended = false, err
		o.mu.Unlock()
	}()
	if o.cfg.Publisher == nil {
		return o.cleanOnly(ctx)
	}
	if err := o.checkTables(ctx); err != nil {
		return err
	}
	o.warn(ctx)

	if foreign := o.topics.foreign(); len(foreign) > 0 {
		o.cfg.Logger.WarnContext(ctx, "outbox: Routes name topics that this process does not relay: another one has to",
			"component", "outbox",
			"destinations", foreign)
	}
	set := o.firstSettings(ctx)
	r := o.acquire(set)
	r.life.vitals.stamp(&r.life.vitals.turned)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { r.poll(ctx) })
	wg.Go(func() { r.listen(ctx) })
	wg.Go(func() { r.beat(ctx) })
	wg.Go(func() { r.followOperators(ctx, set) })
	if !o.cfg.DisableJanitor {
		wg.Go(func() { r.janitor.clean(ctx) })
	}
	select {
	case <-ctx.Done():
	case <-r.life.poolClosed:
		stop()
	}
	ended := time.Now()
	wg.Wait()
	wg.Go(func() { r.endHeartbeat(ctx) })
	defer wg.Wait()
	return o.giveUp(r, time.Since(ended))
}

// noPool reports whether an error says that the program has closed the pool. Then no mark can be
// written any more, and Run ends.
func (r *relay) noPool(err error) bool {
	if !sqlerr.PoolClosed(err) {
		return false
	}
	r.life.closePool()
	return true
}

// Drain publishes every event that is due now, and returns when the marks are written. It is for
// tests, scheduled jobs and commands, with or without Run. Events stay that are due later (retries,
// delays), paused, leased by another process or behind a dead event. Drain keeps the rates of
// destinations (see SetRate), and so it waits. Drain returns an error
// wrapping ErrStopped if a destination is unavailable.
func (o *Outbox) Drain(ctx context.Context) (err error) {
	if o.cfg.Publisher == nil {
		return ErrNoPublisher
	}
	o.unrelayed.relays.Store(true)
	var set settings
	if set.pauses.list, err = o.readPauses(ctx); err != nil {
		return errtext.Errorf("outbox: drain: %w", err)
	}
	if set.rates.list, err = o.readRates(ctx); err != nil {
		return errtext.Errorf("outbox: drain: %w", err)
	}
	r := o.acquire(set)
	defer func() {
		if e := o.giveUp(r, 0); err == nil {
			err = e
		}
	}()
	r.drain(1)
	defer r.drain(-1)
	for {
		res, err := r.round(ctx, &idleKinds{})
		if err != nil {
			return errtext.Errorf("outbox: drain: %w", err)
		}
		if res == (roundResult{}) && r.isIdle() {
			at := r.slowLook()
			if at.IsZero() {
				break
			}
			if !sleep(ctx, time.Until(at)) {
				return errtext.Errorf("outbox: drain: %w", ctx.Err())
			}
			continue
		}
		if r.standsStill() {
			return fmt.Errorf("%w: every publish of this process is stuck", ErrStopped)
		}
		if err := r.waitIdle(ctx); err != nil {
			return errtext.Errorf("outbox: drain: %w", err)
		}
		if at, ok := r.nextFirstLook(); ok && !sleep(ctx, time.Until(at)) {
			return errtext.Errorf("outbox: drain: %w", ctx.Err())
		}
	}
	if topics := r.stopped(); len(topics) > 0 {
		return fmt.Errorf("%w: %s", ErrStopped, strings.Join(topics, ", "))
	}
	return nil
}

// standsStill reports whether no worker is left to publish, and no mark waits to be written.
func (r *relay) standsStill() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.crew.noneLeft() && r.inflight.active() == 0
}

// drain counts the calls of Drain.
func (r *relay) drain(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.poller.drains += n
}

// acquire returns the running relay, or starts one, and makes it follow the settings.
func (o *Outbox) acquire(set settings) *relay {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.users++
	r := o.relay.Load()
	running := r != nil
	if !running {
		r = newRelay(o)
	}
	r.mu.Lock()
	r.setPauses(set.pauses.list)
	r.setRates(set.rates.list)
	r.mu.Unlock() // the next unlock logs it, which must not happen under o.mu
	if running {
		return r
	}
	r.start()
	o.relay.Store(r)
	return r
}

// giveUp ends a use of the relay. The last one shuts the relay down; spent is how much of the time
// for that is over.
func (o *Outbox) giveUp(r *relay, spent time.Duration) error {
	o.mu.Lock()
	o.users--
	last := o.users == 0
	if last {
		o.relay.Store(nil) // from here on Publish inserts rows without a lease
	}
	o.mu.Unlock()
	if !last {
		return nil
	}
	return r.shutdown(spent)
}

func (r *relay) start() {
	for range r.cfg.Workers {
		r.life.workers.Go(r.worker)
	}
	r.life.workers.Go(r.writeMarks)
	go r.renewLeases()
}

// shutdown ends the relay in phases: accept no new work, publish the held events, cancel, write
// marks, give rows back. All phases together take at most Config.ShutdownTimeout, of which some is
// spent already.
func (r *relay) shutdown(spent time.Duration) error {
	left := max(r.cfg.ShutdownTimeout-spent, r.cfg.ShutdownTimeout/2)
	abandonNow := sync.OnceFunc(func() {
		close(r.writer.abandon)
		r.life.cancelWrites()
	})
	abandon := time.AfterFunc(left, abandonNow)
	defer abandon.Stop()
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-r.life.poolClosed:
			abandonNow()
		case <-over:
		}
	}()
	r.mu.Lock()
	r.life.phase = phaseClosing
	// an item that waits for another event of its key may wait for long, and another process can
	// have it
	for _, it := range r.inflight.sorted() {
		if it.state == itemWaiting {
			r.release(it, FallbackShutdown, false)
		}
	}
	r.unlock()
	r.writer.wake() // marks wait no longer for a batch

	deadline := time.NewTimer(left - min(shutdownGrace, left/4))
	defer deadline.Stop()
	select {
	case <-r.idleChan():
	case <-deadline.C:
	case <-r.writer.abandon:
	}

	r.mu.Lock()
	r.life.phase = phaseStopping
	for _, it := range r.inflight.sorted() {
		switch it.state {
		case itemWaiting, itemReady:
			r.release(it, FallbackShutdown, false)
		// its transaction is still open: the row cannot be given back, and its lease will end
		case itemReserved:
			r.forget(it)
		case itemNew, itemPublishing, itemAcked, itemFailed, itemReleasing, itemGone, itemStates:
		}
	}
	r.crew.work.Broadcast()
	r.unlock()
	r.life.cancelPublishes()

	// Publishers were told to stop, and marks are written as they come in. An event whose mark is
	// not written by then is published again.
	select {
	case <-r.idleChan():
	case <-r.writer.abandon:
	}
	closed := r.poolClosed()
	if closed { // no mark can be written, but publishers get the time to notice their end
		r.awaitPublishers(min(shutdownGrace, left/4))
	}
	close(r.life.stopRenew)
	<-r.life.renewDone
	r.mu.Lock()
	r.life.phase = phaseClosed
	stuck := r.inflight.count[itemPublishing] + r.crew.abandoned()
	r.unlock()
	r.writer.wake()
	var err error
	if closed {
		err = ErrPoolClosed
	}
	if stuck > 0 {
		return errors.Join(err, fmt.Errorf("%w: %d publishes have not returned", ErrShutdownTimeout, stuck))
	}
	r.life.workers.Wait()
	return err
}

// poolClosed reports whether the program has closed the pool.
func (r *relay) poolClosed() bool {
	select {
	case <-r.life.poolClosed:
		return true
	default:
		return false
	}
}

// awaitPublishers waits until no publish is under way, or for limit.
func (r *relay) awaitPublishers(limit time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(limit / 100) {
		r.mu.Lock()
		n := r.inflight.count[itemPublishing]
		r.mu.Unlock()
		if n == 0 {
			return
		}
	}
}

// idleChan returns a channel that is closed when no item is held any more, except for items of open
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

// isIdle reports whether no item is held and no lane waits for its first look. A lane that was
// looked at in vain has nothing, or another process holds its head and publishes it.
func (r *relay) isIdle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, waits := r.wakes.nextFirstLook()
	return r.inflight.active() == 0 && !waits
}

func (r *relay) waitIdle(ctx context.Context) error {
	select {
	case <-r.idleChan():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reportIllegalMove is called when a change of state is not allowed. Tests replace it.
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

// forget ends an item: its slot is free, and no other item waits for it.
func (r *relay) forget(it *item) {
	if it.state == itemGone {
		return
	}
	was := it.state
	r.move(it, itemGone)
	if it.path == PathCold && r.inflight.room(r.cfg) > 0 {
		r.wakeForRoom()
	}
	if l := it.dest.limit; l != nil && l.worthLook(time.Now(), it.dest.items) {
		r.wakes.look()
	}
	if it.role.suspect {
		r.crew.queue.suspects.held--
		r.crew.suspectDone(it)
	}
	if it.role.probe {
		it.dest.probing = false
	}
	if was == itemReserved && !it.lane.IsZero() {
		r.advance(it.lane) // another item may have waited for it
	}
}

// wakeForRoom wakes the poller if it waits for room or for a worker.
func (r *relay) wakeForRoom() {
	if !r.crew.noneLeft() {
		r.wakes.room()
	}
}
