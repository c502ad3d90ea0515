package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// drainKeys is how many keys ordered events have.
const drainKeys = 1000

// outboxBacklog is a backlog in tables of the outbox, written once through Publish and copied from
// then on.
type outboxBacklog struct {
	e      *env
	prefix string
	repo   *sqloutbox.Repository
	events int
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
	ob, err := core.New(core.Config{Repository: repo})
	if err != nil {
		return nil, err
	}
	const batch = 500
	for first := 0; first < events; first += batch {
		all := make([]core.Event, 0, batch)
		for n := first; n < min(first+batch, events); n++ {
			ev := core.Event{
				Type: benchType, Topic: benchTopic, ContentType: "application/json",
				Payload: newPayload(n),
			}
			if ordered {
				ev.Key = fmt.Sprintf("order/%04d", n%drainKeys)
			}
			all = append(all, ev)
		}
		tx, err := sqltx.Begin(ctx, e.db, nil, core.Postgres)
		if err != nil {
			return nil, err
		}
		if _, err := ob.Publish(ctx, tx, all...); err != nil {
			return nil, errors.Join(err, tx.Rollback())
		}
		if err := tx.Commit(); err != nil {
			return nil, err
		}
	}
	return b, e.exec(ctx,
		"CREATE TABLE "+prefix+"seed AS TABLE "+prefix+"event",
		"CREATE TABLE "+prefix+"seed_key AS TABLE "+prefix+"key")
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
func (b *outboxBacklog) drain(ctx context.Context, l *ledger,
	limit time.Duration,
) (finished int, took time.Duration, err error) {
	var marked atomic.Int64
	done := make(chan struct{})
	ob, err := core.New(core.Config{
		Repository: b.repo,
		Publisher: core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			l.see(payloadNumber(d.Payload))
			return nil
		}),
		Observer: &core.Observer{Marked: func(rows int, _ time.Duration, err error) {
			if err == nil && marked.Add(int64(rows)) == int64(b.events) {
				close(done)
			}
		}},
	})
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
	open, err := b.e.count(ctx, "SELECT count(*) FROM "+b.prefix+"event WHERE status <> 1")
	if err != nil {
		return 0, 0, err
	}
	if open > 0 && finished == b.events {
		return 0, 0, fmt.Errorf("%d events are not DONE", open)
	}
	return finished, took, nil
}

// createOutbox creates tables of the outbox.
func (e *env) createOutbox(ctx context.Context, prefix string) (*sqloutbox.Repository, error) {
	repo, err := sqloutbox.New(e.db, sqloutbox.Config{Dialect: core.Postgres, Prefix: prefix})
	if err != nil {
		return nil, err
	}
	return repo, repo.Migrate(ctx)
}
