package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

const (
	healthTimeout = 5 * time.Second  // for the database
	healthKept    = time.Second      // one question answers all probes of this time
	healthTables  = 30 * time.Second // between two comparisons of the tables
)

// Health is the state of an Outbox and its process.
type Health struct {
	// Live is false if only a restart helps. See Outbox.Live.
	Live bool
	// Ready is false if the database does not answer, or if its Check fails: it lacks
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
	// Stopped are the topics whose destination is stopped, sorted. Their events wait. The process
	// is live and ready all the same: it keeps trying them.
	Stopped []string
	// Stuck is how many publishes have not returned although their context ended.
	Stuck int
	// Problems is for people, and its texts are printable (ops.Printable). Empty: no problem.
	Problems []string
}

// Degraded reports whether the process works with a limitation: a destination is stopped, a publish
// is stuck, the tables differ, or polls fail though the database answers, for example for lack of
// the right to write.
func (h Health) Degraded() bool { return h.Live && h.Ready && len(h.Problems) > 0 }

// Live returns an error if only a restart of the process helps: Run has ended with an error, its
// loop has not turned for one minute and twice relay.Config.MaxPollInterval, or every publish is
// stuck. An outage of the database or of a destination is no error, nor is a process that has not
// called Run. Live does no I/O.
func (o *Outbox) Live() error {
	if o.relay == nil {
		return nil
	}
	return o.relay.Live()
}

// Health reports whether the process is alive and ready, and its problems. It asks the database,
// for at most 5 s, or as long as ctx allows. Calls within one second share one answer. Package
// health has HTTP handlers for it.
func (o *Outbox) Health(ctx context.Context) Health {
	h := Health{RelayedByLog: o.cfg.RelayedByLog}
	problem := func(err error) { h.Problems = append(h.Problems, textcheck.Line(errtext.Of(err))) }
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
	s := o.report()
	if h.Relaying = s.Running; s.Running {
		h.Turned = s.Turned
	}
	for _, d := range s.Stopped {
		h.Stopped = append(h.Stopped, d.Topic)
	}
	if h.Stuck = s.Stuck; !h.Live { // Live has reported them
		s.Stuck = 0
	}
	for _, text := range s.Problems() {
		h.Problems = append(h.Problems, "outbox: "+text)
	}
	if s.Alone != nil {
		problem(s.Alone)
	}
	return h
}

// healthCheck asks the database for all probes.
type healthCheck struct {
	turn     chan struct{} // held by the prober that asks
	asked    time.Time     // zero: not yet
	failed   error         // the result of asking
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
	if err := answers(ctx, repo); err != nil {
		c.differ, c.compared = nil, time.Time{} // the database may come back as another server
		return nil, err
	}
	if c.compared.IsZero() || time.Since(c.compared) >= healthTables {
		err := repo.Check(ctx)
		if err != nil && !errors.Is(err, ErrTablesDiffer) {
			return nil, err
		}
		c.differ, c.compared = err, time.Now()
	}
	return c.differ, nil
}

// answers returns nil if the database reads the table of events. The question is for dead rows
// behind the last possible one, so that it reads no row, however many there are.
func answers(ctx context.Context, repo Repository) error {
	_, err := repo.ListDead(ctx, DeadQuery{After: lastRowID, Limit: 1})
	return err
}

var lastRowID = RowID(bytes.Repeat([]byte{0xff}, len(RowID{})))

// Stopped returns the destinations that the relay of this process has stopped, sorted by topic. It
// returns none if this process does not relay. It uses no database.
func (o *Outbox) Stopped() []StoppedDestination {
	return o.report().Stopped
}

// report is the report of this process's relay, if there is one.
func (o *Outbox) report() RelayReport {
	if o.relay == nil {
		return RelayReport{}
	}
	return o.relay.Report()
}
