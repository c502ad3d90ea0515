package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// wakeWarmUp is how many events are published before latency is measured. After them, both
// processes have done each step once.
const wakeWarmUp = 20

// wakeDatabase is a database with a process that only publishes and a relay.
type wakeDatabase struct {
	name    string
	open    func() (*sql.DB, error)
	dialect core.Dialect
	order   string // the columns of the table of orders
}

// runWake shows how long an event takes from the commit in a process that only publishes to the
// publish of a relay in another one: with wake-ups, and with polls alone. The processes are two
// pools in this program.
func runWake(ctx context.Context, e *env) (err error) {
	lite, err := openSQLite()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lite.close()) }()
	byPGX := e.wakePostgres()
	byPGX.name += ", pgxoutbox"
	byPGX.open = func() (*sql.DB, error) {
		return sql.OpenDB(pgxoutbox.Connector(pgxoutbox.Config{Conn: *e.config})), nil
	}
	all := []wakeDatabase{e.wakePostgres(), byPGX, {
		"SQLite", byDriver("sqlite", lite.dsn, core.SQLite), core.SQLite,
		"id INTEGER PRIMARY KEY, customer TEXT, amount INTEGER",
	}}
	if e.opts.mariadb != "" {
		dsn, drop, err := e.onMySQL(ctx, e.opts.mariadb)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, drop()) }()
		all = append(all, wakeDatabase{
			"MariaDB", byDriver("mysql", dsn, core.MySQL), core.MySQL,
			"id BIGINT AUTO_INCREMENT PRIMARY KEY, customer VARCHAR(99), amount BIGINT",
		})
	}
	t := e.table("commit in one process to publish in another", "p50 µs", "p99 µs")
	var some []competitor
	for _, db := range all {
		for _, way := range []string{"woken", "polled"} {
			some = append(some, competitor{db.name + ", " + way, func(ctx context.Context) (figures, error) {
				return e.wakeRound(ctx, db, way)
			}})
		}
	}
	return e.compete(ctx, t, some)
}

func (e *env) wakePostgres() wakeDatabase {
	return wakeDatabase{
		"PostgreSQL", byDriver("pgx", e.config.ConnString(), core.Postgres), core.Postgres,
		"id bigserial PRIMARY KEY, customer text NOT NULL, amount bigint NOT NULL",
	}
}

// byDriver opens pools of a driver of database/sql.
func byDriver(driver, dsn string, d core.Dialect) func() (*sql.DB, error) {
	return func() (*sql.DB, error) { return sqltx.Open(driver, dsn, d) }
}

func (e *env) wakeRound(ctx context.Context, db wakeDatabase, way string) (f figures, err error) {
	prefix, cfg := way+"_", core.Config{Wake: core.WakePolicy{Disable: way == "polled"}}
	producer, err := db.join(ctx, prefix, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, producer.pool.Close()) }()
	w := newStopwatch()
	cfg.Publisher = core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
		w.published(payloadNumber(d.Payload))
		return nil
	})
	if db.dialect == core.Postgres { // elsewhere the repository listens by itself
		cfg.Wake.Listen = pgxoutbox.Listen(e.config, sqloutbox.WakeChannel(prefix))
	}
	relay, err := db.join(ctx, prefix, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, relay.pool.Close()) }()
	stop := inBackground(ctx, relay.ob.Run)
	defer func() { err = errors.Join(err, stop()) }()
	return e.timeOrders(ctx, producer, w)
}

// inBackground runs run until stop is called.
func inBackground(ctx context.Context, run func(ctx context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return func() error { cancel(); return <-ended }
}

// timeOrders commits orders with events at random times, and waits until w has seen all of them.
func (e *env) timeOrders(ctx context.Context, producer *wakeSide, w *stopwatch) (figures, error) {
	n := 0
	order := func(committed func(n int)) error {
		defer func() { n++ }()
		return producer.order(ctx, n, e.randomKey(), committed)
	}
	published := func() error {
		ok, err := await(ctx, finishLimit, time.Millisecond, func() (bool, error) { return w.ended() >= n, nil })
		if err == nil && !ok {
			err = fmt.Errorf("%d of %d events were published", w.ended(), n)
		}
		return err
	}
	for range wakeWarmUp {
		if err := order(func(int) {}); err != nil {
			return nil, err
		}
	}
	if err := published(); err != nil {
		return nil, err
	}
	err := poisson(ctx, 4*e.opts.duration, func() error { return order(w.committed) })
	if err == nil {
		err = published()
	}
	return latencies(w, err)
}

// wakeSide is one process.
type wakeSide struct {
	pool *sql.DB
	tx   core.Transactor
	ob   *core.Outbox
}

// join opens a process with cfg, and sets the Repository and Notify.
func (d wakeDatabase) join(ctx context.Context, prefix string, cfg core.Config) (_ *wakeSide, err error) {
	pool, err := d.open()
	if err != nil {
		return nil, err
	}
	side := &wakeSide{pool: sized(pool), tx: sqltx.NewTransactor(pool, d.dialect)}
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: d.dialect, Prefix: prefix})
	if err == nil {
		err = repo.Migrate(ctx)
	}
	if err == nil {
		err = execAll(ctx, pool, "CREATE TABLE IF NOT EXISTS wake_order ("+d.order+")")
	}
	if err == nil {
		of, _ := cfg.Relay.(relay.Config)
		of.DisableJanitor = true
		cfg.Repository, cfg.Relay, cfg.Wake.Notify = repo, of, repo.Notify
		side.ob, err = core.New(cfg)
	}
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return side, nil
}

// order inserts an order and publishes event n. committed is called when the commit has returned.
func (s *wakeSide) order(ctx context.Context, n int, key string, committed func(n int)) error {
	return s.tx.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO wake_order (customer, amount) VALUES ('ada', 4200)"); err != nil {
			return err
		}
		tx.OnOutcome(func(core.Outcome) { committed(n) })
		_, err := s.ob.Publish(ctx, tx, core.Event{
			Type: benchType, Topic: benchTopic, Key: key, Unordered: true, ContentType: "application/json",
			Payload: newPayload(n),
		})
		return err
	})
}
