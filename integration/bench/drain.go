package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// drainKeys is how many keys ordered events have.
const drainKeys = 1000

// Competitors with which others are compared.
const (
	oursName   = "ormoutbox"
	nativeName = "ormoutbox, pgxoutbox"
	handName   = "hand-written loop"
	pipedName  = "hand-written loop, claims while it marks"
)

// drainer is a competitor that empties a backlog.
type drainer struct {
	name string
	// seed makes a new backlog, as one committed transaction for each event leaves it, and analyzes
	// the table.
	seed func(ctx context.Context) error
	// drain publishes the backlog to l until all events are finished, or limit is over. A finished
	// event is published and marked. drain returns how many events are finished, and how long that
	// took from the start of the relay.
	drain func(ctx context.Context, l *ledger, limit time.Duration) (finished int, took time.Duration, err error)
	// check looks at what the drain left. It may enter the events that came to a broker into l. It
	// may be nil.
	check   func(ctx context.Context, l *ledger, finished int) error
	ordered bool // each event has one of drainKeys keys
	local   bool // on a database other than PostgreSQL
}

// runDrain shows how fast a relay empties a backlog, beside the loop that people write by hand.
func runDrain(ctx context.Context, e *env) (err error) {
	pool, err := openPGX(ctx, e.config, false)
	if err != nil {
		return err
	}
	defer pool.Close()
	lite, err := openSQLite()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lite.close()) }()
	for _, ordered := range []bool{false, true} {
		name := map[bool]string{false: "unordered", true: "ordered"}[ordered]
		b, err := e.newBacklog(ctx, e.db, core.Postgres, "drain_"+name+"_", ordered)
		if err != nil {
			return err
		}
		hand := &handRelay{pool: pool, table: b.prefix + "event", ordered: ordered}
		relays := []drainer{
			b.relay(oursName, b.drain), b.relay(nativeName, b.drainNative(pool)), b.relay(handName, hand.drain),
		}
		if !ordered { // two goroutines keep no order
			relays = append(relays, b.relay(pipedName, hand.drainPiped))
		}
		t := e.table("PostgreSQL, "+name, "events/s", "÷ hand-written", "aim", "CPU µs/event", "WAL B/event")
		if err := e.drains(ctx, t, relays, 0.93-map[bool]float64{true: 0.13}[ordered]); err != nil {
			return err
		}
		if b, err = e.newBacklog(ctx, lite.db, core.SQLite, name+"_", ordered); err != nil {
			return err
		}
		loop := &sqliteLoop{db: lite.db, table: b.prefix + "event", ordered: ordered}
		t = e.table("SQLite, "+name, "events/s", "÷ hand-written", "aim")
		both := []drainer{b.relay(oursName, b.drain), b.relay(handName, loop.drain)}
		if err := e.drains(ctx, t, both, 0.85); err != nil {
			return err
		}
	}
	return nil
}

// drains measures relays, and compares them with the hand-written loop.
func (e *env) drains(ctx context.Context, t *Table, relays []drainer, aim float64) error {
	var all []competitor
	for _, r := range relays {
		all = append(all, competitor{r.name, func(ctx context.Context) (figures, error) { return e.drainOnce(ctx, r) }})
	}
	if err := e.compete(ctx, t, all); err != nil {
		return err
	}
	t.divideBy("÷ hand-written", "events/s", handName)
	t.aim(oursName, aim)
	t.aim(nativeName, aim)
	return nil
}

// drainOnce drains one backlog and checks that every finished event was published, once.
func (e *env) drainOnce(ctx context.Context, r drainer) (f figures, err error) {
	e.checkpoint(ctx) // before the seed, so that no competitor pays for full pages
	if err := r.seed(ctx); err != nil {
		return nil, fmt.Errorf("seed: %w", err)
	}
	l := &ledger{}
	if r.ordered {
		l = newOrderedLedger(drainKeys)
	}
	from, err := e.usage(ctx)
	if err != nil {
		return nil, err
	}
	finished, took, err := r.drain(ctx, l, e.opts.limit)
	if err != nil {
		return nil, err
	}
	f = figures{
		"events/s": float64(finished) / took.Seconds(), "finished": 100 * float64(finished) / float64(e.opts.events),
	}
	if !r.local {
		if err := e.since(ctx, f, from, "event", float64(finished)); err != nil {
			return nil, err
		}
	}
	if r.check != nil {
		if err := r.check(ctx, l, finished); err != nil {
			return nil, err
		}
	}
	if err := l.checkPart(e.opts.events); err != nil {
		return nil, err
	}
	if p := int(l.published.Load()); p < finished {
		return nil, fmt.Errorf("%d events are finished, %d were published", finished, p)
	}
	if finished >= e.opts.events {
		err = l.check(e.opts.events)
	}
	return f, err
}

// backlog is a backlog in tables of the outbox. It is written once through Publish, and copied for
// each drain.
type backlog struct {
	e       *env
	db      *sql.DB
	dialect core.Dialect
	prefix  string
	repo    *sqloutbox.Repository
	ordered bool
}

func (e *env) newBacklog(ctx context.Context, db *sql.DB, dialect core.Dialect, prefix string, ordered bool,
) (*backlog, error) {
	repo, err := sqloutbox.New(db, sqloutbox.Config{Dialect: dialect, Prefix: prefix})
	if err != nil {
		return nil, err
	}
	if err := repo.Migrate(ctx); err != nil {
		return nil, err
	}
	b := &backlog{e, db, dialect, prefix, repo, ordered}
	if err := b.publish(ctx); err != nil {
		return nil, err
	}
	return b, execAll(ctx, db, "CREATE TABLE "+prefix+"seed AS SELECT * FROM "+prefix+"event",
		"CREATE TABLE "+prefix+"seed_key AS SELECT * FROM "+prefix+"key")
}

// relay returns a competitor that drains b.
func (b *backlog) relay(name string, drain func(context.Context, *ledger, time.Duration) (int, time.Duration, error),
) drainer {
	return drainer{
		name: name, seed: b.seed, drain: drain, check: b.check, ordered: b.ordered, local: b.dialect != core.Postgres,
	}
}

// publish writes all events.
func (b *backlog) publish(ctx context.Context) error {
	ob, err := core.New(core.Config{Repository: b.repo})
	if err != nil {
		return err
	}
	tx := sqltx.NewTransactor(b.db, b.dialect)
	const batch = 500
	for first := 0; first < b.e.opts.events; first += batch {
		var all []core.Event
		for n := first; n < min(first+batch, b.e.opts.events); n++ {
			ev := core.Event{
				Type: benchType, Topic: benchTopic, ContentType: "application/json", Payload: newPayload(n),
			}
			if b.ordered {
				ev.Key = fmt.Sprintf("order/%04d", n%drainKeys)
			}
			all = append(all, ev)
		}
		if err := tx.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
			_, err := ob.Publish(ctx, tx, all...)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// storedColumns are the columns of an event that the database does not make by itself.
const storedColumns = "id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, " +
	"aggregate_version, tenant_id, partition_key, lane, key_seq, payload, content_type, headers, status, attempts, " +
	"claim_no, lost_claims, claimed_by, lease_until, available_at, occurred_at, created_at, done_at, " +
	"last_error_code, last_error, replay_of, receipt, error_group"

// seed empties the tables and copies the backlog into them.
func (b *backlog) seed(ctx context.Context) error {
	event, key := b.prefix+"event", b.prefix+"key"
	empty, after := []string{"TRUNCATE " + event + ", " + key}, []string{"ANALYZE " + event + ", " + key}
	if b.dialect == core.SQLite {
		empty = []string{"DELETE FROM " + event, "DELETE FROM " + key}
		after = []string{"ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)"}
	}
	copies := []string{
		"INSERT INTO " + event + " (" + storedColumns + ") SELECT " + storedColumns +
			" FROM " + b.prefix + "seed",
		"INSERT INTO " + key + " SELECT * FROM " + b.prefix + "seed_key",
	}
	return execAll(ctx, b.db, append(append(empty, copies...), after...)...)
}

// drain runs the relay with its default configuration.
func (b *backlog) drain(ctx context.Context, l *ledger, limit time.Duration) (int, time.Duration, error) {
	return b.drainWith(ctx, limit, core.Config{Repository: b.repo, Publisher: nowhere(l)})
}

// drainNative is drain on a pool of pgx.
func (b *backlog) drainNative(pool *pgxpool.Pool) func(context.Context, *ledger, time.Duration) (int, time.Duration,
	error) {
	return func(ctx context.Context, l *ledger, limit time.Duration) (int, time.Duration, error) {
		repo, err := pgxoutbox.NewRepository(pool, sqloutbox.Config{Prefix: b.prefix})
		if err != nil {
			return 0, 0, err
		}
		return b.drainWith(ctx, limit, core.Config{Repository: repo, Publisher: nowhere(l)})
	}
}

// nowhere accepts every event at once.
func nowhere(l *ledger) core.Publisher {
	return core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
		l.see(payloadNumber(d.Payload))
		return nil
	})
}

// drainWith runs the relay with cfg.
func (b *backlog) drainWith(ctx context.Context, limit time.Duration, cfg core.Config,
) (finished int, took time.Duration, err error) {
	return drainUntil(ctx, b.e.opts.events, limit, func(o *core.Observer) (func(context.Context) error, error) {
		cfg.Observer, cfg.Relay = o, relay.Config{}
		ob, err := core.New(cfg)
		if err != nil {
			return nil, err
		}
		return ob.Run, nil
	})
}

// drainUntil runs the relay that open makes until its Observer has heard of so many marked events,
// or limit is over.
func drainUntil(ctx context.Context, events int, limit time.Duration,
	open func(o *core.Observer) (run func(context.Context) error, err error),
) (finished int, took time.Duration, err error) {
	var marked atomic.Int64
	done := make(chan struct{})
	run, err := open(&core.Observer{Marked: func(rows int, _ time.Duration, err error) {
		if err != nil {
			return
		}
		if n := marked.Add(int64(rows)); n >= int64(events) && n-int64(rows) < int64(events) {
			close(done)
		}
	}})
	if err != nil {
		return 0, 0, err
	}
	runCtx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- run(runCtx) }()
	select {
	case <-done:
	case <-time.After(limit):
	case err := <-ended:
		return 0, 0, errors.Join(errors.New("the relay ended"), err)
	}
	took, finished = time.Since(start), min(int(marked.Load()), events)
	stop()
	return finished, took, <-ended
}

// check returns an error if a drain that finished everything left an event open.
func (b *backlog) check(ctx context.Context, _ *ledger, finished int) error {
	if finished < b.e.opts.events {
		return nil
	}
	open, err := countOf(ctx, b.db, "SELECT count(*) FROM "+b.prefix+"event WHERE status <> 1")
	if err == nil && open > 0 {
		err = fmt.Errorf("%d events are not DONE", open)
	}
	return err
}
