package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// steadyLoad is how many goroutines produce.
const steadyLoad = 8

// Competitors of this section.
const (
	steadyAlone     = "GORM, no outbox"
	steadyHand      = "GORM, hand-written outbox and loop"
	steadyUnordered = "GORM, outbox and relay, unordered"
	steadyOrdered   = "GORM, outbox and relay, ordered"
)

var steadyColumns = []Column{
	{"tx/s", Count},
	{"÷ no outbox", Ratio},
	{"÷ hand-written", Ratio},
	{"p99 µs", Count},
	{"CPU µs/tx", Count},
	{"WAL B/tx", Count},
	{"backlog at end", Count},
	{"finished after ms", Count},
	{"duplicates", Count},
	{"fast path", Percent},
}

// steadyRun is one measurement.
type steadyRun struct {
	load       load
	backlog    int64 // events that were not finished when the producers stopped
	finished   time.Duration
	duplicates int64
	fast       float64
}

func runSteady(ctx context.Context, e *env, s *Section) (err error) {
	duration := 4 * e.opts.Duration
	s.note("%d goroutines run transactions through GORM for %s, with the relay in the same process. The "+
		"hand-written outbox is the second model "+
		"row of section producer and the loop of section drain, on that table, which sleeps %s when it found less "+
		"than a batch. The backlog is what is not "+
		"yet finished when the producers stop; the log includes finishing it.", steadyLoad, duration, handPause)
	plain, err := openGORM(ctx, e.db, nil)
	if err != nil {
		return err
	}
	pool, err := e.openPGX(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := e.exec(ctx, "TRUNCATE bench_order, bench_outbox"); err != nil {
		return err
	}
	sess, err := e.openSession(ctx, orm{name: "GORM", open: openGORM}, e.db, "steady_", true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sess.close()) }()
	db := sql.OpenDB(pgxoutbox.Connector(pgxoutbox.Config{Conn: *pool.Config().ConnConfig}))
	defer db.Close()
	if err := e.sized(ctx, db); err != nil {
		return err
	}
	through, err := e.openSession(ctx, orm{name: "GORM", open: openGORM}, db, "steadyx_", true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, through.close()) }()
	if err := e.fillSecondRows(ctx); err != nil {
		return err
	}

	outbox := func(sess *session, ordered bool) func(ctx context.Context) (steadyRun, error) {
		return func(ctx context.Context) (steadyRun, error) { return e.steadyOutbox(ctx, sess, duration, ordered) }
	}
	t := s.table("both in one process", steadyColumns...)
	var competitors []func(ctx context.Context) (steadyRun, error)
	for _, c := range []struct {
		name string
		run  func(ctx context.Context) (steadyRun, error)
	}{
		{steadyAlone, func(ctx context.Context) (r steadyRun, err error) {
			r.load, err = e.produce(ctx, steadyLoad, duration, plain.Alone)
			return r, err
		}},
		{
			steadyHand,
			func(ctx context.Context) (steadyRun, error) { return e.steadyByHand(ctx, plain, pool, duration) },
		},
		{steadyUnordered, outbox(sess, false)},
		{steadyOrdered, outbox(sess, true)},
		{steadyUnordered + viaPGXOutbox, outbox(through, false)},
		{steadyOrdered + viaPGXOutbox, outbox(through, true)},
	} {
		if e.opts.selects(c.name) {
			competitors = append(competitors, c.run)
			t.row(c.name, e.opts.Rounds)
		}
	}
	e.checkpoint(ctx)
	err = interleave(e.opts.Rounds, len(competitors), func(round, i int) error {
		row := t.Rows[i]
		e.progress.show("steady, round %d of %d: %s", round+1, e.opts.Rounds, row.Name)
		return labelled(ctx, row.Name, func(ctx context.Context) error {
			r, err := competitors[i](ctx)
			if err != nil {
				return err
			}
			used, err := e.usage(ctx)
			if err != nil {
				return err
			}
			t.set(row, round, "tx/s", r.load.rate())
			t.set(row, round, "p99 µs", percentile(r.load.latencies, 99))
			t.setUsage(row, round, "tx", r.load.from, used, float64(len(r.load.latencies)))
			if row.Name == steadyAlone {
				return nil
			}
			t.set(row, round, "backlog at end", float64(r.backlog))
			t.set(row, round, "finished after ms", float64(r.finished.Milliseconds()))
			t.set(row, round, "duplicates", float64(r.duplicates))
			if r.fast > 0 {
				t.set(row, round, "fast path", r.fast)
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	t.divide("÷ no outbox", "tx/s", func(*Row) *Row { return t.find(steadyAlone) })
	t.divide("÷ hand-written", "tx/s", func(*Row) *Row { return t.find(steadyHand) })
	t.summarize()
	for _, name := range []string{
		steadyUnordered, steadyOrdered, steadyUnordered + viaPGXOutbox, steadyOrdered + viaPGXOutbox,
	} {
		s.atLeast(t.value(name, "÷ no outbox"), 0.75, "%s: at least 0.75 × no outbox", name)
	}
	return nil
}

func (e *env) steadyOutbox(ctx context.Context, sess *session, d time.Duration, ordered bool) (r steadyRun, err error) {
	hot, cold := sess.hot.Load(), sess.cold.Load()
	r.load, err = e.produce(ctx, steadyLoad, d, func(ctx context.Context) error {
		ev := sess.event(e.randomKey())
		ev.Unordered = !ordered
		return sess.Publish(ctx, ev)
	})
	if err != nil {
		return r, err
	}
	r.backlog = sess.next.Load() - sess.marked.Load()
	stopped := time.Now()
	err = sess.finished(ctx) // no event may be missing, and none may have come twice
	r.finished, r.duplicates, r.fast = time.Since(stopped), sess.ledger.duplicates.Load(), sess.share(hot, cold)
	return r, err
}

// handPause is how long the hand-written loop sleeps after it has found less than a batch.
const handPause = 20 * time.Millisecond

// fillSecondRows fills and analyzes the table of second rows. So the planner knows it as a table
// that has been used for a while, like the outbox's.
func (e *env) fillSecondRows(ctx context.Context) error {
	return e.exec(ctx,
		fmt.Sprintf(`INSERT INTO bench_outbox (id, topic, type, key, payload, status, available_at, created_at, done_at)
SELECT gen_random_uuid(), '%s', '%s', 'order/' || i, '%s', 1, now(), now(), now() FROM generate_series(1, %d) i`,
			benchTopic, benchType, newPayload(0), e.opts.Keys),
		"ANALYZE bench_outbox")
}

func (e *env) steadyByHand(ctx context.Context, client ormClient, pool *pgxpool.Pool,
	d time.Duration,
) (r steadyRun, err error) {
	l := newLedger()
	var next, marked atomic.Int64
	var produced atomic.Bool
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { // the loop
		for {
			last := produced.Load()
			n, err := claimSecondRows(ctx, pool, l)
			if err != nil {
				return err
			}
			marked.Add(int64(n))
			if n == 0 && last {
				return nil
			}
			if n < handBatch && !last {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(handPause):
				}
			}
		}
	})
	var stopped time.Time
	g.Go(func() error {
		defer produced.Store(true)
		r.load, err = e.produce(ctx, steadyLoad, d, func(ctx context.Context) error {
			return client.SecondRow(ctx, newSecondRow(e.randomKey(), newPayload(int(next.Add(1)-1))))
		})
		stopped = time.Now()
		r.backlog = next.Load() - marked.Load()
		return err
	})
	if err := g.Wait(); err != nil {
		return r, err
	}
	r.finished, r.duplicates = time.Since(stopped), l.duplicates.Load()
	return r, l.check(int(next.Load()))
}

// claimSecondRows claims a batch with a lease, publishes it and marks it.
func claimSecondRows(ctx context.Context, pool *pgxpool.Pool, l *ledger) (int, error) {
	res, err := pool.Query(ctx, `UPDATE bench_outbox SET claimed_by = $1, lease_until = now() + interval '30 seconds'
WHERE id IN (SELECT id FROM bench_outbox WHERE status = 0 AND available_at <= now()
  AND (lease_until IS NULL OR lease_until <= now())
  ORDER BY available_at, id LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING id, topic, type, key, payload, attempts`, "hand", handBatch)
	if err != nil {
		return 0, err
	}
	var ids [][16]byte
	for res.Next() {
		var r handRow
		if err := res.Scan(&r.id, &r.topic, &r.typ, &r.key, &r.payload, &r.attempts); err != nil {
			return 0, err
		}
		l.see(payloadNumber(r.payload))
		ids = append(ids, r.id)
	}
	if err := res.Err(); err != nil || len(ids) == 0 {
		return 0, err
	}
	tag, err := pool.Exec(ctx, "UPDATE bench_outbox SET status = 1, done_at = now(), lease_until = NULL WHERE id = "+
		"ANY ($1) AND status = 0", ids)
	if err == nil && tag.RowsAffected() != int64(len(ids)) {
		err = fmt.Errorf("marked %d of %d rows", tag.RowsAffected(), len(ids))
	}
	return len(ids), err
}
