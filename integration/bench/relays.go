package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// relayCounts has the numbers of relays that share a table.
var relayCounts = []int{1, 2, 4}

// Figures of the tables with a publisher that takes time.
const (
	crewPause   = 5 * time.Millisecond
	crewEvents  = 20_000 // events of a drain at most
	crewWorkers = 128    // four times the default
)

// crewMore ends the name of the row of one relay with more workers.
var crewMore = fmt.Sprintf(", %d workers", crewWorkers)

var relaysColumns = []Column{
	{"events/s", Count},
	{"÷ one", Ratio},
	{"CPU µs/event", Count},
	{"WAL B/event", Count},
	{"at work at once", Ratio},
	{"least share", Percent},
	{"finished", Percent},
}

func runRelays(ctx context.Context, e *env, s *Section) error {
	s.note("The drain of section drain by several relays on one table, each with a node and a pool of its own, in " +
		"this process. Hand-written loops share the table as well, unordered: they skip what another one has " +
		"locked. No event may come twice, or before an earlier one of its key.")
	s.note("At work at once is the mean number of relays that published within the same %s, while any of them did. "+
		"Least share is what the relay with the fewest events published, in percent of an equal share.", crewSlice)
	s.note("The first two tables have a publisher that does nothing, so that the database and the processors are "+
		"the limit. In the last two, of %s events, each publish takes %s, as with a broker that is not near: there "+
		"the workers are the limit, and one relay with %d workers stands beside several with the default of 32.",
		thousands(float64(min(crewEvents, e.opts.Events))), crewPause, crewWorkers)
	pool, err := e.openPGX(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	for _, pause := range []time.Duration{0, crewPause} {
		for _, ordered := range []bool{false, true} {
			if err := e.measureRelayCounts(ctx, s, pool, pause, ordered); err != nil {
				return err
			}
		}
	}
	return nil
}

// measureRelayCounts measures relays whose publisher takes the time pause.
func (e *env) measureRelayCounts(ctx context.Context, s *Section, pool *pgxpool.Pool, pause time.Duration,
	ordered bool,
) (err error) {
	title, events := "Unordered events", e.opts.Events
	if ordered {
		title = "Ordered events"
	}
	if pause > 0 {
		title, events = fmt.Sprintf("%s, %s to publish", title, pause), min(crewEvents, events)
	}
	b, err := newOutboxBacklogOf(ctx, e, fmt.Sprintf("relays_%t_%d_", ordered, pause.Milliseconds()), ordered, events)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.drop(ctx)) }()
	crews, err := e.openCrews(ctx, b, pause)
	defer func() {
		for _, c := range crews {
			err = errors.Join(err, c.close())
		}
	}()
	if err != nil {
		return err
	}
	if !ordered && pause == 0 {
		for _, n := range relayCounts {
			h := &handRelay{pool: pool, table: b.prefix + "event"}
			crews = append(crews, &crew{backlog: b, name: fmt.Sprintf("%d × %s", n, handName), hands: h, n: n})
		}
	}
	return e.measureCrews(ctx, s, title, b, crews, ordered)
}

func (e *env) measureCrews(ctx context.Context, s *Section, title string, b *outboxBacklog, crews []*crew,
	ordered bool,
) error {
	t := &Table{Title: title, Columns: relaysColumns}
	var chosen []*crew
	for _, c := range crews {
		if e.opts.selects(c.name) {
			chosen = append(chosen, c)
			t.row(c.name, e.opts.Rounds)
		}
	}
	if len(chosen) == 0 {
		return nil
	}
	s.Tables = append(s.Tables, t)
	err := interleave(e.opts.Rounds, len(chosen), func(round, i int) error {
		c, row := chosen[i], t.Rows[i]
		e.progress.show("relays, round %d of %d: %s: %s", round+1, e.opts.Rounds, title, c.name)
		r := relay{name: c.name, seed: b.seed, drain: c.drain, check: b.check, events: b.events, ordered: ordered}
		d, err := e.timeDrain(ctx, r, b.events)
		if err != nil {
			return err
		}
		t.set(row, round, "events/s", d.rate())
		t.setUsage(row, round, "event", d.from, d.to, float64(d.finished))
		t.set(row, round, "finished", 100*float64(d.finished)/float64(b.events))
		t.set(row, round, "at work at once", c.atOnce())
		t.set(row, round, "least share", c.leastShare())
		return nil
	})
	if err != nil {
		return err
	}
	t.divide("÷ one", "events/s", func(r *Row) *Row {
		_, who, _ := strings.Cut(r.Name, " × ")
		who = strings.TrimSuffix(who, crewMore)
		return t.find("1 × " + who)
	})
	t.summarize()
	two := t.value(fmt.Sprintf("%d × %s", 2, oursName), "÷ one")
	if crews[0].pause == 0 {
		s.atLeast(two, 1, "%s: two relays at least as fast as one", title)
	} else {
		s.atLeast(two, 1.8, "%s: two relays at least 1.80 × as fast as one", title)
	}
	return nil
}

// crew is a number of relays, or of hand-written loops, on one table.
type crew struct {
	backlog *outboxBacklog
	name    string
	n       int
	workers int           // of each relay; 0: default
	pause   time.Duration // how long each publish takes
	pools   []*sql.DB
	repos   []*sqloutbox.Repository
	hands   *handRelay // the hand-written loop; nil for relays
	work    []*crewWork
}

// crewSlice is the unit of time in which the work of each relay is recorded.
const crewSlice = 10 * time.Millisecond

// crewWork is the work of one relay.
type crewWork struct {
	events atomic.Int64
	busy   [1 << 14]atomic.Bool // whether it published, by slice of the drain
}

func (w *crewWork) note(since time.Duration) {
	w.events.Add(1)
	w.busy[min(int(since/crewSlice), len(w.busy)-1)].Store(true)
}

// openCrews opens relays. With an error, it returns the relays that have to be closed.
func (e *env) openCrews(ctx context.Context, b *outboxBacklog, pause time.Duration) (all []*crew, err error) {
	var crews []*crew
	for _, n := range relayCounts {
		crews = append(crews, &crew{name: fmt.Sprintf("%d × %s", n, oursName), n: n})
	}
	if pause > 0 {
		crews = append(crews, &crew{name: "1 × " + oursName + crewMore, n: 1, workers: crewWorkers})
	}
	for _, c := range crews {
		c.backlog, c.pause = b, pause
		all = append(all, c)
		for range c.n {
			db, err := sql.Open("pgx", e.dsn)
			if err != nil {
				return all, err
			}
			c.pools = append(c.pools, db)
			const connections = 5 // all pools of the section fit into the stock max_connections
			db.SetMaxOpenConns(connections)
			db.SetMaxIdleConns(connections)
			if err := db.PingContext(ctx); err != nil {
				return all, err
			}
			repo, err := sqloutbox.New(db, sqloutbox.Config{Dialect: core.Postgres, Prefix: b.prefix})
			if err != nil {
				return all, err
			}
			c.repos = append(c.repos, repo)
		}
	}
	return all, nil
}

func (c *crew) close() (err error) {
	for _, db := range c.pools {
		err = errors.Join(err, db.Close())
	}
	return err
}

// atOnce returns the mean number of relays that worked in a slice, over the slices with any work.
func (c *crew) atOnce() float64 {
	slices, workers := 0, 0
	for i := range c.work[0].busy {
		n := 0
		for _, w := range c.work {
			if w.busy[i].Load() {
				n++
			}
		}
		if n > 0 {
			slices++
			workers += n
		}
	}
	return float64(workers) / float64(max(1, slices))
}

// leastShare returns the share of the relay with the fewest events, in percent of an equal share.
func (c *crew) leastShare() float64 {
	var total, least int64
	for i, w := range c.work {
		n := w.events.Load()
		total += n
		if i == 0 || n < least {
			least = n
		}
	}
	return 100 * float64(least) * float64(c.n) / float64(max(1, total))
}

func (c *crew) drain(ctx context.Context, l *ledger,
	limit time.Duration,
) (finished int, took time.Duration, err error) {
	c.work = make([]*crewWork, c.n)
	for i := range c.work {
		c.work[i] = &crewWork{}
	}
	if c.hands != nil {
		return c.drainByHand(ctx, l, limit)
	}
	var marked atomic.Int64
	done := make(chan struct{})
	start := time.Now()
	outboxes := make([]*core.Outbox, c.n)
	for i := range outboxes {
		if outboxes[i], err = core.New(core.Config{
			Repository: c.repos[i], Node: fmt.Sprintf("relay-%d", i), Workers: c.workers,
			Publisher: core.PublisherFunc(func(ctx context.Context, d core.Delivery) error {
				l.see(payloadNumber(d.Payload))
				c.work[i].note(time.Since(start))
				if c.pause == 0 {
					return nil
				}
				select {
				case <-time.After(c.pause):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}),
			Observer: &core.Observer{Marked: func(rows int, _ time.Duration, err error) {
				if err == nil && marked.Add(int64(rows)) == int64(c.backlog.events) {
					close(done)
				}
			}},
		}); err != nil {
			return 0, 0, err
		}
	}
	runCtx, stop := context.WithCancel(ctx)
	defer stop()
	g, runCtx := errgroup.WithContext(runCtx)
	for _, ob := range outboxes {
		g.Go(func() error { return ob.Run(runCtx) })
	}
	select {
	case <-done:
	case <-time.After(limit):
	case <-runCtx.Done():
		return 0, 0, errors.Join(errors.New("a relay ended"), g.Wait())
	}
	took, finished = time.Since(start), int(marked.Load())
	stop()
	return finished, took, g.Wait()
}

// drainByHand runs hand-written loops until none finds anything.
func (c *crew) drainByHand(ctx context.Context, l *ledger,
	limit time.Duration,
) (finished int, took time.Duration, err error) {
	var all atomic.Int64
	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for i := range c.n {
		loop := *c.hands
		loop.noted = func() { c.work[i].note(time.Since(start)) }
		g.Go(func() error {
			n, _, err := loop.drain(ctx, l, limit)
			all.Add(int64(n))
			return err
		})
	}
	err = g.Wait()
	return int(all.Load()), time.Since(start), err
}
