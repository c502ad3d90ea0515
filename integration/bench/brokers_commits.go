package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core"
)

// brokerProducers is how many goroutines commit.
const brokerProducers = 8

// brokerNone is the row with which the others are compared.
const brokerNone = "outbox, a publisher that does nothing"

var brokerCommitColumns = []Column{
	{"tx/s", Count},
	{"÷ nothing", Ratio},
	{"to the acknowledgement, p50 µs", Count},
	{"p99 µs", Count},
	{"the publish alone, p50 µs", Count},
	{"fast path", Percent},
}

// commits are producers with a relay in their process, and the broker to which it publishes.
type commits struct {
	name   string
	broker broker // nil: a publisher that does nothing
	bridge brokerPublisher
	sess   *session
}

func (c *commits) close(ctx context.Context) error {
	err := c.sess.close()
	if c.bridge != nil {
		err = errors.Join(err, c.bridge.Close(ctx))
	}
	return err
}

// measureBrokerCommits measures producers whose relay publishes to a broker in the same process.
func (e *env) measureBrokerCommits(ctx context.Context, s *Section, brokers []openBroker) (err error) {
	s.note("The last table has %d goroutines that run transactions through GORM, each with an unordered event, as "+
		"fast as they can, and the relay in the same process. The times are those from COMMIT to the broker's "+
		"acknowledgement, and of the call of the publisher in it.", brokerProducers)
	var all []*commits
	defer func() {
		for _, c := range all {
			err = errors.Join(err, c.close(ctx))
		}
	}()
	title := fmt.Sprintf("COMMIT to acknowledgement, %d at once", brokerProducers)
	t := &Table{Title: title, Columns: brokerCommitColumns}
	for i, b := range append([]openBroker{{}}, brokers...) {
		c := &commits{name: brokerNone, broker: b.broker}
		var to core.Publisher
		if b.broker != nil {
			c.name = "outbox, " + b.name
			const workers = 32 // the default
			if c.bridge, err = b.publisher(workers); err != nil {
				return err
			}
			to = c.bridge
		}
		if !e.opts.selects(c.name) {
			continue
		}
		prefix := fmt.Sprintf("brokers_commits_%d_", i)
		if c.sess, err = e.openSessionTo(ctx, orm{name: "GORM", open: openGORM}, e.db, prefix, to); err != nil {
			return err
		}
		all = append(all, c)
		t.row(c.name, e.opts.Rounds)
	}
	if len(all) == 0 {
		return nil
	}
	s.Tables = append(s.Tables, t)
	e.checkpoint(ctx)
	err = interleave(e.opts.Rounds, len(all), func(round, i int) error {
		e.progress.show("brokers, round %d of %d: %s", round+1, e.opts.Rounds, all[i].name)
		return labelled(ctx, all[i].name, func(ctx context.Context) error {
			return all[i].measure(ctx, t, t.Rows[i], round)
		})
	})
	if err != nil {
		return err
	}
	t.divide("÷ nothing", "tx/s", func(*Row) *Row { return t.find(brokerNone) })
	t.summarize()
	return nil
}

func (c *commits) measure(ctx context.Context, t *Table, row *Row, round int) error {
	if c.broker != nil {
		if err := c.broker.forget(ctx); err != nil {
			return err
		}
	}
	whole, call := newStopwatch(), newStopwatch()
	started := func(n int) { call.committed(n) }
	ended := func(n int) {
		whole.published(n)
		call.published(n)
	}
	c.sess.entered.Store(&started)
	c.sess.acked.Store(&ended)
	defer c.sess.entered.Store(nil)
	defer c.sess.acked.Store(nil)
	hot, cold := c.sess.hot.Load(), c.sess.cold.Load()
	var produced atomic.Int64
	l, err := c.sess.e.produce(ctx, brokerProducers, c.sess.e.opts.Duration, func(ctx context.Context) error {
		produced.Add(1)
		return c.sess.commitTimed(ctx, whole, false)
	})
	if err != nil {
		return err
	}
	if err := c.sess.finished(ctx); err != nil {
		return err
	}
	if err := c.check(ctx, produced.Load()); err != nil {
		return err
	}
	times, err := whole.latencies()
	if err != nil {
		return err
	}
	calls, err := call.latencies()
	if err != nil {
		return err
	}
	t.set(row, round, "tx/s", l.rate())
	t.set(row, round, "to the acknowledgement, p50 µs", percentile(times, 50))
	t.set(row, round, "p99 µs", percentile(times, 99))
	t.set(row, round, "the publish alone, p50 µs", percentile(calls, 50))
	t.set(row, round, "fast path", c.sess.share(hot, cold))
	return nil
}

// check returns an error unless the broker has each event that was produced once.
func (c *commits) check(ctx context.Context, produced int64) error {
	if c.broker == nil {
		return nil
	}
	l := newLedger()
	if err := c.broker.collect(ctx, func(payload []byte) { l.see(payloadNumber(payload)) }); err != nil {
		return err
	}
	if n := l.published.Load(); n != produced {
		return fmt.Errorf("the broker has %d events, %d were produced", n, produced)
	}
	return l.checkPart(int(produced))
}
