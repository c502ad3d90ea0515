package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	healthTimeout = 5 * time.Second  // for the database
	healthKept    = time.Second      // one question answers all probes of this time
	healthTables  = 30 * time.Second // between two comparisons of the tables

	// turnLate is how long after the longest poll pause the loop of a relay counts as hanging. Each
	// of its statements has a timeout that is shorter than that.
	turnLate = time.Minute

	pollsFailed = 3 // polls in a row that failed and are a problem
)

// Health is the state of an Outbox and its process.
type Health struct {
	// Live is false if only a restart helps. See Outbox.Live.
	Live bool
	// Ready is false if the database does not answer, or if Check of a Checker fails: it lacks
	// tables, or it is a standby or a server that is set read-only. Check runs every 30 s, and
	// after the database did not answer. It writes nothing, so a full disk is not seen.
	Ready bool
	// Relaying is whether Run relays events now. It is false while Run waits for the database.
	Relaying bool
	// RelayedByLog is Config.RelayedByLog: another program publishes the events. Whether it does is
	// not known here.
	RelayedByLog bool
	// Turned is how long ago the loop of Run turned last. Zero if not Relaying.
	Turned time.Duration
	// Stopped are the topics whose destination is stopped, sorted. Their events wait. That makes
	// the process neither unready nor dead: it tries them again by itself.
	Stopped []string
	// Stuck is how many publishes have not returned although their context ended.
	Stuck int
	// Problems says in words what is wrong, for people. Empty: nothing.
	Problems []string
}

// Degraded reports whether the process works, but not all of it: a destination is stopped, a
// publish is stuck, the tables differ, or polls fail though the database answers, as without the
// right to write.
func (h Health) Degraded() bool { return h.Live && h.Ready && len(h.Problems) > 0 }

// Live returns nil, or an error that says why only a restart of the process helps: Run has ended
// with an error, its loop has not turned for one minute and twice Config.MaxPollInterval, or every
// publish is stuck. Outages of the database or of a destination are no such reasons, and neither is
// a process that has not called Run. Live asks nobody, and returns at once.
func (o *Outbox) Live() error {
	o.mu.Lock()
	running, ended, r := o.running, o.ended, o.relay.Load()
	o.mu.Unlock()
	switch {
	case !running && ended != nil:
		return fmt.Errorf("outbox: Run has ended: %w", ended)
	case !running || r == nil:
		return nil
	}
	if turned, late := r.turned(), 2*o.cfg.MaxPollInterval+turnLate; turned > late {
		return fmt.Errorf("outbox: the loop of Run has not turned for %s, more than %s", turned.Round(time.Second),
			late)
	}
	if none, stuck := r.crewState(); none {
		return fmt.Errorf("outbox: all %d publishes are stuck: the publisher ignores the end of its context", stuck)
	}
	return nil
}

// Health says whether the process is alive and ready, and what is wrong. It asks the database, for
// at most 5 s, or as long as ctx allows. Calls within one second share one answer. Package health
// has HTTP handlers for it.
func (o *Outbox) Health(ctx context.Context) Health {
	h := Health{RelayedByLog: o.cfg.RelayedByLog}
	problem := func(err error) { h.Problems = append(h.Problems, errorText(err)) }
	if err := o.Live(); err != nil {
		problem(err)
	} else {
		h.Live = true
	}
	differ, err := o.health.ask(ctx, o.cfg.Repository)
	if h.Ready = err == nil; !h.Ready {
		problem(fmt.Errorf("outbox: the database: %w", err))
	}
	if differ != nil {
		problem(differ)
	}
	o.mu.Lock()
	running, r := o.running, o.relay.Load()
	o.mu.Unlock()
	if r == nil {
		return h
	}
	if h.Relaying = running; running {
		h.Turned = r.turned()
	}
	s := r.state()
	if !running {
		s.PollErr = nil
	}
	for _, d := range s.Stopped {
		h.Stopped = append(h.Stopped, d.Topic)
	}
	if h.Stuck = s.Stuck; !h.Live { // Live has told
		s.Stuck = 0
	}
	for _, text := range s.Problems() {
		h.Problems = append(h.Problems, "outbox: "+text)
	}
	if err := r.triedAlone(); err != nil {
		problem(err)
	}
	return h
}

// turned returns how long ago the loop of Run turned.
func (r *relay) turned() time.Duration { return max(0, r.life.vitals.since(&r.life.vitals.turned)) }

func (r *relay) crewState() (noneLeft bool, stuck int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.crew.noneLeft(), r.crew.abandoned()
}

// healthCheck asks the database for all probes.
type healthCheck struct {
	turn     chan struct{} // held by the one that asks
	asked    time.Time     // zero: not yet
	failed   error         // what the question found
	compared time.Time     // zero: not yet, or without success
	differ   error         // the tables differ, but work
}

func newHealthCheck() healthCheck { return healthCheck{turn: make(chan struct{}, 1)} }

// ask returns an error if the database cannot be used, and in differ how its tables are different.
func (c *healthCheck) ask(prober context.Context, repo Repository) (differ, err error) {
	ctx, cancel := context.WithTimeout(prober, healthTimeout)
	defer cancel()
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !c.asked.IsZero() && time.Since(c.asked) < healthKept {
		if c.failed != nil {
			return nil, c.failed
		}
		return c.differ, nil
	}
	defer func() {
		if err == nil || prober.Err() == nil { // else the prober was impatient
			c.asked, c.failed = time.Now(), err
		}
	}()
	if _, err := repo.Backlog(ctx, 1); err != nil {
		c.differ, c.compared = nil, time.Time{} // what comes back may be another server
		return nil, err
	}
	if checker, ok := repo.(Checker); ok && (c.compared.IsZero() || time.Since(c.compared) >= healthTables) {
		err := checker.Check(ctx)
		if err != nil && !errors.Is(err, ErrTablesDiffer) {
			return nil, err
		}
		c.differ, c.compared = err, time.Now()
	}
	return c.differ, nil
}
