package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

const (
	tortureLoad   = 32               // producers: enough for the rate where a transaction takes 40 ms
	tortureBatch  = 500              // rows of a claim, for all competitors that have the setting
	torturePause  = handPause        // between two looks, likewise
	reportsAtOnce = 3                // they begin one after the other
	reportTime    = 2 * time.Minute  // of each report
	claimWindow   = 10 * time.Second // of which a sample has the percentile
)

// tortured is a competitor in tables of its own. Its claims are in the timer of the run.
type tortured struct {
	tables []string // those whose dead rows are counted
	begin  func(ctx context.Context) (pgx.Tx, error)
	// insert inserts event n in the transaction of an order.
	insert func(ctx context.Context, tx pgx.Tx, n int) error
	// relay publishes until ctx ends.
	relay func(ctx context.Context) error
	open  string // the query that counts the events that are not finished
}

// tortureRun is the run of one competitor.
type tortureRun struct {
	*tortured

	e        *env
	name     string
	ledger   *ledger
	timer    *claimTimer
	start    time.Time
	free     time.Duration // without reports, at the begin and at the end
	whole    time.Duration
	next     atomic.Int64 // number of the next event
	written  atomic.Int64
	samples  []tortureSample
	lastTold time.Duration
}

// tortureSample is what was known at one second of a run.
type tortureSample struct {
	competitor         string
	at                 time.Duration
	reports            bool
	written, published int64
	claims             int     // of the last claimWindow
	claimP99           float64 // of these, in milliseconds
	dead               int64   // rows that VACUUM has not removed
	updates, hot       int64   // since the begin
}

func (s tortureSample) backlog() int64 { return max(0, s.written-s.published) }

// runTorture shows what becomes of relays while reports hold old snapshots. PostgreSQL removes no
// row and no index entry that a report might still see. The competitors take turns on one server,
// because one that breaks down would take the CPU of the others. Each has the same producers, and
// a fifteenth of the reports' time without reports before and after them.
func runTorture(ctx context.Context, e *env) error {
	e.section.How = fmt.Sprintf("%d events a second, reports for %.3g minutes.", e.opts.rate, e.opts.torture.Minutes())
	t := e.table("beside long reports", "events/s", "backlog, most", "backlog at end", "claim p99 ms, no reports",
		"claim p99 ms, reports", "dead rows, most", "HOT", "CPU µs/event")
	var all []tortureSample
	for _, c := range torturedOnes {
		if !e.opts.only.MatchString(c.name) {
			continue
		}
		run := &tortureRun{e: e, name: c.name, ledger: &ledger{}, timer: &claimTimer{}}
		f, err := run.whileOpen(ctx, c.open)
		all = append(all, run.samples...)
		if err := errors.Join(err, writeSamples(e.opts.samples, all)); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		t.Rows = append(t.Rows, &Row{Name: c.name, Rounds: []figures{f}})
		t.summarize()
	}
	return drawTorture(e.opts.picture, all)
}

// tortureOpener makes the tables of a competitor.
type tortureOpener func(ctx context.Context, run *tortureRun, pools torturePools) (*tortured, error)

// whileOpen runs the competitor in new tables.
func (run *tortureRun) whileOpen(ctx context.Context, open tortureOpener) (f figures, err error) {
	var pools torturePools
	if pools.producers, err = openPGX(ctx, run.e.config, false); err != nil {
		return nil, err
	}
	defer pools.producers.Close()
	traced := run.e.config.Copy()
	traced.Tracer = run.timer
	if pools.relay, err = openPGX(ctx, traced, false); err != nil {
		return nil, err
	}
	defer pools.relay.Close()
	if run.tortured, err = open(ctx, run, pools); err != nil {
		return nil, err
	}
	empty := "TRUNCATE bench_order, " + strings.Join(run.tables, ", ")
	if err := run.e.exec(ctx, empty); err != nil {
		return nil, err
	}
	run.e.checkpoint(ctx)
	g, runCtx := errgroup.WithContext(ctx)
	relayCtx, stop := context.WithCancel(runCtx)
	defer stop()
	g.Go(func() error {
		err := run.relay(relayCtx)
		if relayCtx.Err() == nil {
			err = errors.Join(errors.New("the relay ended"), err)
		}
		return err
	})
	g.Go(func() error {
		defer stop()
		f, err = run.measure(runCtx)
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	// VACUUM would otherwise go on with these tables beside the next competitor.
	return f, run.e.exec(ctx, empty)
}

// torturePools are two pools, because producers and relay are two programs.
type torturePools struct{ producers, relay *pgxpool.Pool }

// measure has producers and reports, and checks that every event was published once. If the relay
// is far behind at the end, it only checks what came.
func (run *tortureRun) measure(ctx context.Context) (figures, error) {
	from, err := run.e.usage(ctx)
	if err != nil {
		return nil, err
	}
	run.free = run.e.opts.torture / 15
	run.whole = run.e.opts.torture + 2*run.free
	run.start = time.Now()
	g, runCtx := errgroup.WithContext(ctx)
	g.Go(func() error { return run.sampleEachSecond(runCtx) })
	for i := range tortureLoad {
		g.Go(func() error { return run.produce(runCtx, i) })
	}
	for i := range reportsAtOnce {
		g.Go(func() error { return run.report(runCtx, run.free+time.Duration(i)*reportTime/reportsAtOnce) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	f := run.figures()
	if err := run.e.since(ctx, f, from, "event", float64(run.ledger.published.Load())); err != nil {
		return nil, err
	}
	written := run.written.Load()
	done, err := await(ctx, max(10*time.Second, run.free), 10*time.Millisecond, func() (bool, error) {
		if run.ledger.published.Load() < written {
			return false, nil
		}
		n, err := run.e.count(ctx, run.open)
		return n == 0, err
	})
	if err != nil {
		return nil, err
	}
	if done {
		return f, run.ledger.check(int(written))
	}
	f["left"] = float64(written - run.ledger.published.Load())
	return f, run.ledger.checkPart(int(written))
}

// figures are the columns of the table.
func (run *tortureRun) figures() figures {
	last := run.samples[len(run.samples)-1]
	beside := run.timer.between(run.start.Add(run.free), run.start.Add(run.whole-run.free))
	f := figures{
		"events/s":                 float64(last.written) / last.at.Seconds(),
		"backlog at end":           float64(last.backlog()),
		"claim p99 ms, no reports": percentile(run.timer.between(run.start, run.start.Add(run.free)), 99) / 1000,
		"claim p99 ms, reports":    percentile(beside, 99) / 1000,
		"HOT":                      100 * float64(last.hot) / float64(max(1, last.updates)),
	}
	for _, s := range run.samples {
		f["backlog, most"] = max(f["backlog, most"], float64(s.backlog()))
		f["dead rows, most"] = max(f["dead rows, most"], float64(s.dead))
	}
	return f
}

// produce commits an order with its event whenever one is due for producer i. After a transaction
// that took long, the next ones come sooner.
func (run *tortureRun) produce(ctx context.Context, i int) error {
	for k := i; ; k += tortureLoad {
		due := time.Duration(k) * time.Second / time.Duration(run.e.opts.rate)
		if max(due, time.Since(run.start)) >= run.whole {
			return nil
		}
		if err := run.sleepUntil(ctx, due); err != nil {
			return err
		}
		tx, err := run.begin(ctx)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO bench_order (customer, amount, created_at) VALUES ($1, $2, $3)", "ada", 4200,
			time.Now())
		if err == nil {
			err = run.insert(ctx, tx, int(run.next.Add(1)-1))
		}
		if err == nil {
			err = tx.Commit(ctx)
		}
		if err != nil {
			return errors.Join(err, tx.Rollback(context.WithoutCancel(ctx)))
		}
		run.written.Add(1)
	}
}

// report has one report after the other. It reads little, because this is about its snapshot and
// not about the work of a report.
func (run *tortureRun) report(ctx context.Context, from time.Duration) error {
	const read = "SELECT count(*) FROM (SELECT FROM bench_order LIMIT 1000) first"
	for end := run.whole - run.free; from < end; from += reportTime {
		if err := run.sleepUntil(ctx, from); err != nil {
			return err
		}
		tx, err := run.e.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, read)
		if err == nil {
			err = run.sleepUntil(ctx, min(from+reportTime, end))
		}
		if err := errors.Join(err, tx.Rollback()); err != nil {
			return err
		}
	}
	return nil
}

func (run *tortureRun) sleepUntil(ctx context.Context, at time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(at - time.Since(run.start)):
		return nil
	}
}

// sampleEachSecond samples until the end, and then once more.
func (run *tortureRun) sampleEachSecond(ctx context.Context) error {
	for at := time.Second; ; at += time.Second {
		if err := run.sleepUntil(ctx, min(at, run.whole)); err != nil {
			return err
		}
		now := time.Now()
		s := tortureSample{
			competitor: run.name, at: now.Sub(run.start), published: run.ledger.published.Load(),
			written: run.written.Load(),
		}
		s.reports = s.at >= run.free && s.at < run.whole-run.free
		claims := run.timer.between(now.Add(-claimWindow), now)
		s.claims, s.claimP99 = len(claims), percentile(claims, 99)/1000
		if err := run.e.db.QueryRowContext(ctx, "SELECT COALESCE(sum(n_dead_tup), 0), COALESCE(sum(n_tup_upd), 0), "+
			"COALESCE(sum(n_tup_hot_upd), 0) FROM pg_stat_user_tables WHERE relname = ANY ($1)", run.tables).
			Scan(&s.dead, &s.updates, &s.hot); err != nil {
			return err
		}
		run.samples = append(run.samples, s)
		if at >= run.whole || s.at-run.lastTold >= claimWindow {
			run.lastTold = s.at
			fmt.Fprintf(run.e.progress, "torture, %s: %.0f of %.0f s, backlog %d, claim p99 %.1f ms, %d dead rows\n",
				run.name, s.at.Seconds(), run.whole.Seconds(), s.backlog(), s.claimP99, s.dead)
		}
		if at >= run.whole {
			return nil
		}
	}
}

// claimTimer is a tracer of pgx that measures claims: from the statement to its last row.
type claimTimer struct {
	is  func(sql string) bool
	mu  sync.Mutex
	all []claimTime
}

type claimTime struct {
	ended time.Time
	took  time.Duration
}

type claimBegun struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (c *claimTimer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if c.is == nil || !c.is(d.SQL) {
		return ctx
	}
	return context.WithValue(ctx, claimBegun{}, time.Now())
}

// TraceQueryEnd implements pgx.QueryTracer.
func (c *claimTimer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if begun, ok := ctx.Value(claimBegun{}).(time.Time); ok {
		c.add(time.Since(begun))
	}
}

func (c *claimTimer) add(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, claimTime{time.Now(), took})
}

// between returns the durations of the claims that ended in that time.
func (c *claimTimer) between(from, to time.Time) (took []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.all) - 1; i >= 0 && !c.all[i].ended.Before(from); i-- {
		if c.all[i].ended.Before(to) {
			took = append(took, c.all[i].took)
		}
	}
	return took
}
