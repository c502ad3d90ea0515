package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"path/filepath"
	"time"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

const (
	shopFile  = "shop.db"
	limit     = 9000 // cents that the partner takes in the first part of a minute
	pause     = 40 * time.Millisecond
	customers = 5000
)

// pragmas are those of package demo: a kill cannot undo SQLite's writes.
const pragmas = "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_txlock=immediate"

// Order is a row of the business, and records what happened to it.
type Order struct {
	ID       string `gorm:"primaryKey"`
	Customer string
	Cents    int

	core.Recorder `gorm:"-"`
}

func openOrders(ctx context.Context, dir string) (*gorm.DB, error) {
	db, err := gorm.Open(sqlite.Dialector{DriverName: "sqlite", DSN: filepath.Join(dir, shopFile) + pragmas},
		&gorm.Config{Logger: logger.Discard})
	if err != nil {
		return nil, fmt.Errorf("open orders: %w", err)
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(1) // SQLite has one writer
	return db, db.WithContext(ctx).AutoMigrate(&Order{})
}

// openShop takes orders and relays their events until it is killed.
func openShop(ctx context.Context, dir string) error {
	db, err := openOrders(ctx, dir)
	if err != nil {
		return err
	}
	cfg := gormoutbox.Config{
		AutoCreate: true, Logger: slog.New(slog.DiscardHandler), Publisher: core.PublisherFunc(deliver),
	}
	cfg.Relay.PublishTimeout = 400 * time.Millisecond // short leases: what a kill leaves comes back soon
	cfg.Relay.LeaseMargin = 50 * time.Millisecond
	cfg.Relay.HotLease, cfg.Relay.ClaimLease = 900*time.Millisecond, 900*time.Millisecond
	cfg.Relay.MaxCrashes = 1 << 30 // no event causes the kills
	ob := gormoutbox.Plugin(cfg)
	if err := db.Use(ob); err != nil {
		return err
	}
	relayed := make(chan error, 1)
	go func() { relayed <- ob.Run(ctx) }()
	for {
		select {
		case err := <-relayed:
			return err
		case <-time.After(mathrand.N(2 * pause)):
		}
		if err := takeOrder(ctx, db); err != nil {
			return err
		}
	}
}

func takeOrder(ctx context.Context, db *gorm.DB) error {
	o := &Order{
		ID: rand.Text(), Customer: fmt.Sprintf("customer-%04d", mathrand.IntN(customers)), Cents: 100 +
			mathrand.IntN(9900),
	}
	o.Record(core.Event{
		Type: "order.placed", Topic: "orders", AggregateType: "customer", AggregateID: o.Customer,
		Data: map[string]any{"order": o.ID, "customer": o.Customer, "cents": o.Cents},
	})
	if o.Cents%3 == 0 {
		o.Record(core.Event{
			Type: "mail.due", Topic: "mail", AggregateType: "customer", AggregateID: o.Customer,
			Data: map[string]any{"to": o.Customer + "@example.com", "order": o.ID},
		})
	}
	return db.WithContext(ctx).Create(o).Error
}

var errMail = errors.New("dial tcp mail.internal:25: connect: connection refused")

// deliver is the broker of the shop. Its rules go by the clock, so a kill changes none of them.
func deliver(_ context.Context, d core.Delivery) error {
	now := time.Now()
	switch d.Topic {
	case "mail":
		if now.Minute()%3 == 2 {
			return core.Unavailable(errMail)
		}
	case "orders":
		var order struct{ Cents int }
		if err := json.Unmarshal(d.Payload, &order); err != nil {
			return core.Permanent(err)
		}
		if now.Second() < 20 && order.Cents > limit {
			return core.Permanent(fmt.Errorf("amount %d is above the partner's limit of %d", order.Cents, limit))
		}
	}
	return nil
}
