package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Tables of the forwarder's topic, as watermill-sql names them.
const (
	wmTopic   = "forwarder"
	wmTable   = `"watermill_forwarder"`
	wmOffsets = `"watermill_offsets_forwarder"`
)

// Queries that count the messages before and behind the acknowledged offset.
const (
	wmAcked   = `SELECT count(*) FROM ` + wmTable + ` m WHERE (m.transaction_id, m."offset") <= ` + wmOffset
	wmUnacked = `SELECT count(*) FROM ` + wmTable + ` m WHERE (m.transaction_id, m."offset") > ` + wmOffset
	wmOffset  = `(SELECT last_processed_transaction_id, offset_acked FROM ` + wmOffsets + `)`
)

// wmRelay is Watermill's own outbox: its Forwarder, which reads envelopes from a table of
// watermill-sql.
type wmRelay struct {
	e    *env
	pool *pgxpool.Pool
	size int           // size of a batch; 0: default
	poll time.Duration // 0: default
}

func newWatermill(ctx context.Context, e *env, pool *pgxpool.Pool) (both []drainer, err error) {
	pub, err := wmsql.NewPublisher(wmsql.BeginnerFromPgx(pool), wmsql.PublisherConfig{
		SchemaAdapter: wmsql.DefaultPostgreSQLSchema{}, AutoInitializeSchema: true,
	}, watermill.NopLogger{})
	if err != nil {
		return both, err
	}
	out := forwarder.NewPublisher(pub, forwarder.PublisherConfig{ForwarderTopic: wmTopic})
	const batch = 500
	for first := 0; first < e.opts.events; first += batch {
		var all []*message.Message
		for n := first; n < min(first+batch, e.opts.events); n++ {
			all = append(all, message.NewMessage(watermill.NewUUID(), newPayload(n)))
		}
		if err := out.Publish(benchTopic, all...); err != nil {
			return both, err
		}
	}
	// As in an outbox, each event has the number of another transaction, and the subscriber orders
	// by these numbers. So the server must have used up that many numbers.
	if err := e.burnTransactions(ctx, e.opts.events); err != nil {
		return both, err
	}
	if err := e.exec(ctx,
		fmt.Sprintf(`CREATE TABLE watermill_seed AS SELECT "offset", uuid, created_at, payload, metadata,
  (pg_snapshot_xmin(pg_current_snapshot())::text::bigint - %d
    + row_number() OVER (ORDER BY "offset"))::text::xid8 AS transaction_id FROM %s`,
			e.opts.events+1, wmTable)); err != nil {
		return both, err
	}
	standard := &wmRelay{e: e, pool: pool}
	best := &wmRelay{e: e, pool: pool, size: 10_000, poll: time.Millisecond}
	return []drainer{
		{name: "watermill-sql forwarder, defaults", seed: standard.seed, drain: standard.drain},
		{name: "watermill-sql forwarder, best settings", seed: best.seed, drain: best.drain},
	}, nil
}

// burnTransactions uses up transaction numbers until at least n are below the oldest running
// transaction.
func (e *env) burnTransactions(ctx context.Context, n int) error {
	now, err := e.count(ctx, "SELECT pg_current_xact_id()::text::bigint")
	if err != nil || now > int64(n)+1000 {
		return err
	}
	return e.exec(ctx,
		fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`,
			n+1000-int(now)))
}

func (w *wmRelay) schema() wmsql.DefaultPostgreSQLSchema {
	return wmsql.DefaultPostgreSQLSchema{SubscribeBatchSize: w.size}
}

func (w *wmRelay) seed(ctx context.Context) error {
	return w.e.exec(ctx,
		"DROP TABLE IF EXISTS "+wmOffsets,
		"TRUNCATE "+wmTable,
		"INSERT INTO "+wmTable+` ("offset", uuid, created_at, payload, metadata, transaction_id) SELECT "offset", `+
			`uuid, created_at, payload, metadata, transaction_id FROM watermill_seed`,
		"ANALYZE "+wmTable)
}

// ledgerPublisher is a Watermill publisher that does nothing.
type ledgerPublisher struct{ l *ledger }

func (p ledgerPublisher) Publish(_ string, messages ...*message.Message) error {
	for _, m := range messages {
		p.l.see(payloadNumber(m.Payload))
	}
	return nil
}
func (p ledgerPublisher) Close() error { return nil }

func (w *wmRelay) drain(ctx context.Context, l *ledger, limit time.Duration,
) (finished int, took time.Duration, err error) {
	start := time.Now()
	sub, err := wmsql.NewSubscriber(wmsql.BeginnerFromPgx(w.pool), wmsql.SubscriberConfig{
		SchemaAdapter: w.schema(), OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
		PollInterval: w.poll,
	}, watermill.NopLogger{})
	if err != nil {
		return 0, 0, err
	}
	f, err := forwarder.NewForwarder(sub, ledgerPublisher{l}, watermill.NopLogger{},
		forwarder.Config{ForwarderTopic: wmTopic})
	if err != nil {
		return 0, 0, err
	}
	runCtx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- f.Run(runCtx) }()

	events := w.e.opts.events
	acked := func() (int, error) {
		// The acknowledged offset is visible to others once its batch has committed.
		n, err := w.e.count(ctx, wmAcked)
		return int(n), err
	}
	done, err := await(ctx, limit, time.Millisecond, func() (bool, error) {
		if l.published.Load() < int64(events) {
			return false, nil
		}
		n, err := acked()
		return n >= events, err
	})
	took = time.Since(start)
	if err != nil {
		return 0, 0, err
	}
	if finished = events; !done {
		if finished, err = acked(); err != nil {
			return 0, 0, err
		}
	}
	if err := f.Close(); err != nil {
		return 0, 0, err
	}
	stop()
	if err := sub.Close(); err != nil {
		return 0, 0, err
	}
	return finished, took, <-ended
}
