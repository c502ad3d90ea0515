package main

import (
	"context"
	"errors"
	"time"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

// Competitors of this section.
const (
	channelName     = "a channel to a goroutine"
	fastPathName    = "outbox, fast path, unordered"
	fastOrderedName = "outbox, fast path, ordered"
)

// runLatency shows the time from the return of COMMIT to the entry of Publish on the fast path. The
// channel is what any hand-off to another goroutine costs: a send after the commit, and a goroutine
// that waits for it.
func runLatency(ctx context.Context, e *env) (err error) {
	plain, err := openGORM(e.db, nil)
	if err != nil {
		return err
	}
	sess, err := e.openSession(ctx, func(_ context.Context, cfg *outboxConfig) (ormClient, error) {
		return openGORM(e.db, cfg)
	}, "latency_", true)
	defer func() { err = errors.Join(err, sess.close()) }()
	if err != nil {
		return err
	}
	duration := 4 * e.opts.duration
	t := e.table("commit to publish", "p50 µs", "÷ channel", "p99 µs", "fast path")
	all := []competitor{{channelName, func(ctx context.Context) (figures, error) {
		w := newStopwatch()
		return latencies(w, e.latencyOfChannel(ctx, plain, w, duration))
	}}}
	for _, name := range []string{fastPathName, fastOrderedName} {
		all = append(all, competitor{name, func(ctx context.Context) (figures, error) {
			w := newStopwatch()
			hot, cold := sess.hot.Load(), sess.cold.Load()
			f, err := latencies(w, latencyOfOutbox(ctx, sess, w, duration, name == fastOrderedName))
			if err == nil {
				f["fast path"] = sess.share(hot, cold)
			}
			return f, err
		}})
	}
	if err := e.compete(ctx, t, all); err != nil {
		return err
	}
	t.divideBy("÷ channel", "p50 µs", channelName)
	return nil
}

// latencies returns the figures of a stopwatch.
func latencies(w *stopwatch, err error) (figures, error) {
	if err != nil {
		return nil, err
	}
	all, err := w.latencies()
	return figures{
		"p50 µs": percentile(all, 50), "p99 µs": percentile(all, 99), "events": float64(len(all)),
	}, err
}

// latencyOfChannel measures a channel to a goroutine that gets each event after the commit.
func (e *env) latencyOfChannel(ctx context.Context, client ormClient, w *stopwatch, d time.Duration) error {
	ch, done := make(chan int), make(chan struct{})
	go func() {
		defer close(done)
		for n := range ch {
			w.published(n)
		}
	}()
	n := 0
	err := poisson(ctx, d, func() error {
		if err := client.SecondRow(ctx, newSecondRow(e.randomKey(), newPayload(n))); err != nil {
			return err
		}
		w.committed(n)
		ch <- n
		n++
		return nil
	})
	close(ch)
	<-done
	return err
}

// latencyOfOutbox measures the fast path. It notes each commit just before the outbox hears of it.
func latencyOfOutbox(ctx context.Context, sess *session, w *stopwatch, d time.Duration, ordered bool) error {
	sess.entered.Store(&w.published)
	defer sess.entered.Store(nil)
	err := poisson(ctx, d, func() error {
		ev := sess.event(sess.e.randomKey(), ordered)
		n := payloadNumber(ev.Payload)
		return sess.ormClient.(*gormClient).db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if err := tx.Create(&gormOrder{Customer: "ada", Amount: 4200}).Error; err != nil {
				return err
			}
			otx, err := gormoutbox.TxOf(tx.Statement.Context, tx)
			if err != nil {
				return err
			}
			otx.OnOutcome(func(core.Outcome) { w.committed(n) })
			return gormoutbox.Publish(tx.Statement.Context, tx, ev)
		})
	})
	if err != nil {
		return err
	}
	return sess.finished(ctx)
}
