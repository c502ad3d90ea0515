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
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// drainKeys is how many keys ordered events have.
const drainKeys = 1000

// outboxBacklog is a backlog in tables of the outbox. It is written once through Publish, and
// copied for each drain.
type outboxBacklog struct {
	e      *env
	prefix string
	repo   *sqloutbox.Repository
	first  int // number of the first event that is to be drained
	events int // how many events are to be drained
}

func newOutboxBacklog(ctx context.Context, e *env, prefix string, ordered bool) (*outboxBacklog, error) {
	return newOutboxBacklogOf(ctx, e, prefix, ordered, e.opts.Events)
}

func newOutboxBacklogOf(ctx context.Context, e *env, prefix string, ordered bool, events int) (*outboxBacklog, error) {
	e.progress.show("preparing %s events", thousands(float64(events)))
	repo, err := e.createOutbox(ctx, prefix)
	if err != nil {
		return nil, err
	}
	b := &outboxBacklog{e: e, prefix: prefix, repo: repo, events: events}
	if err := b.publish(ctx, e.db, core.Postgres, ordered); err != nil {
		return nil, err
	}
	return b, e.exec(ctx,
		"CREATE TABLE "+prefix+"seed AS TABLE "+prefix+"event",
		"CREATE TABLE "+prefix+"seed_key AS TABLE "+prefix+"key")
}

// backlogEvent returns event n of a backlog.
func backlogEvent(n int, ordered bool) core.Event {
	ev := core.Event{Type: benchType, Topic: benchTopic, ContentType: "application/json", Payload: newPayload(n)}
	if ordered {
		ev.Key = fmt.Sprintf("order/%04d", n%drainKeys)
	}
	return ev
}

// publish writes all events.
func (b *outboxBacklog) publish(ctx context.Context, db *sql.DB, dialect core.Dialect, ordered bool) error {
	ob, err := core.New(core.Config{Repository: b.repo})
	if err != nil {
		return err
	}
	const batch = 500
	for first := 0; first < b.events; first += batch {
		all := make([]core.Event, 0, batch)
		for n := first; n < min(first+batch, b.events); n++ {
			all = append(all, backlogEvent(n, ordered))
		}
		tx, err := sqltx.Begin(ctx, db, nil, dialect)
		if err != nil {
			return err
		}
		if _, err := ob.Publish(ctx, tx, all...); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// seed empties the tables and copies the backlog into them.
func (b *outboxBacklog) seed(ctx context.Context) error {
	if err := b.e.exec(ctx, "TRUNCATE "+b.prefix+"event, "+b.prefix+"key"); err != nil {
		return err
	}
	return b.add(ctx)
}

// add copies the backlog into the tables.
func (b *outboxBacklog) add(ctx context.Context) error {
	return b.e.exec(ctx,
		"INSERT INTO "+b.prefix+"event SELECT * FROM "+b.prefix+"seed",
		"INSERT INTO "+b.prefix+"key SELECT * FROM "+b.prefix+"seed_key",
		"ANALYZE "+b.prefix+"event, "+b.prefix+"key")
}

// drain runs the relay with its default configuration.
func (b *outboxBacklog) drain(ctx context.Context, l *ledger, limit time.Duration) (int, time.Duration, error) {
	return b.drainOf(ctx, b.repo, l, limit)
}

// drainNative is drain on a pool of pgx.
func (b *outboxBacklog) drainNative(pool *pgxpool.Pool) drainFunc {
	return func(ctx context.Context, l *ledger, limit time.Duration) (int, time.Duration, error) {
		repo, err := pgxoutbox.NewRepository(pool, sqloutbox.Config{Prefix: b.prefix})
		if err != nil {
			return 0, 0, err
		}
		return b.drainOf(ctx, repo, l, limit)
	}
}

func (b *outboxBacklog) drainOf(ctx context.Context, repo *sqloutbox.Repository, l *ledger, limit time.Duration,
) (finished int, took time.Duration, err error) {
	return b.drainWith(ctx, limit, core.Config{
		Repository: repo,
		Publisher: core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			l.see(payloadNumber(d.Payload) - b.first)
			return nil
		}),
	})
}

// drainWith runs the relay with cfg. It sets the Observer, and the Repository of b if cfg has none.
func (b *outboxBacklog) drainWith(ctx context.Context, limit time.Duration, cfg core.Config,
) (finished int, took time.Duration, err error) {
	var marked atomic.Int64
	done := make(chan struct{})
	if cfg.Repository == nil {
		cfg.Repository = b.repo
	}
	cfg.Observer = &core.Observer{Marked: func(rows int, _ time.Duration, err error) {
		if err != nil {
			return
		}
		if n := marked.Add(int64(rows)); n >= int64(b.events) && n-int64(rows) < int64(b.events) {
			close(done)
		}
	}}
	ob, err := core.New(cfg)
	if err != nil {
		return 0, 0, err
	}
	runCtx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- ob.Run(runCtx) }()
	select {
	case <-done:
		took, finished = time.Since(start), b.events
	case <-time.After(limit):
		took, finished = time.Since(start), int(marked.Load())
	case err := <-ended:
		return 0, 0, errors.Join(errors.New("the relay ended"), err)
	}
	stop()
	if err := <-ended; err != nil {
		return 0, 0, err
	}
	return finished, took, nil
}

// check returns an error if a drain that finished everything left an event open.
func (b *outboxBacklog) check(ctx context.Context, finished int) error {
	if finished < b.events {
		return nil
	}
	open, err := b.e.count(ctx, "SELECT count(*) FROM "+b.prefix+"event WHERE status <> 1")
	if err == nil && open > 0 {
		err = fmt.Errorf("%d events are not DONE", open)
	}
	return err
}

// createOutbox creates tables of the outbox.
func (e *env) createOutbox(ctx context.Context, prefix string) (*sqloutbox.Repository, error) {
	repo, err := sqloutbox.New(e.db, sqloutbox.Config{Dialect: core.Postgres, Prefix: prefix})
	if err != nil {
		return nil, err
	}
	return repo, repo.Migrate(ctx)
}
