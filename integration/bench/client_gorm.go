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

func openGORM(db *sql.DB, cfg *outboxConfig) (ormClient, error) {
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
