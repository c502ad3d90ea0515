package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// mainLoad is how many goroutines run transactions where one figure must do.
const mainLoad = 8

// The loads with the database near and farther away.
var (
	nearLoads = []int{1, mainLoad, 32}
	farLoads  = []int{mainLoad}
)

// farDelay is what the longer way to the database adds in each direction.
const farDelay = 500 * time.Microsecond

// Rows of each client, after its name.
const (
	rowAlone     = " alone"
	rowSecond    = " + second row"
	rowUnordered = " + event"
	rowOrdered   = " + ordered event"
	viaPGXOutbox = ", pgxoutbox"
)

// Aims for the ratio to the second model row, near and far.
var (
	nearAims = map[string]float64{
		rowUnordered: 0.92, rowOrdered: 0.78, rowUnordered + viaPGXOutbox: 1.05, rowOrdered + viaPGXOutbox: 0.88,
	}
	farAims = map[string]float64{
		rowUnordered: 0.92, rowOrdered: 0.9, rowUnordered + viaPGXOutbox: 1.6, rowOrdered + viaPGXOutbox: 1.45,
	}
)

// orms are measured side by side. Bun writes values into the text of its statements, and its
// documentation asks for a driver that does not prepare each of them.
var orms = []struct {
	name   string
	simple bool
	open   func(db *sql.DB, cfg *outboxConfig) (ormClient, error)
}{
	{name: "GORM", open: openGORM},
	{name: "Ent", open: openEnt},
	{name: "Bun", open: openBun, simple: true},
}

// producer runs a transaction, which stores a row in each of its tables.
type producer struct {
	name   string
	tables []string
	tx     func(ctx context.Context) error
}

// runProduce shows what an event costs its transaction: with the database on this machine, and with
// one that is farther away. No relay runs, as nobody relays the second model row.
func runProduce(ctx context.Context, e *env) (err error) {
	near := e.table("database near", columnsOf(nearLoads, "CPU µs/tx, 8")...)
	if err := e.produceAt(ctx, near, "near_", e.config, nearLoads, nil); err != nil {
		return err
	}
	network, address := pgconn.NetworkAddress(e.config.Host, e.config.Port)
	proxy, err := newDelayProxy(network, address, farDelay)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, proxy.close()) }()
	cfg := e.config.Copy()
	cfg.Host, cfg.Port, cfg.Fallbacks = "127.0.0.1", proxy.port(), nil
	far := e.table(fmt.Sprintf("%s farther away, each way", farDelay), columnsOf(farLoads, "÷ alone", "round trips")...)
	if err := e.produceAt(ctx, far, "far_", cfg, farLoads, proxy); err != nil {
		return err
	}
	far.divide("÷ alone", rateAt(mainLoad), func(row string) string { return clientOf(row) + rowAlone })
	for _, t := range []*Table{near, far} {
		aims := nearAims
		if t == far {
			aims = farAims
		}
		for _, o := range orms {
			for row, want := range aims {
				t.aim(o.name+row, want)
			}
		}
	}
	return nil
}

func rateAt(c int) string  { return fmt.Sprintf("tx/s, %d at once", c) }
func ratioAt(c int) string { return fmt.Sprintf("÷ second row, %d", c) }

// columnsOf has the ratio of each load, and the rate of the one that all tables have.
func columnsOf(loads []int, more ...string) []string {
	all := []string{rateAt(mainLoad)}
	for _, c := range loads {
		all = append(all, ratioAt(c))
	}
	return append(append(all, "aim"), more...)
}

// clientOf returns the client in the name of a row.
func clientOf(row string) string {
	name, _, _ := strings.Cut(row, " ")
	return name
}

// produceAt measures all clients with each load. proxy counts the round trips; nil: nobody does.
func (e *env) produceAt(ctx context.Context, t *Table, prefix string, cfg *pgx.ConnConfig, loads []int,
	proxy *delayProxy,
) error {
	producers, closeAll, err := e.producers(ctx, prefix, cfg)
	defer closeAll()
	if err != nil {
		return err
	}
	for _, c := range loads {
		if err := e.exec(ctx, "TRUNCATE bench_order, bench_outbox"); err != nil {
			return err
		}
		e.checkpoint(ctx)
		var all []competitor
		for _, p := range producers {
			all = append(all, competitor{p.name, func(ctx context.Context) (figures, error) {
				return e.produceOnce(ctx, p, c, proxy)
			}})
		}
		if err := e.compete(ctx, t, all); err != nil {
			return err
		}
		t.divide(ratioAt(c), rateAt(c), func(row string) string { return clientOf(row) + rowSecond })
	}
	return nil
}

// produceOnce measures one producer, and checks that its rows are there.
func (e *env) produceOnce(ctx context.Context, p producer, c int, proxy *delayProxy) (figures, error) {
	stored := func() (n int64, err error) {
		for _, table := range p.tables {
			some, err := e.count(ctx, "SELECT count(*) FROM "+table)
			if err != nil {
				return 0, err
			}
			n += some
		}
		return n, nil
	}
	before, err := stored()
	if err != nil {
		return nil, err
	}
	var done, trips, warm atomic.Int64
	l, err := e.produce(ctx, c, e.opts.duration, func(ctx context.Context) error {
		err := p.tx(ctx)
		if err == nil {
			done.Add(1)
		}
		return err
	}, func() {
		if warm.Store(done.Load()); proxy != nil {
			trips.Store(proxy.roundTrips())
		}
	})
	if err != nil {
		return nil, err
	}
	f := figures{rateAt(c): l.rate()}
	if proxy != nil {
		f["round trips"] = float64(proxy.roundTrips()-trips.Load()) / float64(done.Load()-warm.Load())
	}
	if c == mainLoad {
		f["p99 µs, 8"] = percentile(l.latencies, 99)
		used := figures{}
		if err := e.since(ctx, used, l.from, "tx", float64(len(l.latencies))); err != nil {
			return nil, err
		}
		for name, v := range used {
			f[name+", 8"] = v
		}
	}
	after, err := stored()
	if want := done.Load() * int64(len(p.tables)); err == nil && after-before != want {
		err = fmt.Errorf("%d rows are in %v, %d were committed", after-before, p.tables, want)
	}
	return f, err
}

// producers opens all clients with their tables. The caller calls closeAll, also after an error.
func (e *env) producers(ctx context.Context, prefix string, cfg *pgx.ConnConfig,
) (all []producer, closeAll func(), err error) {
	pools := map[poolKind]*sql.DB{}
	var closers []func()
	closeAll = func() {
		for _, c := range closers {
			c()
		}
	}
	var native [2]*pgxpool.Pool // without and with an outbox
	for i := range native {
		if native[i], err = openPGX(ctx, cfg, i == 1); err != nil {
			return nil, closeAll, err
		}
		closers = append(closers, native[i].Close)
	}
	type way struct {
		name, via string
		open      opener
	}
	var ways []way
	for _, o := range orms {
		for _, via := range []string{"", viaPGXOutbox} {
			kind := poolKind{o.simple, via != ""}
			if pools[kind] == nil {
				pools[kind] = kind.open(cfg)
				closers = append(closers, func() { _ = pools[kind].Close() })
			}
			ways = append(ways, way{o.name, via, func(_ context.Context, c *outboxConfig) (ormClient, error) {
				return o.open(pools[kind], c)
			}})
		}
	}
	ways = append(ways, way{name: "pgx", open: func(ctx context.Context, c *outboxConfig) (ormClient, error) {
		if c == nil {
			return openNative(ctx, native[0], nil)
		}
		return openNative(ctx, native[1], c)
	}})
	for _, w := range ways {
		if !slices.ContainsFunc([]string{rowAlone, rowSecond, rowUnordered, rowOrdered},
			func(row string) bool { return e.opts.only.MatchString(w.name + row + w.via) }) {
			continue // its keys take a while
		}
		plain, err := w.open(ctx, nil)
		if err != nil {
			return nil, closeAll, err
		}
		table := prefix + strings.ToLower(w.name)
		if w.via != "" {
			table += "_via"
		}
		sess, err := e.openSession(ctx, w.open, table+"_", false)
		if err != nil {
			return nil, closeAll, fmt.Errorf("%s%s: %w", w.name, w.via, err)
		}
		if w.via == "" {
			all = append(all,
				producer{w.name + rowAlone, []string{"bench_order"}, plain.Alone},
				producer{w.name + rowSecond, []string{"bench_order", "bench_outbox"}, func(ctx context.Context) error {
					return plain.SecondRow(ctx, newSecondRow(e.randomKey(), newPayload(0)))
				}})
		}
		for _, row := range []string{rowUnordered, rowOrdered} {
			all = append(all, producer{
				w.name + row + w.via,
				[]string{"bench_order", sess.table},
				func(ctx context.Context) error {
					return sess.Publish(ctx, sess.event(e.randomKey(), row == rowOrdered))
				},
			})
		}
	}
	return all, closeAll, nil
}
