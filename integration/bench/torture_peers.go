package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

const wmName = "watermill-sql forwarder"

// torturedOnes are the competitors of section torture. All publish to a ledger.
var torturedOnes = []struct {
	name string
	open tortureOpener
}{
	{oursName, tortureOurs},
	{handName, tortureHand},
	{"River", tortureRiver},
	{wmName, tortureWatermill},
}

// tortureOurs has a relay with its defaults in another program than the producers: so there is no
// fast path.
func tortureOurs(ctx context.Context, run *tortureRun, pools torturePools) (*tortured, error) {
	const prefix = "torture_"
	repo, err := pgxoutbox.NewRepository(pools.producers, sqloutbox.Config{Prefix: prefix})
	if err != nil {
		return nil, err
	}
	if err := repo.Migrate(ctx); err != nil {
		return nil, err
	}
	producer, err := core.New(core.Config{Repository: repo})
	if err != nil {
		return nil, err
	}
	if repo, err = pgxoutbox.NewRepository(pools.relay, sqloutbox.Config{Prefix: prefix}); err != nil {
		return nil, err
	}
	ob, err := core.New(core.Config{
		Repository: repo, Publisher: nowhere(run.ledger), Relay: relay.Config{},
		Wake: core.WakePolicy{Listen: pgxoutbox.Listen(run.e.config, sqloutbox.WakeChannel(prefix))},
		Observer: &core.Observer{Claimed: func(info core.ClaimInfo) {
			if !info.Ordered {
				run.timer.add(info.Duration)
			}
		}},
	})
	if err != nil {
		return nil, err
	}
	return &tortured{
		tables: []string{prefix + "event"}, begin: pgxoutbox.NewPool(pools.producers).Begin,
		insert: func(ctx context.Context, tx pgx.Tx, n int) error {
			_, err := pgxoutbox.Publish(ctx, producer, tx, core.Event{
				Type: benchType, Topic: benchTopic, ContentType: "application/json", Payload: newPayload(n),
			})
			return err
		},
		relay: ob.Run, open: "SELECT count(*) FROM " + prefix + "event WHERE status IN (0, 2)",
	}, nil
}

// tortureHand has the table and the loop of section steady.
func tortureHand(_ context.Context, run *tortureRun, pools torturePools) (*tortured, error) {
	run.timer.is = func(sql string) bool { return strings.Contains(sql, "SKIP LOCKED") }
	return &tortured{
		tables: []string{"bench_outbox"}, begin: pools.producers.Begin,
		insert: func(ctx context.Context, tx pgx.Tx, n int) error {
			return insertSecondRow(ctx, tx, newSecondRow("", newPayload(n)))
		},
		relay: func(ctx context.Context) error {
			for {
				n, err := claimSecondRows(ctx, pools.relay, run.ledger)
				if err != nil && ctx.Err() == nil {
					return err
				}
				if n == handBatch {
					continue
				}
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(torturePause):
				}
			}
		},
		open: "SELECT count(*) FROM bench_outbox WHERE status = 0",
	}, nil
}

// tortureRiver has River with as many workers as helped it in section peers.
func tortureRiver(ctx context.Context, run *tortureRun, pools torturePools) (*tortured, error) {
	run.timer.is = func(sql string) bool { return strings.Contains(sql, "name: JobGetAvailable") }
	quiet := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(riverpgxv5.New(pools.relay), &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	producer, err := river.NewClient(riverpgxv5.New(pools.producers), &river.Config{Logger: quiet})
	if err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, &riverWorker{l: run.ledger}); err != nil {
		return nil, err
	}
	client, err := river.NewClient(riverpgxv5.New(pools.relay), &river.Config{
		Logger: quiet, Workers: workers, FetchCooldown: torturePause, FetchPollInterval: torturePause,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
	})
	if err != nil {
		return nil, err
	}
	return &tortured{
		tables: []string{"river_job"}, begin: pools.producers.Begin,
		insert: func(ctx context.Context, tx pgx.Tx, n int) error {
			_, err := producer.InsertTx(ctx, tx, newRiverArgs(n), nil)
			return err
		},
		relay: func(ctx context.Context) error {
			if err := client.Start(ctx); err != nil {
				return err
			}
			<-ctx.Done()
			stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			return client.StopAndCancel(stopCtx)
		},
		open: "SELECT count(*) FROM river_job WHERE state <> 'completed'",
	}, nil
}

// tortureWatermill has Watermill's Forwarder. Its subscriber claims nothing: it reads behind an
// offset, which it locks and updates.
func tortureWatermill(_ context.Context, run *tortureRun, pools torturePools) (*tortured, error) {
	run.timer.is = func(sql string) bool { return strings.Contains(sql, "last_processed AS") }
	schema := wmsql.DefaultPostgreSQLSchema{SubscribeBatchSize: tortureBatch}
	sub, err := wmsql.NewSubscriber(wmsql.BeginnerFromPgx(pools.relay), wmsql.SubscriberConfig{
		SchemaAdapter: schema, OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
		PollInterval: torturePause,
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	if err := sub.SubscribeInitialize(wmTopic); err != nil {
		return nil, err
	}
	f, err := forwarder.NewForwarder(sub, ledgerPublisher{run.ledger}, watermill.NopLogger{},
		forwarder.Config{ForwarderTopic: wmTopic})
	if err != nil {
		return nil, err
	}
	return &tortured{
		tables: []string{strings.Trim(wmTable, `"`), strings.Trim(wmOffsets, `"`)}, begin: pools.producers.Begin,
		insert: func(_ context.Context, tx pgx.Tx, n int) error {
			pub, err := wmsql.NewPublisher(wmsql.TxFromPgx(tx), wmsql.PublisherConfig{SchemaAdapter: schema},
				watermill.NopLogger{})
			if err != nil {
				return err
			}
			return forwarder.NewPublisher(pub, forwarder.PublisherConfig{ForwarderTopic: wmTopic}).Publish(benchTopic,
				message.NewMessage(watermill.NewUUID(), newPayload(n)))
		},
		relay: func(ctx context.Context) error {
			err := f.Run(ctx)
			if ended := sub.Close(); err == nil {
				err = ended
			}
			return err
		},
		open: wmUnacked,
	}, nil
}
