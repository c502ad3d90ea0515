package main

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverArgs is an event as a job.
type riverArgs struct {
	N   string `json:"n"`
	Pad string `json:"pad"`
}

func (riverArgs) Kind() string { return benchTopic }

func newRiverArgs(n int) riverArgs {
	p := newPayload(n)
	return riverArgs{N: string(p[6:14]), Pad: string(p[23 : len(p)-2])}
}

// riverWorkers is the number of workers from which on more make River no faster.
const riverWorkers = 2000

// riverWorker publishes an event.
type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	l *ledger
}

func (w *riverWorker) Work(_ context.Context, job *river.Job[riverArgs]) error {
	n, err := strconv.Atoi(job.Args.N)
	if err != nil {
		return err
	}
	w.l.see(n)
	return nil
}

// riverRelay is River, with one job for each event.
type riverRelay struct {
	e       *env
	pool    *pgxpool.Pool
	workers int
	fetch   time.Duration // 0: defaults
}

func newRiver(ctx context.Context, e *env, pool *pgxpool.Pool) (both []drainer, err error) {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return both, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return both, err
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return both, err
	}
	const batch = 1000
	for first := 0; first < e.opts.events; first += batch {
		var all []river.InsertManyParams
		for n := first; n < min(first+batch, e.opts.events); n++ {
			all = append(all, river.InsertManyParams{Args: newRiverArgs(n)})
		}
		if _, err := client.InsertManyFast(ctx, all); err != nil {
			return both, err
		}
	}
	if err := e.exec(ctx, "CREATE TABLE river_seed AS TABLE river_job"); err != nil {
		return both, err
	}
	standard := &riverRelay{e: e, pool: pool, workers: 100}
	best := &riverRelay{e: e, pool: pool, workers: riverWorkers, fetch: time.Millisecond}
	return []drainer{
		{name: "River, defaults", seed: standard.seed, drain: standard.drain},
		{name: "River, best settings", seed: best.seed, drain: best.drain},
	}, nil
}

func (r *riverRelay) seed(ctx context.Context) error {
	return r.e.exec(ctx, "TRUNCATE river_job", "INSERT INTO river_job SELECT * FROM river_seed", "ANALYZE river_job")
}

func (r *riverRelay) drain(ctx context.Context, l *ledger, limit time.Duration,
) (finished int, took time.Duration, err error) {
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, &riverWorker{l: l}); err != nil {
		return 0, 0, err
	}
	start := time.Now()
	client, err := river.NewClient[pgx.Tx](riverpgxv5.New(r.pool), &river.Config{
		Logger: slog.New(slog.DiscardHandler), Workers: workers, FetchCooldown: r.fetch, FetchPollInterval: r.fetch,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: r.workers}},
	})
	if err != nil {
		return 0, 0, err
	}
	if err := client.Start(ctx); err != nil {
		return 0, 0, err
	}
	events := r.e.opts.events
	// River completes jobs in the background. Its index finds a job that is still open.
	done, err := await(ctx, limit, time.Millisecond, func() (bool, error) {
		if l.published.Load() < int64(events) {
			return false, nil
		}
		n, err := r.e.count(ctx, "SELECT count(*) FROM (SELECT 1 FROM river_job WHERE state IN ('available', "+
			"'running') LIMIT 1) open")
		return n == 0, err
	})
	took = time.Since(start)
	if err != nil {
		return 0, 0, err
	}
	completed, err := r.e.count(ctx, "SELECT count(*) FROM river_job WHERE state = 'completed'")
	if err != nil {
		return 0, 0, err
	}
	if done && completed != int64(events) {
		return 0, 0, fmt.Errorf("%d of %d jobs are completed", completed, events)
	}
	stopCtx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return int(completed), took, client.StopAndCancel(stopCtx)
}
