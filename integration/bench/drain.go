package main

import (
	"context"
	"fmt"
	"time"
)

type drainFunc func(ctx context.Context, l *ledger, limit time.Duration) (finished int, took time.Duration, err error)

// relay is a competitor that empties a backlog.
type relay struct {
	name string
	// seed makes a new backlog, as one committed transaction for each event leaves it, and analyzes
	// the table.
	seed func(ctx context.Context) error
	// drain publishes the backlog to l until all events are finished, or limit is over. A finished
	// event is published and marked. drain returns how many events are finished, and how long that
	// took from the start of the relay.
	drain drainFunc
	// collect enters the events that came to a broker into the ledger. It is called after the
	// measurement. It is nil if drain does that.
	collect func(ctx context.Context, l *ledger) error
	// check looks at the tables after the measurement. It may be nil.
	check func(ctx context.Context, finished int) error
	// events is the size of the backlog.
	events int
	// patience is how many times as long as -cap a drain may take. 0 means once.
	patience int
	// ordered says whether each event has one of drainKeys keys.
	ordered bool
}

// Names of competitors with which others are compared.
const (
	oursName      = "ormoutbox, default configuration"
	nativeName    = "ormoutbox, through pgxoutbox"
	handName      = "hand-written loop"
	handPipedName = "hand-written loop, claims while it marks"
	wmDefaultName = "watermill-sql forwarder, defaults"
	wmBestName    = "watermill-sql forwarder, best settings"
	rvDefaultName = "River, defaults"
	rvBestName    = "River, best settings"
)

var drainColumns = []Column{
	{"events/s", Count},
	{"÷ hand-written", Ratio},
	{"CPU µs/event", Count},
	{"WAL B/event", Count},
	{"finished", Percent},
}

func runDrain(ctx context.Context, e *env, s *Section) error {
	s.note("A backlog of %s committed events of %d bytes, drained until it is finished: published and marked. The "+
		"publisher does nothing. "+
		"Drains are stopped after %s; the rate then counts the finished events.", thousands(float64(e.opts.Events)),
		payloadSize, e.opts.Cap)
	s.note("hand-written: pgx on the same table, batches of 500: UPDATE ... WHERE id IN (SELECT ... FOR UPDATE SKIP "+
		"LOCKED) RETURNING takes a "+
		"lease, the batch is published outside the transaction, UPDATE ... WHERE id = ANY marks it. One goroutine; "+
		"%q has a second one.", handPipedName)
	s.note("watermill-sql, best: batches of 10,000, polls every 1 ms (up to 10,000 duplicates after a crash). " +
		"River, defaults: 100 workers, as in its " +
		"documentation; best: 2,000 workers, fetches every 1 ms.")

	pool, err := e.openPGX(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	ours, err := newOutboxBacklog(ctx, e, "drain_", false)
	if err != nil {
		return err
	}
	ordered, err := newOutboxBacklog(ctx, e, "drain_keyed_", true)
	if err != nil {
		return err
	}
	hand := &handRelay{pool: pool, table: ours.prefix + "event"}
	handOrdered := &handRelay{pool: pool, table: ordered.prefix + "event", ordered: true}
	relays := []relay{
		{name: oursName, seed: ours.seed, drain: ours.drain, check: ours.check},
		{name: nativeName, seed: ours.seed, drain: ours.drainNative(pool), check: ours.check},
		{name: handName, seed: ours.seed, drain: hand.drain, check: ours.check},
		{name: handPipedName, seed: ours.seed, drain: hand.drainPiped, check: ours.check},
	}
	for _, p := range []struct {
		names [2]string
		open  func() ([2]relay, error)
	}{
		{[2]string{wmDefaultName, wmBestName}, func() ([2]relay, error) { return newWatermill(ctx, e, pool) }},
		{[2]string{rvDefaultName, rvBestName}, func() ([2]relay, error) { return newRiver(ctx, e, pool) }},
	} {
		if !e.opts.selects(p.names[0]) && !e.opts.selects(p.names[1]) {
			continue // its backlog takes a while to prepare
		}
		both, err := p.open()
		if err != nil {
			return err
		}
		relays = append(relays, both[:]...)
	}
	unordered, err := measureDrains(ctx, e, s, "Unordered events", relays, handName)
	if err != nil {
		return err
	}

	s.note("Ordered: %s keys. The hand-written loop keeps order because it takes the rows in order and publishes "+
		"one after the other, and "+
		"because nobody else may run it at the same time.", thousands(drainKeys))
	inOrder, err := measureDrains(ctx, e, s, "Ordered events", []relay{
		{name: oursName, seed: ordered.seed, drain: ordered.drain, check: ordered.check, ordered: true},
		{name: nativeName, seed: ordered.seed, drain: ordered.drainNative(pool), check: ordered.check, ordered: true},
		{name: handName, seed: ordered.seed, drain: handOrdered.drain, check: ordered.check, ordered: true},
	}, handName)
	if err != nil {
		return err
	}

	for _, name := range []string{oursName, nativeName} {
		s.atLeast(unordered.value(name, "÷ hand-written"), 0.93, "%s, unordered: at least 0.93 × the hand-written loop",
			name)
		s.atLeast(inOrder.value(name, "÷ hand-written"), 0.8, "%s, ordered: at least 0.80 × the hand-written loop",
			name)
	}
	for _, peer := range []string{wmDefaultName, rvDefaultName} {
		s.atLeast(medianRatio(unordered, "events/s", oursName, peer), 1, "ahead of %s", peer)
	}
	return nil
}

// measureDrains runs all relays in each round.
func measureDrains(ctx context.Context, e *env, s *Section, title string, relays []relay, base string) (*Table, error) {
	for i := range relays {
		relays[i].events = e.opts.Events
	}
	t, err := e.measureRelays(ctx, s, title, relays, drainColumns)
	if err != nil {
		return nil, err
	}
	t.divide("÷ hand-written", "events/s", func(*Row) *Row { return t.find(base) })
	t.summarize()
	return t, nil
}

// measureRelays runs the relays in each round, and returns a table with all figures but ratios.
func (e *env) measureRelays(ctx context.Context, s *Section, title string, relays []relay,
	columns []Column,
) (*Table, error) {
	t := &Table{Title: title, Columns: columns}
	var chosen []relay
	for _, r := range relays {
		if e.opts.selects(r.name) {
			chosen = append(chosen, r)
			t.row(r.name, e.opts.Rounds)
		}
	}
	if len(chosen) == 0 {
		return t, nil
	}
	s.Tables = append(s.Tables, t)
	return t, interleave(e.opts.Rounds, len(chosen), func(round, i int) error {
		r := chosen[i]
		e.progress.show("%s, round %d of %d: %s: %s", s.Name, round+1, e.opts.Rounds, title, r.name)
		d, err := e.timeDrain(ctx, r, r.events)
		if err != nil {
			return err
		}
		t.set(t.Rows[i], round, "events/s", d.rate())
		t.setUsage(t.Rows[i], round, "event", d.from, d.to, float64(d.finished))
		t.set(t.Rows[i], round, "finished", 100*float64(d.finished)/float64(r.events))
		return nil
	})
}

// drained is the result of one drain.
type drained struct {
	finished int
	took     time.Duration
	from, to usage
}

func (d drained) rate() float64 { return float64(d.finished) / d.took.Seconds() }

// timeDrain drains one backlog and checks that every finished event was published, once.
func (e *env) timeDrain(ctx context.Context, r relay, events int) (d drained, err error) {
	e.checkpoint(ctx) // before the seed, so that no competitor pays for full pages
	if err := r.seed(ctx); err != nil {
		return d, fmt.Errorf("%s: seed: %w", r.name, err)
	}
	l := newLedger()
	if r.ordered {
		l = newOrderedLedger(drainKeys)
	}
	if d.from, err = e.usage(ctx); err != nil {
		return d, err
	}
	if err := labelled(ctx, r.name, func(ctx context.Context) error {
		d.finished, d.took, err = r.drain(ctx, l, time.Duration(max(1, r.patience))*e.opts.Cap)
		return err
	}); err != nil {
		return d, err
	}
	if d.to, err = e.usage(ctx); err != nil {
		return d, err
	}
	if r.collect != nil {
		if err := r.collect(ctx, l); err != nil {
			return d, fmt.Errorf("%s: %w", r.name, err)
		}
	}
	if d.finished >= events {
		err = l.check(events)
	} else {
		err = l.checkPart(events)
	}
	if p := int(l.published.Load()); err == nil && p < d.finished {
		err = fmt.Errorf("%d events are finished, %d were published", d.finished, p)
	}
	if err == nil && r.check != nil {
		err = r.check(ctx, d.finished)
	}
	if err != nil {
		return d, fmt.Errorf("%s: %w", r.name, err)
	}
	return d, nil
}

// medianRatio returns the median of the ratios of two rows within each round. It returns no value
// if one of the rows was left out.
func medianRatio(t *Table, column, row, base string) Value {
	r, b := t.find(row), t.find(base)
	if r == nil || b == nil {
		return none
	}
	c := t.column(column)
	var all []float64
	for i := range r.Rounds {
		all = append(all, float64(r.Rounds[i][c]/b.Rounds[i][c]))
	}
	return Value(median(all))
}
