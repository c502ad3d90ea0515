package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

// Figures of this section.
const (
	steadyLoad = 8                     // goroutines that produce
	handPause  = 20 * time.Millisecond // of the hand-written loop after it has found less than a batch
)

// Competitors of this section.
const (
	steadyAlone     = "GORM, no outbox"
	steadyHand      = "GORM, hand-written outbox and loop"
	steadyUnordered = "GORM, outbox and relay"
	steadyOrdered   = "GORM, outbox and relay, ordered"
)

// runSteady has producers and the relay in one process, as in a whole service. The backlog is what
// is not finished when the producers stop; CPU and log include finishing it.
func runSteady(ctx context.Context, e *env) (err error) {
	pool, err := openPGX(ctx, e.config, false)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := e.exec(ctx, "TRUNCATE bench_order, bench_outbox"); err != nil {
		return err
	}
	plain, err := openGORM(e.db, nil)
	if err != nil {
		return err
	}
	if err := e.fillSecondRows(ctx); err != nil {
		return err
	}
	all := []competitor{
		{steadyAlone, func(ctx context.Context) (figures, error) {
			return e.steady(ctx, plain.Alone, nil)
		}},
		{steadyHand, func(ctx context.Context) (figures, error) { return e.steadyByHand(ctx, plain, pool) }},
	}
	var sessions []*session
	defer func() {
		for _, s := range sessions {
			err = errors.Join(err, s.close())
		}
	}()
	for _, via := range []string{"", viaPGXOutbox} {
		db := poolKind{via: via != ""}.open(e.config)
		defer db.Close()
		sess, err := e.openSession(ctx, func(_ context.Context, cfg *outboxConfig) (ormClient, error) {
			return openGORM(db, cfg)
		}, fmt.Sprintf("steady%d_", len(sessions)), true)
		sessions = append(sessions, sess)
		if err != nil {
			return err
		}
		for _, name := range []string{steadyUnordered, steadyOrdered} {
			all = append(all, competitor{name + via, func(ctx context.Context) (figures, error) {
				return e.steadyOutbox(ctx, sess, name == steadyOrdered)
			}})
		}
	}
	e.checkpoint(ctx)
	t := e.table("both in one process", "tx/s", "÷ no outbox", "÷ hand-written", "aim", "CPU µs/tx", "backlog at end",
		"fast path")
	if err := e.compete(ctx, t, all); err != nil {
		return err
	}
	t.divideBy("÷ no outbox", "tx/s", steadyAlone)
	t.divideBy("÷ hand-written", "tx/s", steadyHand)
	for _, c := range all[2:] {
		t.aim(c.name, 0.75) // of no outbox
	}
	return nil
}

// steady runs transactions, and then finish, which waits until every event is finished and returns
// how many were left when the producers stopped. finish may be nil.
func (e *env) steady(ctx context.Context, tx func(context.Context) error, finish func() (int64, error),
) (figures, error) {
	l, err := e.produce(ctx, steadyLoad, 4*e.opts.duration, tx, func() {})
	if err != nil {
		return nil, err
	}
	f := figures{"tx/s": l.rate(), "p99 µs": percentile(l.latencies, 99)}
	if finish != nil {
		left, err := finish()
		if err != nil {
			return nil, err
		}
		f["backlog at end"] = float64(left)
	}
	return f, e.since(ctx, f, l.from, "tx", float64(len(l.latencies)))
}

func (e *env) steadyOutbox(ctx context.Context, sess *session, ordered bool) (figures, error) {
	hot, cold := sess.hot.Load(), sess.cold.Load()
	f, err := e.steady(ctx, func(ctx context.Context) error {
		return sess.Publish(ctx, sess.event(e.randomKey(), ordered))
	}, func() (int64, error) {
		left := sess.next.Load() - sess.marked.Load()
		return left, sess.finished(ctx) // no event may be missing, and none may have come twice
	})
	if err == nil {
		f["fast path"] = sess.share(hot, cold)
	}
	return f, err
}

// fillSecondRows fills and analyzes the table of second rows. So the planner knows it as a table
// that has been used for a while, like the outbox's.
func (e *env) fillSecondRows(ctx context.Context) error {
	return e.exec(ctx,
		fmt.Sprintf(`INSERT INTO bench_outbox (id, topic, type, key, payload, status, available_at, created_at, done_at)
SELECT gen_random_uuid(), '%s', '%s', 'order/' || i, '%s', 1, now(), now(), now() FROM generate_series(1, %d) i`,
			benchTopic, benchType, newPayload(0), e.opts.keys),
		"ANALYZE bench_outbox")
}

// steadyByHand has the second model row of section produce, and a loop over its table.
func (e *env) steadyByHand(ctx context.Context, client ormClient, pool *pgxpool.Pool) (f figures, err error) {
	l := &ledger{}
	var next, marked atomic.Int64
	produced := make(chan struct{})
	g, loopCtx := errgroup.WithContext(ctx)
	g.Go(func() error {
		for over := false; ; {
			n, err := claimSecondRows(loopCtx, pool, l)
			if err != nil || n == 0 && over {
				return err
			}
			if marked.Add(int64(n)); n == handBatch || over {
				continue
			}
			select {
			case <-produced:
				over = true
			case <-time.After(handPause):
			case <-loopCtx.Done():
				return loopCtx.Err()
			}
		}
	})
	f, err = e.steady(ctx, func(ctx context.Context) error {
		return client.SecondRow(ctx, newSecondRow(e.randomKey(), newPayload(int(next.Add(1)-1))))
	}, func() (int64, error) {
		left := next.Load() - marked.Load()
		close(produced)
		return left, g.Wait()
	})
	if err == nil {
		err = l.check(int(next.Load()))
	}
	return f, err
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
