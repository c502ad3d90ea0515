package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/uptrace/bun"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
)

// Order is a row. It records its events, and each statement that saves the order writes its events
// in the same transaction.
type Order struct {
	bun.BaseModel `bun:"table:example_orders"`

	ID            string `bun:",pk"`
	Customer      string
	Cents         int
	Status        string
	core.Recorder `bun:"-"`
}

// AggregateType makes "order" the topic of an order's events and "order/order-1" their key: they
// are published in the order of their commits, so an order is placed before it is paid.
func (*Order) AggregateType() string { return "order" }

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
	db     *bun.DB
	outbox *bunoutbox.Outbox
	last   atomic.Int64 // number of the last order; a real service uses UUIDs
}

// Place stores an order and its event: the model records the event, and the insert writes both.
func (s *Service) Place(ctx context.Context, customer string, cents int) (id string, err error) {
	err = s.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		id, err = s.create(ctx, tx, customer, cents)
		return err
	})
	return id, err
}

// Pay marks an order as paid and publishes the event explicitly, because it has no model that could
// record the event.
func (s *Service) Pay(ctx context.Context, id string) error {
	return s.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		res, err := tx.NewUpdate().Model((*Order)(nil)).Set("status = 'paid'").Where("id = ? AND status = 'placed'",
			id).Exec(ctx)
		if err != nil {
			return err
		}
		if paid, err := res.RowsAffected(); err != nil || paid == 0 {
			return errors.Join(err, fmt.Errorf("%s does not wait for money", id))
		}
		return s.outbox.Publish(ctx, tx, core.Event{
			Type: "order.paid", AggregateType: "order", AggregateID: id, Data: OrderPaid{OrderID: id},
		})
	})
}

// PlaceAndFail stores an order and its event, and then the card is declined: both are rolled back.
func (s *Service) PlaceAndFail(ctx context.Context, customer string, cents int) (id string, err error) {
	err = s.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if id, err = s.create(ctx, tx, customer, cents); err != nil {
			return err
		}
		return errors.New("card declined")
	})
	return id, err
}

func (s *Service) create(ctx context.Context, tx bun.Tx, customer string, cents int) (id string, err error) {
	o := &Order{ID: fmt.Sprint("order-", s.last.Add(1)), Customer: customer, Cents: cents, Status: "placed"}
	o.Record(OrderPlaced{OrderID: o.ID, Customer: customer, Cents: cents})
	_, err = tx.NewInsert().Model(o).Exec(ctx)
	return o.ID, err
}
