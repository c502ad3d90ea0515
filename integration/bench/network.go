package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// networkDelay is the delay that the network adds in each direction.
const networkDelay = 500 * time.Microsecond

// networkLoads has the numbers of goroutines that run transactions over the network.
var networkLoads = []int{1, 8}

// networkRows has the rows of section producer that this section measures.
var networkRows = []string{rowAlone, rowSecond, rowUnordered, rowOrdered}

var networkColumns = []Column{
	{"tx/s", Count},
	{"÷ second row", Ratio},
	{"÷ alone", Ratio},
	{"round trips", Ratio},
	{"p50 µs", Count},
	{"p99 µs", Count},
	{"WAL B/tx", Count},
}

// poolKind is a way to connect database/sql with PostgreSQL.
type poolKind struct {
	suffix string // ends the names of rows
	prefix string // begins the names of tables
	open   func(cfg pgx.ConnConfig) *sql.DB
}

const viaPGXOutbox = ", through pgxoutbox"

// poolKinds are measured beside each other, with every ORM.
var poolKinds = []poolKind{
	{"", "net_", func(cfg pgx.ConnConfig) *sql.DB {
		if cfg.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol { // as openSimple does
			return sql.OpenDB(sqltx.Connector(stdlib.GetConnector(cfg), core.Postgres))
		}
		return stdlib.OpenDB(cfg)
	}},
	{
		viaPGXOutbox, "netx_",
		func(cfg pgx.ConnConfig) *sql.DB { return sql.OpenDB(pgxoutbox.Connector(pgxoutbox.Config{Conn: cfg})) },
	},
}

func runNetwork(ctx context.Context, e *env, s *Section) (err error) {
	s.note("The transactions of section producer, without a relay, against a database that is farther away: a proxy "+
		"in this program delivers every byte %s later, in both directions. Nothing else is slower. Each pair of a "+
		"question and its answer then costs %s more.", networkDelay, 2*networkDelay)
	s.note("Round trips are counted in the proxy, per transaction. Through pgxoutbox, BEGIN goes together with the " +
		"first statement of its transaction.")

	cfg, err := pgx.ParseConfig(e.dsn)
	if err != nil {
		return err
	}
	if e.distant, err = e.openDistance(cfg); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, e.distant.close())
		e.distant = nil
	}()

	clients := append(slices.Clone(orms), databaseSQL)
	var producers []producer
	for _, kind := range poolKinds {
		for _, o := range clients {
			wanted := func(row string) bool {
				return slices.Contains(networkRows, row) && e.opts.selects(o.name+" "+row+kind.suffix)
			}
			if !slices.ContainsFunc(networkRows, wanted) {
				continue
			}
			distant := cfg.Copy()
			if o.simpleProtocol {
				distant.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
			}
			db := kind.open(*distant)
			db.SetMaxOpenConns(slices.Max(networkLoads))
			db.SetMaxIdleConns(slices.Max(networkLoads))
			defer db.Close()
			some, _, err := e.producersOf(ctx, o, db, kind, wanted) // sessions without a relay need no close
			if err != nil {
				return fmt.Errorf("%s%s: %w", o.name, kind.suffix, err)
			}
			producers = append(producers, some...)
		}
	}
	for _, c := range networkLoads {
		if err := e.exec(ctx, "TRUNCATE bench_order, bench_outbox"); err != nil {
			return err
		}
		e.checkpoint(ctx)
		tables, err := e.measureProducers(ctx, s, producers, c, networkColumns)
		if err != nil {
			return err
		}
		for _, o := range clients {
			t := tables[o.name]
			if t == nil {
				continue
			}
			t.divide("÷ alone", "tx/s", func(*Row) *Row { return t.find(o.name + " " + rowAlone) })
			t.summarize()
			s.producerAims(t, o.name, c, "÷ second row", "the second model row", map[string]float64{
				rowUnordered: 0.92, rowOrdered: 0.9, rowUnordered + viaPGXOutbox: 1.6, rowOrdered + viaPGXOutbox: 1.45,
			})
			s.producerAims(t, o.name, c, "÷ alone", "the same transaction without an event", map[string]float64{
				rowUnordered + viaPGXOutbox: 1.25, rowOrdered + viaPGXOutbox: 1.05,
			})
		}
	}
	return nil
}

// openDistance puts a proxy in front of the server, and makes cfg use it.
func (e *env) openDistance(cfg *pgx.ConnConfig) (*delayProxy, error) {
	network, address := pgconn.NetworkAddress(cfg.Host, cfg.Port)
	p, err := newDelayProxy(network, address, networkDelay)
	if err != nil {
		return nil, err
	}
	cfg.Host, cfg.Port, cfg.Fallbacks = "127.0.0.1", uint16(p.port()), nil
	return p, nil
}
