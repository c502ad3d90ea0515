package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// producerLoads has the numbers of goroutines that run transactions.
var producerLoads = []int{1, 8, 32}

// Rows of each ORM's table.
const (
	rowAlone        = "alone"
	rowSecond       = "+ second model row"
	rowUnordered    = "+ outbox, unordered"
	rowOrdered      = "+ outbox, ordered"
	rowByHand       = "+ the outbox's row by hand, unordered"
	rowByHandOrder  = "+ the outbox's row by hand, ordered"
	rowUnorderedHot = "+ outbox, unordered, relay in this process"
	rowOrderedHot   = "+ outbox, ordered, relay in this process"
)

var producerRows = []string{
	rowAlone, rowSecond, rowByHand, rowByHandOrder, rowUnordered, rowOrdered, rowUnorderedHot,
	rowOrderedHot,
}

// producerPools is how many pools section producer has open at the same time. Each ORM has two, of
// which GORM and Ent share the first, and pgx has one.
const producerPools = 6

// byHand is an ORM's client that can also write the outbox's row by hand.
type byHand interface {
	ByHand(ctx context.Context, prefix string, row secondRow, ordered bool) error
}

var producerColumns = []Column{
	{"tx/s", Count},
	{"÷ second row", Ratio},
	{"p50 µs", Count},
	{"p99 µs", Count},
	{"CPU µs/tx", Count},
	{"WAL B/tx", Count},
	{"fast path", Percent},
}

// producer is one row of the table of an ORM.
type producer struct {
	orm  string
	row  string
	pool string   // the part of the name that names the pool; may be empty
	sess *session // nil: the producer does not use the outbox
	tx   func(ctx context.Context) error
}

func (p producer) name() string { return p.orm + " " + p.row + p.pool }

func runProducer(ctx context.Context, e *env, s *Section) (err error) {
	s.note("A transaction inserts an order through the ORM, and an event of %d bytes beside it. The second model "+
		"row is what people write by "+
		"hand: a model with id, topic, type, key, payload, status, times and the index that a poller needs. Ordered "+
		"events have one of %s keys.",
		payloadSize, thousands(float64(e.opts.Keys)))
	s.note("Without a relay only the insert is measured, as with the second model row, which nobody relays here. " +
		"With a relay in this process " +
		"the events are published and marked meanwhile, on the same CPUs; the log then includes the marks (section " +
		"steady compares whole systems).")
	s.note("CPU is that of this process and of the server together, as the operating system counts it.")
	s.note("The outbox's row by hand is what the database alone takes for it: a statement written for this one row, " +
		"in tables like ours.")
	s.note("pgx is used without database/sql. Through pgxoutbox, the event goes to the server together with COMMIT, " +
		"and BEGIN together with the first statement.")
	if err := e.allows(ctx, producerPools*poolSize); err != nil {
		return err
	}

	var producers []producer
	var sessions []*session
	defer func() {
		for _, sess := range sessions {
			err = errors.Join(err, sess.close())
		}
	}()
	add := func(o orm, db *sql.DB, kind poolKind, rows []string) error {
		wanted := func(row string) bool {
			return slices.Contains(rows, row) && e.opts.selects(o.name+" "+row+kind.suffix)
		}
		if !slices.ContainsFunc(rows, wanted) {
			return nil
		}
		some, opened, err := e.producersOf(ctx, o, db, kind, wanted)
		sessions = append(sessions, opened...)
		if err != nil {
			return fmt.Errorf("%s%s: %w", o.name, kind.suffix, err)
		}
		producers = append(producers, some...)
		return nil
	}
	for _, o := range orms {
		db := e.db
		if o.simpleProtocol {
			if db, err = e.openSimple(ctx); err != nil {
				return err
			}
			defer db.Close()
		}
		if err := add(o, db, poolKind{}, producerRows); err != nil {
			return err
		}
		via, err := e.openVia(ctx, o)
		if err != nil {
			return err
		}
		defer via.Close()
		kind := poolKind{suffix: viaPGXOutbox, prefix: "via_"}
		if err := add(o, via, kind, []string{rowUnordered, rowOrdered}); err != nil {
			return err
		}
	}
	pool, err := e.openPGX(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := add(nativePGX(pool), nil, poolKind{}, producerRows); err != nil {
		return err
	}

	for _, c := range producerLoads {
		if err := e.exec(ctx, "TRUNCATE bench_order, bench_outbox"); err != nil {
			return err
		}
		e.checkpoint(ctx)
		tables, err := e.measureProducers(ctx, s, producers, c, producerColumns)
		if err != nil {
			return err
		}
		for _, o := range orms {
			t := tables[o.name]
			if t == nil {
				continue
			}
			s.producerAims(t, o.name, c, "÷ second row", "the second model row", map[string]float64{
				rowUnordered: 0.92, rowOrdered: 0.78,
				rowUnordered + viaPGXOutbox: 1.05, rowOrdered + viaPGXOutbox: 0.88,
			})
		}
	}
	return nil
}

// producerAims adds an aim for each row of an ORM.
func (s *Section) producerAims(t *Table, orm string, c int, column, base string, aims map[string]float64) {
	for _, row := range slices.Sorted(maps.Keys(aims)) {
		s.atLeast(t.value(orm+" "+row, column), aims[row], "%s, %d at once: %s at least %.2f × %s",
			orm, c, strings.TrimPrefix(row, "+ "), aims[row], base)
	}
}

// measureProducers measures all producers with c goroutines, and returns a table for each ORM.
func (e *env) measureProducers(ctx context.Context, s *Section, producers []producer, c int,
	columns []Column,
) (map[string]*Table, error) {
	tables := map[string]*Table{}
	for _, p := range producers {
		if tables[p.orm] == nil {
			tables[p.orm] = s.table(fmt.Sprintf("%s, %d at once", p.orm, c), columns...)
		}
	}
	tableOf := func(p producer) *Table { return tables[p.orm] }
	if err := e.interleaveProducers(ctx, s, producers, c, tableOf); err != nil {
		return nil, err
	}
	for name, t := range tables {
		t.divide("÷ second row", "tx/s", func(*Row) *Row { return t.find(name + " " + rowSecond) })
		t.summarize()
	}
	return tables, nil
}

// interleaveProducers measures all producers with c goroutines. Each producer has a row in a table.
func (e *env) interleaveProducers(ctx context.Context, s *Section, producers []producer, c int,
	tableOf func(p producer) *Table,
) error {
	rows := make([]*Row, len(producers))
	for i, p := range producers {
		rows[i] = tableOf(p).row(p.name(), e.opts.Rounds)
	}
	return interleave(e.opts.Rounds, len(producers), func(round, i int) error {
		p := producers[i]
		e.progress.show("%s, %d at once, round %d of %d: %s", s.Name, c, round+1, e.opts.Rounds, p.name())
		return labelled(ctx, p.name(), func(ctx context.Context) error {
			return e.produceCell(ctx, tableOf(p), rows[i], round, c, p)
		})
	})
}

// producersOf opens the clients of one ORM on a pool of a kind.
func (e *env) producersOf(ctx context.Context, o orm, db *sql.DB, kind poolKind,
	wanted func(row string) bool,
) (all []producer, sessions []*session, err error) {
	plain, err := o.open(ctx, db, nil)
	if err != nil {
		return nil, nil, err
	}
	add := func(row string, sess *session, tx func(ctx context.Context) error) {
		all = append(all, producer{orm: o.name, row: row, pool: kind.suffix, sess: sess, tx: tx})
	}
	name := kind.prefix + strings.ReplaceAll(strings.ToLower(o.name), "/", "_")
	if wanted(rowAlone) {
		add(rowAlone, nil, plain.Alone)
	}
	if wanted(rowSecond) {
		add(rowSecond, nil, func(ctx context.Context) error {
			return plain.SecondRow(ctx, newSecondRow(e.randomKey(), newPayload(0)))
		})
	}
	if hand, ok := plain.(byHand); ok && (wanted(rowByHand) || wanted(rowByHandOrder)) {
		prefix := name + "_hand_"
		if _, err := e.createOutbox(ctx, prefix); err != nil {
			return nil, nil, err
		}
		if err := e.warmByHand(ctx, hand, prefix); err != nil {
			return nil, nil, err
		}
		for _, row := range []string{rowByHand, rowByHandOrder} {
			if wanted(row) {
				add(row, nil, func(ctx context.Context) error {
					return hand.ByHand(ctx, prefix, newSecondRow(e.randomKey(), newPayload(0)), row == rowByHandOrder)
				})
			}
		}
	}
	for _, with := range []struct {
		relay              bool
		unordered, ordered string
	}{{false, rowUnordered, rowOrdered}, {true, rowUnorderedHot, rowOrderedHot}} {
		if !wanted(with.unordered) && !wanted(with.ordered) {
			continue
		}
		prefix := fmt.Sprintf("%s_%s_", name, map[bool]string{false: "cold", true: "hot"}[with.relay])
		sess, err := e.openSession(ctx, o, db, prefix, with.relay)
		if err != nil {
			return nil, append(sessions, sess), err
		}
		sessions = append(sessions, sess)
		if wanted(with.unordered) {
			add(with.unordered, sess, func(ctx context.Context) error {
				ev := sess.event(e.randomKey()) // a key for the broker, because the second model row has one
				ev.Unordered = true
				return sess.Publish(ctx, ev)
			})
		}
		if wanted(with.ordered) {
			add(with.ordered, sess, func(ctx context.Context) error {
				return sess.Publish(ctx, sess.event(e.randomKey()))
			})
		}
	}
	return all, sessions, nil
}

// warmByHand uses every key once, as warm does for the others, and analyzes the tables.
func (e *env) warmByHand(ctx context.Context, hand byHand, prefix string) error {
	e.progress.show("preparing the rows by hand")
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for k := range e.opts.Keys {
		g.Go(func() error {
			return hand.ByHand(gctx, prefix, newSecondRow(producerKey(k), newPayload(0)), true)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return e.exec(ctx, "ANALYZE "+prefix+"event, "+prefix+"key")
}

// produceCell measures one producer, and checks that its rows are there.
func (e *env) produceCell(ctx context.Context, t *Table, r *Row, round, c int, p producer) error {
	stored := map[string]int64{"bench_order": 0}
	switch p.row {
	case rowSecond:
		stored["bench_outbox"] = 0
	case hotKeyHand:
		stored["bench_numbered"] = 0
	}
	for table := range stored {
		var err error
		if stored[table], err = e.count(ctx, "SELECT count(*) FROM "+table); err != nil {
			return err
		}
	}
	var done atomic.Int64
	var hot, cold int64
	if p.sess != nil {
		hot, cold = p.sess.hot.Load(), p.sess.cold.Load()
	}
	l, err := e.produce(ctx, c, e.opts.Duration, func(ctx context.Context) error {
		err := p.tx(ctx)
		if err == nil {
			done.Add(1)
		}
		return err
	})
	if err != nil {
		return err
	}
	if p.sess != nil {
		if err := p.sess.finished(ctx); err != nil {
			return err
		}
		if p.sess.stop != nil {
			t.set(r, round, "fast path", p.sess.share(hot, cold))
		}
	}
	after, err := e.usage(ctx)
	if err != nil {
		return err
	}
	for table, before := range stored {
		n, err := e.count(ctx, "SELECT count(*) FROM "+table)
		if err != nil {
			return err
		}
		if n-before != done.Load() {
			return fmt.Errorf("%d rows are in %s, %d were committed", n-before, table, done.Load())
		}
	}
	t.set(r, round, "tx/s", l.rate())
	t.set(r, round, "p50 µs", percentile(l.latencies, 50))
	t.set(r, round, "p99 µs", percentile(l.latencies, 99))
	t.setUsage(r, round, "tx", l.from, after, float64(len(l.latencies)))
	return nil
}
