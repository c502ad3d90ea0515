package main

import (
	"context"
	"database/sql"
	"time"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

type gormOrder struct {
	ID        int64
	Customer  string
	Amount    int64
	CreatedAt time.Time
}

func (gormOrder) TableName() string { return "bench_order" }

type gormSecondRow struct {
	ID          string `gorm:"primaryKey"`
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

func (gormSecondRow) TableName() string { return "bench_outbox" }

type gormClient struct {
	db *gorm.DB
	ob *gormoutbox.Outbox // nil without an outbox
}

func openGORM(_ context.Context, db *sql.DB, cfg *outboxConfig) (ormClient, error) {
	g, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return nil, err
	}
	c := &gormClient{db: g}
	if cfg != nil {
		c.ob = gormoutbox.Plugin(gormoutbox.Config{
			Publisher: cfg.publisher, Observer: cfg.observer, Prefix: cfg.prefix,
			AutoCreate: true,
		})
		if err := g.Use(c.ob); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *gormClient) Alone(ctx context.Context) error {
	return c.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		return tx.Create(&gormOrder{Customer: "ada", Amount: 4200}).Error
	})
}

func (c *gormClient) SecondRow(ctx context.Context, row secondRow) error {
	return c.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&gormOrder{Customer: "ada", Amount: 4200}).Error; err != nil {
			return err
		}
		return tx.Create(&gormSecondRow{
			ID: row.ID, Topic: row.Topic, Type: row.Type, Key: row.Key, Payload: row.Payload, AvailableAt: row.At,
			CreatedAt: row.At,
		}).Error
	})
}

func (c *gormClient) Publish(ctx context.Context, events ...core.Event) error {
	return c.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&gormOrder{Customer: "ada", Amount: 4200}).Error; err != nil {
			return err
		}
		return gormoutbox.Publish(tx.Statement.Context, tx, events...)
	})
}

func (c *gormClient) Run(ctx context.Context) error { return c.ob.Run(ctx) }

// ByHand inserts an order, and the row that Publish writes, into the tables with the prefix. Its
// statement was written for that row alone, so it shows the time that the database takes for it.
func (c *gormClient) ByHand(ctx context.Context, prefix string, row secondRow, ordered bool) error {
	insert := `INSERT INTO ` + prefix +
		`event (id, event_id, event_type, schema_version, topic, aggregate_version, partition_key, payload,
  content_type, claim_no, available_at, occurred_at, created_at) VALUES ($1, $2, $3, 0, $4, 0, $5, $6,
    'application/json', 0, clock_timestamp(), $7, clock_timestamp())`
	args := []any{row.ID, row.ID, row.Type, row.Topic, row.Key, row.Payload, row.At}
	if ordered {
		insert = `WITH k AS (INSERT INTO ` + prefix +
			`key AS k (lane, last_seq, first_seq, last_id, used_at) VALUES ($8, 1, 1, $1::uuid, clock_timestamp())
ON CONFLICT (lane) DO UPDATE SET last_seq = k.last_seq + 1, prev_id = k.last_id, last_id = excluded.last_id,
  used_at = excluded.used_at
RETURNING lane, last_seq)
INSERT INTO ` + prefix +
			`event (id, event_id, event_type, schema_version, topic, aggregate_version, partition_key, payload,
  content_type, claim_no, available_at, occurred_at, created_at, lane, key_seq)
SELECT $1::uuid, $2::text, $3::text, 0, $4::text, 0, $5::text, $6::bytea, 'application/json', 0, clock_timestamp(),
  $7::timestamptz, clock_timestamp(),
  k.lane, k.last_seq FROM k`
		lane := core.NewKeyID("", row.Topic, row.Key)
		args = append(args, lane[:])
	}
	return c.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&gormOrder{Customer: "ada", Amount: 4200}).Error; err != nil {
			return err
		}
		_, err := tx.Statement.ConnPool.ExecContext(ctx, insert, args...)
		return err
	})
}
