package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/examples/ent/ent"
	"github.com/ormoutbox/ormoutbox/examples/ent/ent/order"
)

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

// placed returns the event of a new order, which is written in the transaction that creates the
// order. The id becomes the event's AggregateID. AggregateType is the topic of an order's events,
// and both are their key: they are published in the order of their commits, so an order is placed
// before it is paid.
func placed(ctx context.Context, _ *ent.OrderMutation, v ent.Value) ([]core.Event, error) {
	if entoutbox.OpOf(ctx) != core.OpCreate {
		return nil, nil
	}
	o := v.(*ent.Order)
	return []core.Event{{
		AggregateType: "order",
		Data:          OrderPlaced{OrderID: o.ID, Customer: o.Customer, Cents: o.Cents},
	}}, nil
}

// Service takes orders.
type Service struct {
	client *ent.Client
	outbox *entoutbox.Outbox
	last   atomic.Int64 // number of the last order; a real service uses UUIDs
}

// Place stores an order; the function placed derives its event. WithTx begins and commits the
// transaction, and rolls it back after errors and panics. Ent has no such function.
func (s *Service) Place(ctx context.Context, customer string, cents int) (id string, err error) {
	err = entoutbox.WithTx(ctx, s.client.Tx, func(ctx context.Context, tx *ent.Tx) error {
		id, err = s.create(ctx, tx, customer, cents)
		return err
	})
	return id, err
}

// Pay marks an order as paid and publishes the event explicitly.
func (s *Service) Pay(ctx context.Context, id string) error {
	return entoutbox.WithTx(ctx, s.client.Tx, func(ctx context.Context, tx *ent.Tx) error {
		err := tx.Order.UpdateOneID(id).Where(order.Status("placed")).SetStatus("paid").Exec(ctx)
		if ent.IsNotFound(err) {
			return fmt.Errorf("%s does not wait for money", id)
		}
		if err != nil {
			return err
		}
		return s.outbox.Publish(ctx, tx, core.Event{
			Type: "order.paid", AggregateType: "order", AggregateID: id, Data: OrderPaid{OrderID: id},
		})
	})
}

// PlaceAndFail stores an order and its event, and then the card is declined: both are rolled back.
func (s *Service) PlaceAndFail(ctx context.Context, customer string, cents int) (id string, err error) {
	err = entoutbox.WithTx(ctx, s.client.Tx, func(ctx context.Context, tx *ent.Tx) error {
		if id, err = s.create(ctx, tx, customer, cents); err != nil {
			return err
		}
		return errors.New("card declined")
	})
	return id, err
}

func (s *Service) create(ctx context.Context, tx *ent.Tx, customer string, cents int) (id string, err error) {
	id = fmt.Sprint("order-", s.last.Add(1))
	return id, tx.Order.Create().SetID(id).SetCustomer(customer).SetCents(cents).Exec(ctx)
}
