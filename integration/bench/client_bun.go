package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
)

type bunOrder struct {
	bun.BaseModel `bun:"table:bench_order"`

	ID        int64 `bun:",pk,autoincrement"`
	Customer  string
	Amount    int64
	CreatedAt time.Time
}

type bunSecondRow struct {
	bun.BaseModel `bun:"table:bench_outbox"`

	ID          string `bun:",pk"`
	Topic       string
	Type        string
	Key         string
	Payload     []byte
	Status      int16
	Attempts    int32
	AvailableAt time.Time
	CreatedAt   time.Time
	ClaimedBy   *string
	LeaseUntil  *time.Time
	DoneAt      *time.Time
}

type bunClient struct {
	db *bun.DB
	ob *bunoutbox.Outbox // nil without an outbox
}

func openBun(db *sql.DB, cfg *outboxConfig) (ormClient, error) {
	b := bun.NewDB(db, pgdialect.New())
	if cfg == nil {
		return &bunClient{db: b}, nil
	}
	ob, err := bunoutbox.New(b, bunoutbox.Config{
		Publisher: cfg.publisher, Observer: cfg.observer, Prefix: cfg.prefix,
		AutoCreate: true,
	})
	if err != nil {
		return nil, err
	}
	return &bunClient{db: b.WithQueryHook(ob.Hook()), ob: ob}, nil
}

func insertBunOrder(ctx context.Context, tx bun.Tx) error {
	_, err := tx.NewInsert().Model(&bunOrder{Customer: "ada", Amount: 4200, CreatedAt: time.Now()}).Exec(ctx)
	return err
}

func (c *bunClient) Alone(ctx context.Context) error {
	return c.db.RunInTx(ctx, nil, insertBunOrder)
}

func (c *bunClient) SecondRow(ctx context.Context, row secondRow) error {
	return c.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if err := insertBunOrder(ctx, tx); err != nil {
			return err
		}
		_, err := tx.NewInsert().Model(&bunSecondRow{
			ID: row.ID, Topic: row.Topic, Type: row.Type, Key: row.Key, Payload: row.Payload, AvailableAt: row.At,
			CreatedAt: row.At,
		}).Exec(ctx)
		return err
	})
}

func (c *bunClient) Publish(ctx context.Context, events ...core.Event) error {
	return c.ob.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		if err := insertBunOrder(ctx, tx); err != nil {
			return err
		}
		return c.ob.Publish(ctx, tx, events...)
	})
}

func (c *bunClient) Run(ctx context.Context) error { return c.ob.Run(ctx) }
