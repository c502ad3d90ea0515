package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/ormoutbox/ormoutbox/core"
)

const (
	ordersFile = "orders.db" // the orders and their outbox
	topic      = "orders"

	customers = 12
	clerks    = 4                      // goroutines that take orders
	openHours = 3 * time.Second        // time in which all orders come, if they can be taken that fast
	maxPause  = 100 * time.Millisecond // limit of the average pause of a clerk between two orders
	declined  = 0.1                    // share of the orders that are rolled back at the end of their transaction
)

// pragmas: a kill cannot undo SQLite's writes, so only a power cut would need synchronous=FULL.
// Transactions lock at their beginning, because a transaction that has read cannot write after
// another one has written.
const pragmas = "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_txlock=immediate"

// Order is a row of the business, and records what happened to it.
type Order struct {
	ID       string `gorm:"primaryKey"`
	Customer string `gorm:"uniqueIndex:customer_number"`
	Number   int    `gorm:"uniqueIndex:customer_number"` // 1, 2, 3 ... of the customer
	Cents    int

	core.Recorder `gorm:"-"`
}

// OrderPlaced is the event.
type OrderPlaced struct {
	OrderID  string `json:"order_id"`
	Customer string `json:"customer"`
	Number   int    `json:"number"`
	Cents    int    `json:"cents"`
}

// Place makes o the customer's next order. Events of one customer are published in order, because
// the customer is their aggregate.
func (o *Order) Place(number int) {
	o.Number = number
	o.Record(core.Event{
		Type: "order.placed", Topic: topic, AggregateType: "customer", AggregateID: o.Customer,
		AggregateVersion: int64(number), Data: OrderPlaced{
			OrderID: o.ID, Customer: o.Customer, Number: number,
			Cents: o.Cents,
		},
	})
}

func openOrders(ctx context.Context, file string) (*gorm.DB, error) {
	db, err := gorm.Open(sqlite.Dialector{DriverName: "sqlite", DSN: file + pragmas},
		&gorm.Config{Logger: logger.Discard})
	if err != nil {
		return nil, fmt.Errorf("open orders: %w", err)
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(1) // SQLite has one writer: transactions queue here, first come first served
	if err := db.WithContext(ctx).AutoMigrate(&Order{}); err != nil {
		return nil, fmt.Errorf("create orders: %w", err)
	}
	return db, nil
}

// takeOrders takes orders until there are total.
func takeOrders(ctx context.Context, db *gorm.DB, total int, report reporter) error {
	var taken int64
	if err := db.WithContext(ctx).Model(&Order{}).Count(&taken).Error; err != nil {
		return err
	}
	report.say(fmt.Sprint(sayTaken, " ", taken))
	var left atomic.Int64
	left.Store(int64(total) - taken)
	pause := min(openHours*clerks/time.Duration(total), maxPause)

	var group sync.WaitGroup
	problems := make([]error, clerks)
	for clerk := range clerks {
		group.Go(func() {
			for problems[clerk] == nil && left.Add(-1) >= 0 {
				time.Sleep(mathrand.N(2*pause + 1))
				problems[clerk] = takeOrder(ctx, db, report)
			}
		})
	}
	group.Wait()
	return errors.Join(problems...)
}

var errDeclined = errors.New("payment declined")

// takeOrder commits one order. Declined ones before it were rolled back, after their row and their
// event had been written.
func takeOrder(ctx context.Context, db *gorm.DB, report reporter) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		order := &Order{
			ID: rand.Text(), Customer: fmt.Sprintf("customer-%02d", 1+mathrand.IntN(customers)),
			Cents: 100 + mathrand.IntN(9900),
		}
		err := db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			var last int
			if err := tx.Model(&Order{}).Where("customer = ?",
				order.Customer).Select("coalesce(max(number), 0)").Scan(&last).Error; err != nil {
				return err
			}
			order.Place(last + 1)
			if err := tx.Create(order).Error; err != nil { // the row and its event
				return err
			}
			if mathrand.Float64() < declined {
				return errDeclined
			}
			return nil
		})
		switch {
		case err == nil:
			report.say(sayCommitted)
			return nil
		case errors.Is(err, errDeclined):
			report.say(sayRolledBack)
		default:
			return fmt.Errorf("take order: %w", err)
		}
	}
}
