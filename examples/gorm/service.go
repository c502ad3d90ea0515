package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

// Order is a row. It records its events, and each statement that saves the order writes its events
// in the same transaction.
type Order struct {
	ID            string `gorm:"primaryKey"`
	Customer      string
	Cents         int
	Status        string
	core.Recorder `gorm:"-"`
}

// TableName names the table of orders for GORM.
func (Order) TableName() string { return "example_orders" }

// AggregateType makes "order" the topic of an order's events and "order/order-1" their key: they
// are published in the order of their commits, so an order is placed before it is paid.
func (Order) AggregateType() string { return "order" }

// OrderPlaced is an event.
type OrderPlaced struct {
	OrderID  string `json:"order_id"`
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

// EventType names the event.
func (OrderPlaced) EventType() string { return "order.placed" }

// OrderPaid is an event.
type OrderPaid struct {
	OrderID string `json:"order_id"`
}

// Service takes orders.
type Service struct {
	db   *gorm.DB
	last atomic.Int64 // number of the last order; a real service uses UUIDs
}

// Place stores an order and its event: the model records the event, and Create writes both in the
// transaction that GORM opens for it.
func (s *Service) Place(ctx context.Context, customer string, cents int) (id string, err error) {
	return s.create(s.db.WithContext(ctx), customer, cents)
}

// Pay marks an order as paid and publishes the event explicitly, because it has no model that could
// record the event.
func (s *Service) Pay(ctx context.Context, id string) error {
	return s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		paid := tx.Model(&Order{}).Where("id = ? AND status = 'placed'", id).Update("status", "paid")
		if paid.Error != nil {
			return paid.Error
		}
		if paid.RowsAffected == 0 {
			return fmt.Errorf("%s does not wait for money", id)
		}
		return gormoutbox.Publish(tx.Statement.Context, tx, core.Event{
			Type: "order.paid", AggregateType: "order", AggregateID: id, Data: OrderPaid{OrderID: id},
		})
	})
}

// PlaceAndFail stores an order and its event, and then the card is declined: both are rolled back.
func (s *Service) PlaceAndFail(ctx context.Context, customer string, cents int) (id string, err error) {
	err = s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if id, err = s.create(tx, customer, cents); err != nil {
			return err
		}
		return errors.New("card declined")
	})
	return id, err
}

func (s *Service) create(tx *gorm.DB, customer string, cents int) (id string, err error) {
	o := &Order{ID: fmt.Sprint("order-", s.last.Add(1)), Customer: customer, Cents: cents, Status: "placed"}
	o.Record(OrderPlaced{OrderID: o.ID, Customer: customer, Cents: cents})
	return o.ID, tx.Create(o).Error
}
