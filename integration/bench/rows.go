package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// rowsBatch is how many rows a statement on many has.
const rowsBatch = 100

// What the outbox does for the rows of a client.
const (
	rowsPlain    = iota // there is none
	rowsUntold          // no function is for the type
	rowsNamed           // a function returns no events
	rowsPublish         // a function returns an event for each row
	rowsVariants        // number of variants
)

// rowsBefore are the suffixes of the figures of the variants between the first and the last.
var rowsBefore = []string{" untold", " named"}

// rowsClient runs statements on the table bench_row. Codes are unique.
type rowsClient struct {
	create func(ctx context.Context, codes []int64) error
	upsert func(ctx context.Context, codes []int64) error // by code; nil: not measured
	// The update by key is of one row, the one by condition of codes from one to another.
	updateKey func(ctx context.Context, id, amount int64) error
	update    func(ctx context.Context, from, to, amount int64) error
	remove    func(ctx context.Context, id int64) error
}

// rowsORM opens clients. tx tells whether each statement runs in a transaction of the program.
type rowsORM struct {
	name   string
	ways   []string // how statements run: the suffixes of the names of rows
	upsert bool
	simple bool // see orms
	open   func(db *rowsDatabase, pool *sql.DB, cfg *rowsConfig, tx bool) (rowsClient, error)
}

// rowsConfig is the outbox of a client; nil: none.
type rowsConfig struct {
	on func(row any) []core.Event // nil: there is no function for the type
}

// rowsPrefix is that of the tables of all outboxes of a database.
const rowsPrefix = "rows_"

var rowsORMs = []rowsORM{
	{name: "GORM", ways: []string{""}, upsert: true, open: openRowsGORM},
	{name: "Bun", ways: rowsWays, simple: true, open: openRowsBun},
	{name: "Ent", ways: rowsWays, open: openRowsEnt},
}

// rowsWays are with the own transaction of each statement, and in one of the program.
var rowsWays = []string{", autocommit", ", transaction"}

// rowsDatabase is a database with the table bench_row.
type rowsDatabase struct {
	name    string
	dialect core.Dialect
	driver  string
	dsn     string
	simple  string // the same for rowsORM.simple
	db      *sql.DB
	next    int64 // code
	events  int64 // that must have been stored
}

// runRows shows what it costs that events follow from stored rows: how long a statement takes,
// divided by the time of the same statement without an outbox.
func runRows(ctx context.Context, e *env) (err error) {
	all, closeAll, err := e.rowsDatabases(ctx)
	defer func() { err = errors.Join(err, closeAll()) }()
	if err != nil {
		return err
	}
	for _, o := range rowsORMs {
		t := e.table(o.name, rowsColumns(o)...)
		t.Before = rowsBefore
		var some []competitor
		for _, db := range all {
			for i, way := range o.ways {
				clients, closeClients, err := db.clients(o, i > 0)
				defer closeClients()
				if err != nil {
					return fmt.Errorf("%s, %s%s: %w", o.name, db.name, way, err)
				}
				some = append(some, competitor{db.name + way, func(ctx context.Context) (figures, error) {
					return e.rowsRound(ctx, db, clients)
				}})
			}
		}
		if err := e.compete(ctx, t, some); err != nil {
			return err
		}
	}
	for _, db := range all {
		if n, err := countOf(ctx, db.db, "SELECT count(*) FROM "+rowsPrefix+"event"); err != nil || n != db.events {
			return errors.Join(err, fmt.Errorf("%s: %d events are stored for %d rows", db.name, n, db.events))
		}
	}
	return nil
}

// rowsStatement is one column.
type rowsStatement struct {
	name string
	rows int64
	uses int64 // rows that are gone afterwards
	run  func(ctx context.Context, c rowsClient, first, fresh int64) error
}

// rowsStatements get the first code of rows that are there, and a new code.
var rowsStatements = []rowsStatement{
	{"create 1", 1, 0, func(ctx context.Context, c rowsClient, _, n int64) error {
		return c.create(ctx, codes(n, 1))
	}},
	{"update 1 by key", 1, 0, func(ctx context.Context, c rowsClient, first, n int64) error {
		return c.updateKey(ctx, rowID(first), n)
	}},
	{"by condition", 1, 0, func(ctx context.Context, c rowsClient, first, n int64) error {
		return c.update(ctx, first, first, n)
	}},
	{"delete 1", 1, 1, func(ctx context.Context, c rowsClient, first, _ int64) error {
		return c.remove(ctx, rowID(first))
	}},
	{"create 100", rowsBatch, 0, func(ctx context.Context, c rowsClient, _, n int64) error {
		return c.create(ctx, codes(n, rowsBatch))
	}},
	{"update 100", rowsBatch, 0, func(ctx context.Context, c rowsClient, first, n int64) error {
		return c.update(ctx, first, first+rowsBatch-1, n)
	}},
	{"upsert 1", 1, 0, func(ctx context.Context, c rowsClient, first, _ int64) error {
		return c.upsert(ctx, codes(first, 1))
	}},
	{"upsert 100", rowsBatch, 0, func(ctx context.Context, c rowsClient, first, _ int64) error {
		return c.upsert(ctx, codes(first, rowsBatch))
	}},
}

func (o rowsORM) measures(s rowsStatement) bool {
	return o.upsert || !strings.HasPrefix(s.name, "upsert")
}

func rowsColumns(o rowsORM) (all []string) {
	for _, s := range rowsStatements {
		if o.measures(s) {
			all = append(all, s.name)
		}
	}
	return all
}

// codes are n codes from first on.
func codes(first, n int64) []int64 {
	all := make([]int64, n)
	for i := range all {
		all[i] = first + int64(i)
	}
	return all
}

// rowsTurns is how often each client has its turn in a round. A turn is a small part of the time for
// one measurement of producers.
const rowsTurns = 15

// rowsRound measures each statement with each client. The clients have short turns, so that
// whatever else happens on the machine hits all of them.
func (e *env) rowsRound(ctx context.Context, db *rowsDatabase, clients []rowsClient) (figures, error) {
	if err := execAll(ctx, db.db, "DELETE FROM bench_row"); err != nil {
		return nil, err
	}
	f := figures{}
	for _, s := range rowsStatements {
		if strings.HasPrefix(s.name, "upsert") && clients[0].upsert == nil {
			continue
		}
		var took [rowsVariants][]float64
		var there [rowsVariants][]int64 // the codes of rows that are there
		for turn := range rowsTurns {
			for i := range clients {
				v := (turn + i) % len(clients)
				some, err := db.turn(ctx, s, clients[v], &there[v], e.opts.duration/400)
				if err != nil {
					return nil, fmt.Errorf("%s, variant %d: %w", s.name, v, err)
				}
				if v == rowsPublish {
					db.events += s.rows * int64(len(some))
				}
				if turn > 0 { // the first one warms up
					took[v] = append(took[v], some...)
				}
			}
		}
		plain := median(took[rowsPlain])
		f[s.name+" µs"] = plain
		f[s.name] = median(took[rowsPublish]) / plain
		for _, v := range []int{rowsUntold, rowsNamed} {
			f[s.name+rowsBefore[v-1]] = median(took[v]) / plain
		}
	}
	return f, nil
}

// turn runs a statement for some time, at least once, and returns the microseconds that each took.
func (d *rowsDatabase) turn(ctx context.Context, s rowsStatement, c rowsClient, there *[]int64, length time.Duration,
) (took []float64, err error) {
	for spent := time.Duration(0); spent == 0 || spent < length; {
		if len(*there) == 0 {
			first := d.code(rowsBatch)
			if err := d.store(ctx, first); err != nil {
				return nil, err
			}
			*there = codes(first, rowsBatch)
		}
		fresh := d.code(s.rows)
		start := time.Now()
		err := s.run(ctx, c, (*there)[0], fresh)
		lasted := time.Since(start)
		if err != nil {
			return nil, err
		}
		spent += lasted
		took = append(took, float64(lasted)/float64(time.Microsecond))
		*there = (*there)[s.uses:]
	}
	return took, nil
}

// code returns the first of n new codes.
func (d *rowsDatabase) code(n int64) int64 {
	d.next += n
	return d.next - n
}

// rowID is the id of a row that is there. No database generates it: each goes on above the largest
// id, or counts from 1.
func rowID(code int64) int64 { return code << 10 }

// store inserts a batch of rows.
func (d *rowsDatabase) store(ctx context.Context, first int64) error {
	var values []string
	for _, c := range codes(first, rowsBatch) {
		values = append(values, fmt.Sprintf("(%d, %d, 'ada', 4200, CURRENT_TIMESTAMP)", rowID(c), c))
	}
	return execAll(ctx, d.db, "INSERT INTO bench_row (id, code, customer, amount, created_at) VALUES "+
		strings.Join(values, ", "))
}

// clients opens a client for each variant. The caller calls closeAll, also after an error.
func (d *rowsDatabase) clients(o rowsORM, tx bool) (all []rowsClient, closeAll func(), err error) {
	var pools []*sql.DB
	closeAll = func() {
		for _, p := range pools {
			_ = p.Close()
		}
	}
	for v := range rowsVariants {
		pool, err := d.open(o.simple, v != rowsPlain)
		if err != nil {
			return nil, closeAll, err
		}
		pools = append(pools, pool)
		var cfg *rowsConfig
		if v != rowsPlain {
			cfg = &rowsConfig{}
		}
		switch v {
		case rowsNamed:
			cfg.on = func(any) []core.Event { return nil }
		case rowsPublish:
			cfg.on = func(row any) []core.Event {
				return []core.Event{{Type: benchType, Topic: benchTopic, Data: row, Unordered: true}}
			}
		}
		c, err := o.open(d, pool, cfg, tx)
		if err != nil {
			return nil, closeAll, err
		}
		all = append(all, c)
	}
	return all, closeAll, nil
}

// open opens a pool. One for simple clients with an outbox follows transactions.
func (d *rowsDatabase) open(simple, outbox bool) (pool *sql.DB, err error) {
	switch {
	case simple && outbox:
		pool, err = sqltx.Open(d.driver, d.simple, d.dialect)
	case simple:
		pool, err = sql.Open(d.driver, d.simple)
	default:
		pool, err = sql.Open(d.driver, d.dsn)
	}
	if err != nil {
		return nil, err
	}
	return sized(pool), nil
}

// rowsDatabases opens all databases, with their tables. The caller calls closeAll, also after an
// error.
func (e *env) rowsDatabases(ctx context.Context) (all []*rowsDatabase, closeAll func() error, err error) {
	var errs []func() error
	closeAll = func() (err error) {
		for _, c := range slices.Backward(errs) {
			err = errors.Join(err, c())
		}
		return err
	}
	add := func(name, driver, dsn, simple string, dialect core.Dialect, id, text, at string) {
		if err != nil {
			return
		}
		d := &rowsDatabase{name: name, driver: driver, dsn: dsn, simple: simple, dialect: dialect}
		if d.db, err = sql.Open(driver, dsn); err == nil {
			errs = append(errs, d.db.Close)
			err = execAll(ctx, d.db, fmt.Sprintf("CREATE TABLE bench_row (id %s, code BIGINT NOT NULL UNIQUE, "+
				"customer %s NOT NULL, amount BIGINT NOT NULL, created_at %s NOT NULL)", id, text, at))
		}
		d.next = 1 << 20
		all = append(all, d)
	}
	simple := e.config.Copy()
	simple.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	add("PostgreSQL", "pgx", stdlib.RegisterConnConfig(e.config), stdlib.RegisterConnConfig(simple), core.Postgres,
		"BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY", "TEXT", "TIMESTAMPTZ")
	lite, err := openSQLite()
	if err != nil {
		return nil, closeAll, err
	}
	errs = append(errs, lite.close)
	dsn := lite.dsn
	if !e.durable { // as the servers
		dsn = strings.Replace(dsn, "synchronous(FULL)", "synchronous(OFF)", 1)
	}
	add("SQLite", "sqlite", dsn, dsn, core.SQLite, "INTEGER PRIMARY KEY AUTOINCREMENT", "TEXT", "DATETIME")
	for _, server := range []struct{ name, dsn string }{{"MariaDB", e.opts.mariadb}, {"MySQL", e.opts.mysql}} {
		if server.dsn == "" || err != nil {
			continue
		}
		var drop func() error
		if dsn, drop, err = e.onMySQL(ctx, server.dsn); err == nil {
			errs = append(errs, drop)
			add(server.name, "mysql", dsn, dsn, core.MySQL, "BIGINT AUTO_INCREMENT PRIMARY KEY", "VARCHAR(99)",
				"DATETIME(6)")
		}
	}
	return all, closeAll, err
}
