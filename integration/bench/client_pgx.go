package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// openNative opens pgx without database/sql and without an ORM.
func openNative(ctx context.Context, pool *pgxpool.Pool, cfg *outboxConfig) (ormClient, error) {
	if cfg == nil {
		return &pgxClient{pool: pool}, nil
	}
	repo, err := pgxoutbox.NewRepository(pool, sqloutbox.Config{Prefix: cfg.prefix})
	if err != nil {
		return nil, err
	}
	if err := repo.Migrate(ctx); err != nil {
		return nil, err
	}
	ob, err := core.New(core.Config{
		Repository: repo, Publisher: cfg.publisher, Relay: relay.Config{}, Observer: cfg.observer,
	})
	return &pgxClient{pool: pgxoutbox.NewPool(pool), ob: ob}, err
}

type pgxClient struct {
	pool interface {
		Begin(ctx context.Context) (pgx.Tx, error)
	}
	ob *core.Outbox // nil without an outbox
}

// order inserts an order, calls more, and commits.
func (c *pgxClient) order(ctx context.Context, more func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO bench_order (customer, amount, created_at) "+
			"VALUES ($1, $2, $3)", "ada", 4200,
			time.Now())
		if err != nil {
			return err
		}
		return more(tx)
	})
}

func (c *pgxClient) Alone(ctx context.Context) error {
	return c.order(ctx, func(pgx.Tx) error { return nil })
}

func (c *pgxClient) SecondRow(ctx context.Context, row secondRow) error {
	return c.order(ctx, func(tx pgx.Tx) error { return insertSecondRow(ctx, tx, row) })
}

func insertSecondRow(ctx context.Context, tx pgx.Tx, row secondRow) error {
	_, err := tx.Exec(ctx, `
INSERT INTO bench_outbox (id, topic, type, key, payload, available_at, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		row.ID, row.Topic, row.Type, row.Key, row.Payload, row.At, row.At)
	return err
}

func (c *pgxClient) Publish(ctx context.Context, events ...core.Event) error {
	return c.order(ctx, func(tx pgx.Tx) error {
		_, err := pgxoutbox.Publish(ctx, c.ob, tx, events...)
		return err
	})
}

func (c *pgxClient) Run(ctx context.Context) error { return c.ob.Run(ctx) }
