package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

// latencyRate is the number of transactions a second while latency is measured.
const latencyRate = 100

// Competitors of this section.
const (
	channelName     = "a channel to a goroutine"
	fastPathName    = "outbox, fast path, unordered"
	fastOrderedName = "outbox, fast path, ordered"
)

var latencyColumns = []Column{
	{"p50 µs", Micros},
	{"÷ channel", Ratio},
	{"p99 µs", Micros},
	{"events", Count},
	{"fast path", Percent},
}

func runLatency(ctx context.Context, e *env, s *Section) (err error) {
	duration := 4 * e.opts.Duration
	s.note("From the return of COMMIT to the entry of Publish, at %d transactions a second (Poisson) through GORM, "+
		"for %s in each round. The "+
		"channel is what any hand-off to another goroutine costs: a send after the commit, and a goroutine that "+
		"waits for it.", latencyRate, duration)
	plain, err := openGORM(ctx, e.db, nil)
	if err != nil {
		return err
	}
	sess, err := e.openSession(ctx, orm{name: "GORM", open: openGORM}, e.db, "latency_", true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sess.close()) }()

	t := s.table("commit to publish", latencyColumns...)
	var names []string
	for _, name := range []string{channelName, fastPathName, fastOrderedName} {
		if e.opts.selects(name) {
			names = append(names, name)
			t.row(name, e.opts.Rounds)
		}
	}
	err = interleave(e.opts.Rounds, len(names), func(round, i int) error {
		name, row := names[i], t.Rows[i]
		e.progress.show("latency, round %d of %d: %s", round+1, e.opts.Rounds, name)
		return labelled(ctx, name, func(ctx context.Context) error {
			w := newStopwatch()
			hot, cold := sess.hot.Load(), sess.cold.Load()
			if name == channelName {
				err = e.latencyOfChannel(ctx, plain, w, duration)
			} else {
				err = latencyOfOutbox(ctx, sess, w, duration, name == fastOrderedName)
				t.set(row, round, "fast path", sess.share(hot, cold))
			}
			if err != nil {
				return err
			}
			all, err := w.latencies()
			if err != nil {
				return err
			}
			t.set(row, round, "p50 µs", percentile(all, 50))
			t.set(row, round, "p99 µs", percentile(all, 99))
			t.set(row, round, "events", float64(len(all)))
			return nil
		})
	})
	if err != nil {
		return err
	}
	t.divide("÷ channel", "p50 µs", func(*Row) *Row { return t.find(channelName) })
	t.summarize()
	for _, name := range []string{fastPathName, fastOrderedName} {
		p50, ratio := t.value(name, "p50 µs"), t.value(name, "÷ channel")
		s.aim(ratio, ratio <= 3 || p50 <= 30, Ratio.text(ratio), "%s: p50 at most 3 × the channel, or 30 µs (%s µs)",
			name, Micros.text(p50))
	}
	return nil
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
	if err := poisson(ctx, d, func() error { return sess.commitTimed(ctx, w, ordered) }); err != nil {
		return err
	}
	return sess.finished(ctx)
}

// commitTimed runs a transaction of GORM with an order and an event, and notes its commit.
func (s *session) commitTimed(ctx context.Context, w *stopwatch, ordered bool) error {
	ev := s.event(s.e.randomKey())
	ev.Unordered = !ordered
	n := payloadNumber(ev.Payload)
	return s.ormClient.(*gormClient).db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
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
}

// poisson calls fn latencyRate times a second, at random, for d. After a call that took long, the
// next calls come sooner.
func poisson(ctx context.Context, d time.Duration, fn func() error) error {
	start := time.Now()
	for next := time.Duration(0); next < d; {
		if wait := next - time.Since(start); wait > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(wait):
			}
		}
		if err := fn(); err != nil {
			return err
		}
		next += time.Duration(rand.ExpFloat64() / latencyRate * float64(time.Second))
	}
	return nil
}

// stopwatch records when the transaction of each event committed and when the event was published.
type stopwatch struct {
	published func(n int)

	mu         sync.Mutex
	start, end map[int]time.Time
}

func newStopwatch() *stopwatch {
	w := &stopwatch{start: map[int]time.Time{}, end: map[int]time.Time{}}
	w.published = func(n int) { w.note(w.end, n) }
	return w
}

func (w *stopwatch) committed(n int) { w.note(w.start, n) }

func (w *stopwatch) note(m map[int]time.Time, n int) {
	now := time.Now()
	w.mu.Lock()
	m[n] = now
	w.mu.Unlock()
}

// latencies returns the times from commit to publish.
func (w *stopwatch) latencies() ([]time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]time.Duration, 0, len(w.start))
	for n, at := range w.start {
		end, ok := w.end[n]
		if !ok {
			return nil, fmt.Errorf("event %d was not published", n)
		}
		all = append(all, end.Sub(at))
	}
	return all, nil
}
