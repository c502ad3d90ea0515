package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core"
	engine "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// inboxLoads has the numbers of consumers, and inboxBatch the number of events in a batch.
var inboxLoads = []int{1, 8}

const inboxBatch = 100

// Competitors of this section.
const (
	effectName     = "the effect alone"
	handInboxName  = "+ hand-written inbox row"
	inboxName      = "+ inbox"
	inboxOnesName  = "inbox, a transaction for each event"
	inboxBatchName = "inbox, batches of 100"
)

// handInboxSchema is the inbox that people write by hand.
const handInboxSchema = `
CREATE TABLE bench_inbox (
    consumer     text        NOT NULL,
    event_id     text        NOT NULL,
    processed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, event_id)
)`

var inboxColumns = []Column{
	{"tx/s", Count},
	{"÷ hand-written", Ratio},
	{"p50 µs", Count},
	{"p99 µs", Count},
	{"WAL B/tx", Count},
}

var batchColumns = []Column{{"events/s", Count}, {"÷ one by one", Ratio}, {"WAL B/event", Count}}

// consumer is a way to handle an event, or several.
type consumer struct {
	name   string
	events int // number of events in one transaction
	tx     func(ctx context.Context) error
	stored func(ctx context.Context) (int64, error) // number of events recorded as processed; may be nil
}

func runInbox(ctx context.Context, e *env, s *Section) error {
	s.note("A consumer's transaction, through database/sql: the effect is an order. The hand-written inbox row is " +
		"INSERT ... ON CONFLICT DO NOTHING into a " +
		"table of consumer and event id; a second copy would be seen by its row count.")
	s.note("Batches: only the inbox, without an effect, by one goroutine.")
	store, err := sqlinbox.New(e.db, sqlinbox.Config{Dialect: core.Postgres, Prefix: "bench_"})
	if err != nil {
		return err
	}
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	if err := e.exec(ctx, "TRUNCATE bench_order", handInboxSchema); err != nil {
		return err
	}
	if err := e.checkInbox(ctx, store); err != nil {
		return err
	}

	consumers := e.consumers(store)
	for _, c := range inboxLoads {
		t := s.table(fmt.Sprintf("%d at once", c), inboxColumns...)
		if err := e.measureConsumers(ctx, t, consumers[:3], c); err != nil {
			return err
		}
		t.divide("÷ hand-written", "tx/s", func(*Row) *Row { return t.find(handInboxName) })
		t.summarize()
		s.atLeast(t.value(inboxName, "÷ hand-written"), 0.98, "%d at once: at least 0.98 × the hand-written inbox row",
			c)
	}
	t := s.table("events, one goroutine", batchColumns...)
	if err := e.measureConsumers(ctx, t, consumers[3:], 1); err != nil {
		return err
	}
	t.divide("÷ one by one", "events/s", func(*Row) *Row { return t.find(inboxOnesName) })
	t.summarize()
	s.atLeast(t.value(inboxBatchName, "÷ one by one"), 15, "batches of %d at least 15 × one by one", inboxBatch)
	return nil
}

// consumers returns the competitors. From the fourth on, they write only the inbox, without an
// effect.
func (e *env) consumers(in *sqlinbox.Store) []consumer {
	var next atomic.Int64
	event := func() engine.Event {
		return engine.Event{
			Key:  engine.Key{Consumer: "billing", Handler: "invoice", EventID: core.NewEventID()},
			Type: benchType, Topic: benchTopic, Located: true, Partition: 1, Offset: next.Add(1),
		}
	}
	begin := func(ctx context.Context, tx core.Tx) error {
		state, _, err := in.Begin(ctx, tx, event())
		return fresh(err, state)
	}
	byHand := func(ctx context.Context, tx core.Tx) error {
		n, err := tx.Exec(ctx, "INSERT INTO bench_inbox (consumer, event_id) VALUES ($1, $2) ON CONFLICT DO NOTHING",
			"billing", core.NewEventID())
		if err == nil && n != 1 {
			err = errors.New("a new event was taken for a duplicate")
		}
		return err
	}
	effect := func(ctx context.Context, tx core.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO bench_order (customer, amount, created_at) VALUES ($1, $2, now())", "ada",
			4200)
		return err
	}
	storedIn := func(table string) func(ctx context.Context) (int64, error) {
		return func(ctx context.Context) (int64, error) { return e.count(ctx, "SELECT count(*) FROM "+table) }
	}
	inbox := storedIn("bench_inbox_seen")
	return []consumer{
		{effectName, 1, func(ctx context.Context) error { return e.inTx(ctx, effect) }, nil},
		{
			handInboxName, 1, func(ctx context.Context) error { return e.inTx(ctx, byHand, effect) },
			storedIn("bench_inbox"),
		},
		{inboxName, 1, func(ctx context.Context) error { return e.inTx(ctx, begin, effect) }, inbox},
		{inboxOnesName, 1, func(ctx context.Context) error { return e.inTx(ctx, begin) }, inbox},
		{inboxBatchName, inboxBatch, func(ctx context.Context) error {
			return e.inTx(ctx, func(ctx context.Context, tx core.Tx) error {
				events := make([]engine.Event, inboxBatch)
				for i := range events {
					events[i] = event()
				}
				states, err := in.BeginBatch(ctx, tx, events)
				return fresh(err, states...)
			})
		}, inbox},
	}
}

// fresh returns an error unless all events are new.
func fresh(err error, states ...engine.State) error {
	for _, s := range states {
		if err == nil && s != engine.StateFresh {
			err = fmt.Errorf("a new event is %s", s)
		}
	}
	return err
}

// checkInbox requires that the measured inbox works: it must recognise a second copy.
func (e *env) checkInbox(ctx context.Context, in *sqlinbox.Store) error {
	ev := engine.Event{Key: engine.Key{
		Consumer: "billing", Handler: "invoice",
		EventID: core.NewEventID(),
	}}
	for _, want := range []engine.State{engine.StateFresh, engine.StateProcessed} {
		err := e.inTx(ctx, func(ctx context.Context, tx core.Tx) error {
			state, _, err := in.Begin(ctx, tx, ev)
			if err == nil && state != want {
				err = fmt.Errorf("the event is %s, want %s", state, want)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// inTx runs steps in a transaction.
func (e *env) inTx(ctx context.Context, steps ...func(ctx context.Context, tx core.Tx) error) error {
	tx, err := sqltx.Begin(ctx, e.db, nil, core.Postgres)
	if err != nil {
		return err
	}
	for _, step := range steps {
		if err := step(ctx, tx); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

// measureConsumers measures each consumer in each round, and checks that every event is recorded
// afterwards.
func (e *env) measureConsumers(ctx context.Context, t *Table, all []consumer, c int) error {
	var chosen []consumer
	for _, one := range all {
		if e.opts.selects(one.name) {
			chosen = append(chosen, one)
			t.row(one.name, e.opts.Rounds)
		}
	}
	e.checkpoint(ctx)
	return interleave(e.opts.Rounds, len(chosen), func(round, i int) error {
		one, row := chosen[i], t.Rows[i]
		e.progress.show("inbox, %d at once, round %d of %d: %s", c, round+1, e.opts.Rounds, one.name)
		return labelled(ctx, one.name, func(ctx context.Context) error {
			var before int64
			var done atomic.Int64
			if one.stored != nil {
				var err error
				if before, err = one.stored(ctx); err != nil {
					return err
				}
			}
			l, err := e.produce(ctx, c, e.opts.Duration, func(ctx context.Context) error {
				err := one.tx(ctx)
				if err == nil {
					done.Add(int64(one.events))
				}
				return err
			})
			if err != nil {
				return err
			}
			wal, err := e.wal(ctx)
			if err != nil {
				return err
			}
			if one.stored != nil {
				n, err := one.stored(ctx)
				if err != nil {
					return err
				}
				if n-before != done.Load() {
					return fmt.Errorf("%d events are known as processed, %d were", n-before, done.Load())
				}
			}
			t.set(row, round, t.Columns[0].Name, l.rate()*float64(one.events))
			perEvent := float64(wal-l.from.wal) / float64(len(l.latencies)*one.events)
			if t.column("p50 µs") < 0 {
				t.set(row, round, "WAL B/event", perEvent)
				return nil
			}
			t.set(row, round, "WAL B/tx", perEvent)
			t.set(row, round, "p50 µs", percentile(l.latencies, 50))
			t.set(row, round, "p99 µs", percentile(l.latencies, 99))
			return nil
		})
	})
}
