package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

const createOrders = "CREATE TABLE example_orders (id VARCHAR(64) PRIMARY KEY, customer VARCHAR(64), cents INTEGER, " +
	"status VARCHAR(16))"

// OrderPlaced is an event.
type OrderPlaced struct {
	OrderID  string `json:"order_id"`
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

// OrderPaid is an event.
type OrderPaid struct {
	OrderID string `json:"order_id"`
}

// Service takes orders.
type Service struct {
	db     *sql.DB
	outbox *core.Outbox
	last   atomic.Int64 // number of the last order; a real service uses UUIDs
}

// Place stores an order and publishes the event.
func (s *Service) Place(ctx context.Context, customer string, cents int) (id string, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		id, err = s.create(ctx, tx, customer, cents)
		return err
	})
	return id, err
}

// Pay marks an order as paid and publishes the event.
func (s *Service) Pay(ctx context.Context, id string) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		paid, err := tx.ExecContext(ctx,
			"UPDATE example_orders SET status = 'paid' WHERE id = $1 AND status = 'placed'", id)
		if err != nil {
			return err
		}
		if n, err := paid.RowsAffected(); err != nil || n == 0 {
			return errors.Join(fmt.Errorf("%s does not wait for money", id), err)
		}
		return s.publish(ctx, tx, id, "order.paid", OrderPaid{OrderID: id})
	})
}

// PlaceAndFail stores an order and its event, and then the card is declined: both are rolled back.
func (s *Service) PlaceAndFail(ctx context.Context, customer string, cents int) (id string, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		if id, err = s.create(ctx, tx, customer, cents); err != nil {
			return err
		}
		return errors.New("card declined")
	})
	return id, err
}

func (s *Service) create(ctx context.Context, tx *sql.Tx, customer string, cents int) (id string, err error) {
	id = fmt.Sprint("order-", s.last.Add(1))
	_, err = tx.ExecContext(ctx, "INSERT INTO example_orders (id, customer, cents, status) VALUES ($1, $2, $3, "+
		"'placed')", id, customer, cents)
	if err != nil {
		return id, err
	}
	return id, s.publish(ctx, tx, id, "order.placed", OrderPlaced{OrderID: id, Customer: customer, Cents: cents})
}

// publish writes an event in the transaction. "order/order-1" becomes its key, so the events of an
// order are published in the order of their commits.
func (s *Service) publish(ctx context.Context, tx *sql.Tx, id, eventType string, data any) error {
	otx, err := sqltx.TxOf(ctx, tx)
	if err != nil {
		return err
	}
	_, err = s.outbox.Publish(ctx, otx, core.Event{
		Type: eventType, AggregateType: "order", AggregateID: id,
		Data: data,
	})
	return err
}

func (s *Service) inTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after Commit it does nothing
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}
