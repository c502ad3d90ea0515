package main

import (
	"context"
	"database/sql"
	"errors"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/bench/internal/ent"
)

type entClient struct {
	client *ent.Client
	ob     *entoutbox.Outbox // nil without an outbox
}

func openEnt(db *sql.DB, cfg *outboxConfig) (ormClient, error) {
	drv := entsql.OpenDB(dialect.Postgres, db)
	if cfg == nil {
		return &entClient{client: ent.NewClient(ent.Driver(drv))}, nil
	}
	ob, err := entoutbox.New(drv, entoutbox.Config{
		Publisher: cfg.publisher, Observer: cfg.observer, Prefix: cfg.prefix,
		AutoCreate: true,
	})
	if err != nil {
		return nil, err
	}
	return &entClient{client: ent.NewClient(ent.Driver(ob.Driver())), ob: ob}, nil
}

// inTx inserts an order, and calls more in the same transaction.
func (c *entClient) inTx(ctx context.Context, more func(tx *ent.Tx) error) error {
	tx, err := c.client.Tx(ctx)
	if err != nil {
		return err
	}
	if err := tx.Order.Create().SetCustomer("ada").SetAmount(4200).Exec(ctx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := more(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (c *entClient) Alone(ctx context.Context) error {
	return c.inTx(ctx, func(*ent.Tx) error { return nil })
}

func (c *entClient) SecondRow(ctx context.Context, row secondRow) error {
	return c.inTx(ctx, func(tx *ent.Tx) error {
		return tx.SecondRow.Create().SetID(row.ID).SetTopic(row.Topic).SetType(row.Type).SetKey(row.Key).
			SetPayload(row.Payload).SetAvailableAt(row.At).SetCreatedAt(row.At).Exec(ctx)
	})
}

func (c *entClient) Publish(ctx context.Context, events ...core.Event) error {
	return c.inTx(ctx, func(tx *ent.Tx) error { return c.ob.Publish(ctx, tx, events...) })
}

func (c *entClient) Run(ctx context.Context) error { return c.ob.Run(ctx) }
