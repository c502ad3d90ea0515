package core

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/mutant"
)

// relay is the background side of an Outbox: dispatcher, poller, janitor. It holds no truth: the table does. What it holds
// may be dropped at any time, and is found again by the poller of some process.
//
// One mutex guards all of its state; no I/O and no callback of the user happens under it.
type relay struct {
	o    *Outbox
	cfg  *Config
	repo Repository

	mu      sync.Mutex
	notes   []func() // callbacks to run after unlock, in this order
	telling bool     // somebody runs them

	items     map[RowID]*item // the in-flight tracker
	active    int             // items that are neither reserved nor gone
	hotCount  int
	hotBytes  int64
	coldCount int
	coldBytes int64
	lanes     laneCache
	dests     map[string]*destination
	closing   bool // no new slots, no claims
	closed    bool // over
	idle      []chan struct{}

	// dispatcher
	work       *sync.Cond
	hot, cold  queue[*item]
	again      queue[*item] // cold, and refused before: fresh events go first
	suspects   suspects
	picks      uint
	publishing int // not counting those that are stuck
	crew       crew
	stopPicks  bool

	// outcomes
	done, failed, released []*item
	aside                  aside
	writeFails             int // of whole batches, in a row; of the writer alone
	unwritten              int // acked and failed items whose outcome is not written yet
	releasing              int // released items that are not written yet
	kick                   chan struct{}
	stopWriting            bool
	abandon                chan struct{} // closed: give up writing

	// poller
	pollTurn  chan struct{} // held during a round
	pollKick  chan struct{}
	pollAt    time.Time // a poll is wanted then; zero: not asked for
	wantRoom  bool      // the poller waits for room
	roomKick  chan struct{}
	laneWakes []laneWake
	cursor    Lane // where the head scan resumes
	sweep     sweep
	drains    int // Drain calls: they see everything, so sweeps do not rest
	rounds    uint

	db         recovery
	renewFails atomic.Bool // the last renewal failed

	publishCtx    context.Context //nolint:containedctx // the lifetime of the relay's publishes, ended by shutdown
	cancelPublish context.CancelFunc
	writeCtx      context.Context //nolint:containedctx // the same for the statements that write what became of events
	cancelWrites  context.CancelFunc
	wg            sync.WaitGroup // workers, writer
	stopRenew     chan struct{}
	renewDone     chan struct{}
	random        func() float64
}

// shutdownGrace is how much of Config.ShutdownTimeout is left to publishers to notice that their context ended, and to the last
// outcomes to be written: at most a quarter of it.
const shutdownGrace = 5 * time.Second

func newRelay(o *Outbox) *relay {
	r := &relay{
		o: o, cfg: &o.cfg, repo: o.cfg.Repository,
		items: map[RowID]*item{}, dests: map[string]*destination{},
		kick: make(chan struct{}, 1), abandon: make(chan struct{}),
		pollTurn: make(chan struct{}, 1), pollKick: make(chan struct{}, 1), roomKick: make(chan struct{}, 1),
		stopRenew: make(chan struct{}), renewDone: make(chan struct{}),
		random: o.random,
	}
	r.work = sync.NewCond(&r.mu)
	r.publishCtx, r.cancelPublish = context.WithCancel(context.Background())
	r.writeCtx, r.cancelWrites = context.WithCancel(context.Background())
	return r
}

// unlock runs what was noted under the lock after giving it up. One goroutine at a time does that, for all: else the last that an observer
// hears of a destination could be how it was before.
func (r *relay) unlock() {
	if len(r.notes) == 0 || r.telling {
		r.mu.Unlock()
		return
	}
	r.telling = true
	defer func() {
		r.telling = false
		r.mu.Unlock()
	}()
	for len(r.notes) > 0 {
		notes := r.notes
		r.notes = nil
		r.mu.Unlock()
		func() {
			defer r.mu.Lock() // also when a callback panics
			for _, note := range notes {
				note()
			}
		}()
	}
}

// Run relays events until ctx ends, then publishes what it has begun and writes the outcomes, gives the rest back, and returns nil, after
// Config.ShutdownTimeout at most. It owns its goroutines: none is left when it returns nil. Errors of the database or of
// the publisher do not end it: before it works it looks at the tables, and waits while the database is away. The fast path exists while Run
// runs: what was inserted before waits for the poller.
//
// It returns ErrNoPublisher without a Publisher, ErrRunning when it runs already, an error wrapping ErrNoTables when the tables are
// missing, and ErrShutdownTimeout when a publisher did not return although its context had ended. What it returns is also logged, so that
// "go ob.Run(ctx)" does not hide it.
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
		o.cfg.Logger.WarnContext(ctx, "outbox: Routes name topics that this process does not relay: another one has to", "component", "outbox",
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

// Drain publishes everything that is due now and returns when it is done and recorded: for tests, scheduled jobs and
// commands. It may be called with or without Run. What is due later (retries, delays), leased by another process or behind
// a dead event stays. It returns an error wrapping ErrStopped when a destination is unavailable.
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
	if topics := r.stoppedTopics(); len(topics) > 0 {
		return fmt.Errorf("%w: %s", ErrStopped, strings.Join(topics, ", "))
	}
	return nil
}

// standsStill reports whether nobody is left who could publish, and nothing is to be written.
func (r *relay) standsStill() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.crew.alive == 0 && r.active == 0
}

// drain counts calls of Drain.
func (r *relay) drain(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drains += n
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
	r.crew = crew{size: r.cfg.Workers, alive: r.cfg.Workers}
	for range r.cfg.Workers {
		r.wg.Go(r.worker)
	}
	r.wg.Go(r.writeOutcomes)
	go r.renewLeases()
}

// shutdown ends the relay in phases: no new work, publish what is held, cancel, write outcomes, give back. All of it takes no longer than
// Config.ShutdownTimeout.
func (r *relay) shutdown() error {
	abandon := time.AfterFunc(r.cfg.ShutdownTimeout, func() {
		close(r.abandon)
		r.cancelWrites()
	})
	defer abandon.Stop()
	r.mu.Lock()
	r.closing = true
	for _, it := range r.sorted() { // what waits for another event of its key may wait for long, and others can have it
		if it.state == itemWaiting {
			r.release(it, DropShutdown, false)
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
	r.stopPicks = true
	for _, it := range r.sorted() {
		switch it.state {
		case itemWaiting, itemReady:
			r.release(it, DropShutdown, false)
		case itemReserved: // its transaction is still open: the row cannot be given back, its lease will end
			r.forget(it)
		case itemPublishing, itemAcked, itemFailed, itemReleasing, itemGone:
		}
	}
	r.work.Broadcast()
	r.unlock()
	r.cancelPublish()

	// Publishers were told to stop; outcomes are written as they come in. What is not written by then is published again.
	select {
	case <-r.idleChan():
	case <-r.abandon:
	}
	close(r.stopRenew)
	<-r.renewDone
	r.mu.Lock()
	r.stopWriting = true
	r.closed = true
	stuck := r.publishing + r.crew.stuck
	r.unlock()
	r.kickWriter()
	if stuck > 0 {
		return fmt.Errorf("%w: %d publishes have not returned", ErrShutdownTimeout, stuck)
	}
	r.wg.Wait()
	return nil
}

// idleChan returns a channel that is closed when nothing is held any more, except for open transactions.
func (r *relay) idleChan() <-chan struct{} {
	c := make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active == 0 {
		close(c)
	} else {
		r.idle = append(r.idle, c)
	}
	return c
}

// isIdle reports whether nothing is held and no lane waits for a look.
func (r *relay) isIdle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.active == 0 && len(r.laneWakes) == 0
}

func (r *relay) waitIdle(ctx context.Context) error {
	select {
	case <-r.idleChan():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// track enters an item that is not reserved.
func (r *relay) track(it *item) {
	r.items[it.id] = it
	r.active++
	r.coldCount++
	r.coldBytes += it.size
}

// forget takes an item out of the tracker and frees its slot.
func (r *relay) forget(it *item) {
	if it.state == itemGone {
		return
	}
	was := it.state
	it.state = itemGone
	if r.items[it.id] == it { // else it was claimed again
		delete(r.items, it.id)
	}
	if it.path == PathHot {
		r.hotCount--
		r.hotBytes -= it.size
	} else {
		r.coldCount--
		r.coldBytes -= it.size
		if r.room() > 0 {
			r.kickRoom()
		}
	}
	if it.lone {
		r.suspects.held--
		r.suspectDone(it)
	}
	if it.probe && mutant.Active != mutant.ProbeKept {
		it.dest.probing = false
	}
	if was == itemReserved {
		if !it.lane.IsZero() {
			r.advance(it.lane) // somebody may have waited for it
		}
		return
	}
	r.active--
	if r.active == 0 {
		for _, c := range r.idle {
			close(c)
		}
		r.idle = nil
	}
}

// kickRoom wakes the poller that waits until there is room, or somebody to publish.
func (r *relay) kickRoom() {
	if !r.wantRoom || r.crew.alive == 0 {
		return
	}
	r.wantRoom = false
	select {
	case r.roomKick <- struct{}{}:
	default:
	}
}

// sorted returns the tracked items in the order of their ids, so that nothing depends on the order of a map.
func (r *relay) sorted() []*item {
	items := make([]*item, 0, len(r.items))
	for _, it := range r.items {
		items = append(items, it)
	}
	slices.SortFunc(items, func(a, b *item) int { return slices.Compare(a.id[:], b.id[:]) })
	return items
}

func (r *relay) dropped(it *item, reason DropReason) {
	if it.path != PathHot {
		return
	}
	topic := it.delivery.Topic
	r.notes = append(r.notes, func() { r.o.obs.Dropped(topic, reason) })
}
