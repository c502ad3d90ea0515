package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// producerLoads are the numbers of goroutines that run transactions.
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

// byHand is an ORM's client that can also write the outbox's row by hand.
type byHand interface {
	ByHand(ctx context.Context, prefix string, row secondRow, ordered bool) error
}

var producerColumns = []Column{
	{"tx/s", Count},
	{"÷ second row", Ratio},
	{"p50 µs", Count},
	{"p99 µs", Count},
	{"WAL B/tx", Count},
	{"fast path", Percent},
}

// producer is one ORM in one way.
type producer struct {
	orm  string
	row  string
	sess *session // nil: the producer does not use the outbox
	tx   func(ctx context.Context) error
}

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
	s.note("The outbox's row by hand is what the database alone takes for it: a statement written for this one row, " +
		"in tables like ours.")

	var producers []producer
	var sessions []*session
	defer func() {
		for _, sess := range sessions {
			err = errors.Join(err, sess.close())
		}
	}()
	for _, o := range orms {
		wanted := func(row string) bool { return e.opts.selects(o.name + " " + row) }
		if !slices.ContainsFunc(producerRows, wanted) {
			continue
		}
		db := e.db
		if o.simpleProtocol {
			if db, err = e.openSimple(ctx); err != nil {
				return err
			}
			defer db.Close()
		}
		some, opened, err := e.producersOf(ctx, o, db, wanted)
		sessions = append(sessions, opened...)
		if err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
		producers = append(producers, some...)
	}

	for _, c := range producerLoads {
		if err := e.exec(ctx, "TRUNCATE bench_order, bench_outbox"); err != nil {
			return err
		}
		e.checkpoint(ctx)
		tables := map[string]*Table{}
		rows := make([]*Row, len(producers))
		for i, p := range producers {
			t := tables[p.orm]
			if t == nil {
				t = s.table(fmt.Sprintf("%s, %d at once", p.orm, c), producerColumns...)
				tables[p.orm] = t
			}
			rows[i] = t.row(p.orm+" "+p.row, e.opts.Rounds)
		}
		err := interleave(e.opts.Rounds, len(producers), func(round, i int) error {
			p := producers[i]
			e.progress.show("producer, %d at once, round %d of %d: %s %s", c, round+1, e.opts.Rounds, p.orm, p.row)
			return labelled(ctx, p.orm+" "+p.row, func(ctx context.Context) error {
				return e.produceCell(ctx, tables[p.orm], rows[i], round, c, p)
			})
		})
		if err != nil {
			return err
		}
		for _, o := range orms {
			t := tables[o.name]
			if t == nil {
				continue
			}
			t.divide("÷ second row", "tx/s", func(*Row) *Row { return t.find(o.name + " " + rowSecond) })
			t.summarize()
			s.atLeast(t.value(o.name+" "+rowUnordered, "÷ second row"), 1, "%s, %d at once: unordered at least 1.00 "+
				"× the second model row", o.name, c)
			s.atLeast(t.value(o.name+" "+rowOrdered, "÷ second row"), 0.85, "%s, %d at once: ordered at least 0.85 "+
				"× the second model row", o.name, c)
		}
	}
	return nil
}

// producersOf opens the clients of one ORM.
func (e *env) producersOf(ctx context.Context, o orm, db *sql.DB,
	wanted func(row string) bool,
) (all []producer, sessions []*session, err error) {
	plain, err := o.open(ctx, db, nil)
	if err != nil {
		return nil, nil, err
	}
	if wanted(rowAlone) {
		all = append(all, producer{o.name, rowAlone, nil, plain.Alone})
	}
	if wanted(rowSecond) {
		all = append(all, producer{o.name, rowSecond, nil, func(ctx context.Context) error {
			return plain.SecondRow(ctx, newSecondRow(e.randomKey(), newPayload(0)))
		}})
	}
	if hand, ok := plain.(byHand); ok && (wanted(rowByHand) || wanted(rowByHandOrder)) {
		prefix := strings.ToLower(o.name) + "_hand_"
		if _, err := e.createOutbox(ctx, prefix); err != nil {
			return nil, nil, err
		}
		for _, row := range []string{rowByHand, rowByHandOrder} {
			if wanted(row) {
				all = append(all, producer{o.name, row, nil, func(ctx context.Context) error {
					return hand.ByHand(ctx, prefix, newSecondRow(e.randomKey(), newPayload(0)), row == rowByHandOrder)
				}})
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
		prefix := fmt.Sprintf("%s_%s_", strings.ToLower(o.name),
			map[bool]string{false: "cold", true: "hot"}[with.relay])
		sess, err := e.openSession(ctx, o, db, prefix, with.relay)
		if err != nil {
			return nil, append(sessions, sess), err
		}
		sessions = append(sessions, sess)
		if wanted(with.unordered) {
			all = append(all, producer{o.name, with.unordered, sess, func(ctx context.Context) error {
				ev := sess.event(e.randomKey()) // a key for the broker, because the second model row has one
				ev.Unordered = true
				return sess.Publish(ctx, ev)
			}})
		}
		if wanted(with.ordered) {
			all = append(all, producer{o.name, with.ordered, sess, func(ctx context.Context) error {
				return sess.Publish(ctx, sess.event(e.randomKey()))
			}})
		}
	}
	return all, sessions, nil
}

// produceCell measures one producer, and checks that its rows are there.
func (e *env) produceCell(ctx context.Context, t *Table, r *Row, round, c int, p producer) error {
	stored := map[string]int64{"bench_order": 0}
	if p.row == rowSecond {
		stored["bench_outbox"] = 0
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
	after, err := e.wal(ctx)
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
	n := float64(len(l.latencies))
	t.set(r, round, "tx/s", l.rate())
	t.set(r, round, "p50 µs", percentile(l.latencies, 50))
	t.set(r, round, "p99 µs", percentile(l.latencies, 99))
	t.set(r, round, "WAL B/tx", float64(after-l.wal)/n)
	return nil
}
