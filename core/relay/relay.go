package relay

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

const (
	// turnLate is how long after the longest poll pause the loop of a relay counts as hanging. Each
	// of its statements has a timeout that is shorter than that.
	turnLate = time.Minute

	pollsFailed = 3 // polls in a row that failed and are a problem
)

// outbox is what a relay has of its Outbox, and does not change. obs has a function for each field.
type outbox struct {
	ob      core.Config // with its defaults
	cfg     *Config
	obs     core.Observer
	topics  topics
	claimNo func() int64
	random  func() float64            // in [0, 1)
	defect  func(it *item, err error) // for tests: gets defects in place of the log
}

// relay is the relay of an Outbox, at work or not.
type relay struct {
	outbox
	engine    atomic.Pointer[engine] // nil: it does not relay now
	mu        sync.Mutex             // guards the next three, and changes of engine
	users     int                    // Run and Drain calls that share the engine
	running   bool
	ended     error // of the last Run, unless it never ran
	unrelayed unrelayed
}

// NewRelay implements RelayConfig.
func (c Config) NewRelay(ob core.Config, claimNo func() int64) core.Relay {
	c = c.withDefaults(ob)
	r := &relay{outbox: outbox{
		ob: ob, cfg: &c, obs: *core.TeeObserver(ob.Observer), claimNo: claimNo, random: mathrand.Float64,
	}}
	r.topics = newTopics(&r.ob)
	return r
}

// repo is the table.
func (o *outbox) repo() core.Repository { return o.ob.Repository }

// Run relays events until ctx ends, see core.Outbox.Run. Without a Publisher it only cleans up.
func (r *relay) Run(ctx context.Context) (err error) {
	r.unrelayed.relays.Store(true)
	r.mu.Lock()
	if r.running {
		r.mu.Unlock()
		return core.ErrRunning
	}
	r.running, r.ended = true, nil
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.running, r.ended = false, err
		r.mu.Unlock()
	}()
	if err := r.checkTables(ctx); err != nil {
		return err
	}
	if r.ob.Publisher == nil {
		return r.cleanOnly(ctx)
	}
	r.warn(ctx)
	e := r.acquire()
	spent := e.run(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { e.endHeartbeat(ctx) })
	wg.Go(func() { e.endHistory(ctx) })
	defer wg.Wait()
	return r.giveUp(e, spent)
}

// Drain publishes every event that is due now, see core.Outbox.Drain.
func (r *relay) Drain(ctx context.Context) (err error) {
	r.unrelayed.relays.Store(true)
	e := r.acquire()
	e.doubt() // it may run already
	defer func() {
		if e := r.giveUp(e, 0); err == nil {
			err = e
		}
	}()
	return e.drain(ctx)
}

// acquire returns the engine at work, or starts one.
func (r *relay) acquire() *engine {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users++
	e := r.engine.Load()
	if e == nil {
		e = newEngine(&r.outbox)
		e.start()
		r.engine.Store(e)
	}
	return e
}

// giveUp ends a use of the engine. The last one shuts the engine down; spent is how much of the time
// for that is over.
func (r *relay) giveUp(e *engine, spent time.Duration) error {
	r.mu.Lock()
	r.users--
	last := r.users == 0
	if last {
		r.engine.Store(nil) // from here on Publish inserts rows without a lease
	}
	r.mu.Unlock()
	if !last {
		return nil
	}
	return e.shutdown(spent)
}

// Live implements Relay.
func (r *relay) Live() error {
	r.mu.Lock()
	running, ended, e := r.running, r.ended, r.engine.Load()
	r.mu.Unlock()
	switch {
	case !running && ended != nil:
		return fmt.Errorf("outbox: Run has ended: %w", ended)
	case !running || e == nil:
		return nil
	}
	if turned, late := e.turned(), 2*r.cfg.MaxPollInterval+turnLate; turned > late {
		return fmt.Errorf("outbox: the loop of Run has not turned for %s, more than %s", turned.Round(time.Second),
			late)
	}
	if stuck := ask(e, (*state).allStuck); stuck > 0 {
		return fmt.Errorf("outbox: all %d publishes are stuck: the publisher ignores the end of its context", stuck)
	}
	return nil
}

// allStuck returns how many publishes are stuck if no worker is left to publish, and else 0.
func (s *state) allStuck() int {
	if !s.crew.noneLeft() {
		return 0
	}
	return s.crew.abandoned()
}

// Report implements Relay.
func (r *relay) Report() core.RelayReport {
	r.mu.Lock()
	running, e := r.running, r.engine.Load()
	r.mu.Unlock()
	if e == nil {
		return core.RelayReport{}
	}
	report := core.RelayReport{RelayState: e.memory(), Running: running, Alone: ask(e, (*state).triedAlone)}
	if running {
		report.Turned = e.turned()
	} else {
		report.PollErr = nil
	}
	return report
}

// Serves implements Relay.
func (r *relay) Serves(topic string) bool { return r.engine.Load() != nil && r.topics.relays(topic) }

// Reserve implements Relay.
func (r *relay) Reserve(rows []core.NewRow, claimNo int64) (core.Reservation, time.Duration) {
	if e := r.engine.Load(); e != nil {
		return e.reserve(rows, claimNo), e.life.clocks.lease(r.cfg.HotLease, r.cfg.MaxLease)
	}
	return unreserved{relay: r, rows: rows}, 0
}

// Operated implements Relay.
func (r *relay) Operated() {
	if e := r.engine.Load(); e != nil {
		e.operated()
	}
}

// cleanOnly is Run with Config.RelayedByLog and without a Publisher: the janitor alone.
func (r *relay) cleanOnly(ctx context.Context) error {
	var wg sync.WaitGroup
	if !r.cfg.DisableJanitor {
		wg.Go(func() { newJanitor(&r.outbox, func() {}).clean(ctx) })
	}
	<-ctx.Done()
	wg.Wait()
	return nil
}
