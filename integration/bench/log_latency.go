package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
)

// Competitors of the latency of this section.
const (
	logLatencyFast  = "outbox, relay in the service: fast path"
	logLatencyWoken = "outbox, relay in another process, woken"
	logLatencyLog   = "outbox, relay of the log"
	logLatencyDbz   = "outbox, " + logDebezium
)

// arrivals is a consumer of a topic.
type arrivals struct {
	client *kgo.Client
	watch  atomic.Pointer[stopwatch]
	ended  sync.WaitGroup
}

func newArrivals(to franzBroker) (*arrivals, error) {
	if err := to.forget(context.Background()); err != nil {
		return nil, err
	}
	from := map[int32]kgo.Offset{}
	for p, at := range to.from {
		from[int32(p)] = kgo.NewOffset().At(at)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(to.address),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{to.topic: from}))
	if err != nil {
		return nil, err
	}
	a := &arrivals{client: client}
	a.ended.Go(func() {
		for {
			fetches := client.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			fetches.EachRecord(func(r *kgo.Record) {
				if w := a.watch.Load(); w != nil {
					w.published(payloadNumber(r.Value))
				}
			})
		}
	})
	return a, nil
}

func (a *arrivals) close() {
	a.client.Close()
	a.ended.Wait()
}

// measureLatency measures the time from a commit until a consumer of Kafka has the event.
func (l *logSection) measureLatency(ctx context.Context, s *Section) (err error) {
	duration := 4 * l.opts.Duration
	s.note("The last table has the time from the return of COMMIT until a consumer of Kafka has the event, at %d "+
		"transactions a second (Poisson), each with an order and an event without a key, for %s in each round.",
		latencyRate, duration)
	if err := l.exec(ctx, "CREATE TABLE IF NOT EXISTS wake_order (id bigserial PRIMARY KEY, customer text NOT NULL, "+
		"amount bigint NOT NULL)"); err != nil {
		return err
	}
	a, err := newArrivals(l.franz)
	if err != nil {
		return err
	}
	defer a.close()
	t := &Table{Title: "commit to a consumer of Kafka", Columns: wakeColumns}
	var names []string
	for _, name := range []string{logLatencyFast, logLatencyWoken, logLatencyLog, logLatencyDbz} {
		if l.opts.selects(name) && (name != logLatencyDbz || l.connect != nil) {
			names = append(names, name)
			t.row(name, l.opts.Rounds)
		}
	}
	if len(names) == 0 {
		return nil
	}
	s.Tables = append(s.Tables, t)
	err = interleave(l.opts.Rounds, len(names), func(round, i int) error {
		l.progress.show("log, round %d of %d: %s", round+1, l.opts.Rounds, names[i])
		return labelled(ctx, names[i], func(ctx context.Context) error {
			all, err := l.latency(ctx, names[i], a, duration)
			if err != nil {
				return err
			}
			t.set(t.Rows[i], round, "p50 µs", percentile(all, 50))
			t.set(t.Rows[i], round, "p99 µs", percentile(all, 99))
			t.set(t.Rows[i], round, "events", float64(len(all)))
			return nil
		})
	})
	if err != nil {
		return err
	}
	t.summarize()
	p50 := t.value(logLatencyLog, "p50 µs")
	s.aim(p50, p50 <= Value((10*time.Millisecond).Microseconds()), Micros.text(p50)+" µs",
		"%s: p50 from the commit to a consumer at most 10 ms", logLatencyLog)
	return nil
}

// latency measures one competitor in one round.
func (l *logSection) latency(ctx context.Context, name string, a *arrivals, d time.Duration) (_ []time.Duration,
	err error,
) {
	w := newStopwatch()
	a.watch.Store(w)
	defer a.watch.Store(nil)
	producer, end, err := l.latencySides(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	n := 0
	published := func() (bool, error) { return w.ended() >= n, nil }
	for range wakeWarmUp { // after this, both processes have done each step once
		if err := producer.order(ctx, n, "", func(int) {}); err != nil {
			return nil, err
		}
		n++
	}
	if ok, err := await(ctx, finishLimit, time.Millisecond, published); err != nil || !ok {
		return nil, errors.Join(err, fmt.Errorf("%d of %d events came", w.ended(), n))
	}
	if err := poisson(ctx, d, func() error {
		defer func() { n++ }()
		return producer.order(ctx, n, "", w.committed)
	}); err != nil {
		return nil, err
	}
	if ok, err := await(ctx, finishLimit, time.Millisecond, published); err != nil || !ok {
		return nil, errors.Join(err, fmt.Errorf("%d of %d events came", w.ended(), n))
	}
	return w.latencies()
}

// latencySides opens a process that commits, and the relay of the named competitor.
func (l *logSection) latencySides(ctx context.Context, name string) (producer *wakeSide, end func() error, err error) {
	var closers []func() error
	end = func() (err error) {
		for _, closes := range slices.Backward(closers) {
			err = errors.Join(err, closes())
		}
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, end())
		}
	}()
	to, err := l.franz.publisher(0)
	if err != nil {
		return nil, nil, err
	}
	closers = append(closers, func() error { return to.Close(context.WithoutCancel(ctx)) })
	db := wakeDatabase{name: "PostgreSQL", driver: "pgx", dsn: l.dsn, dial: core.Postgres}
	join := func(prefix string, cfg core.Config) (*wakeSide, error) {
		side, err := db.joinAs(ctx, prefix, cfg)
		if err == nil {
			closers = append(closers, side.pool.Close)
		}
		return side, err
	}
	switch name {
	case logLatencyFast:
		producer, err = join("log_fast_", core.Config{Publisher: to})
		if err == nil {
			closers = append(closers, producer.run(ctx))
		}
		return producer, end, err
	case logLatencyWoken:
		const prefix = "log_woken_"
		cfg, err := pgx.ParseConfig(l.dsn)
		if err != nil {
			return nil, nil, err
		}
		relay, err := join(prefix, core.Config{
			Publisher: to, Wake: core.WakePolicy{Listen: pgxoutbox.Listen(cfg, sqloutbox.WakeChannel(prefix))},
		})
		if err != nil {
			return nil, nil, err
		}
		closers = append(closers, relay.run(ctx))
		producer, err = join(prefix, core.Config{})
		return producer, end, err
	}
	const prefix = "log_latency_"
	if producer, err = join(prefix, core.Config{RelayedByLog: true}); err != nil {
		return nil, nil, err
	}
	if err := l.dropSlot(ctx); err != nil {
		return nil, nil, err
	}
	if err := l.exec(ctx, "DROP TABLE IF EXISTS "+prefix+"log", "DROP PUBLICATION IF EXISTS "+l.slot()); err != nil {
		return nil, nil, err
	}
	relay, err := walrelay.New(walrelay.Config{
		Pool: l.pool, Slot: l.slot(), Tables: sqloutbox.Config{Prefix: prefix}, Outbox: core.Config{Publisher: to},
	})
	if err != nil {
		return nil, nil, err
	}
	if err := relay.Setup(ctx); err != nil {
		return nil, nil, err
	}
	if name == logLatencyDbz {
		stop, err := l.connect.add(ctx, prefix, l.slot(), l.franz.topic)
		if err != nil {
			return nil, nil, err
		}
		closers = append(closers, stop)
		return producer, end, nil
	}
	runCtx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(runCtx) }()
	closers = append(closers, func() error { stop(); return <-ended })
	return producer, end, nil
}
