package entoutbox_test

import (
	"context"
	"database/sql"
	"slices"

	"entgo.io/ent"
	"entgo.io/ent/dialect"

	"github.com/ormoutbox/ormoutbox/entoutbox"
)

// The examples need these parts of a client that Ent generates with the feature sql/execquery.

type Client struct {
	Order  *OrderClient
	driver dialect.Driver
	hooks  []ent.Hook
}

type OrderClient struct{}

// Tx is a transaction of Client.
type Tx struct {
	dialect.Tx
	client *Client
}

// Order is an entity.
type Order struct {
	ID     int
	Status string
}

// OrderMutation is the mutation that hooks get.
type OrderMutation struct {
	ent.Mutation
	tx    *Tx
	order *Order
}

func NewClient(drv dialect.Driver) *Client { return &Client{driver: drv} }

func (c *Client) Use(hooks ...ent.Hook) { c.hooks = append(c.hooks, hooks...) }

func (c *Client) Tx(ctx context.Context) (*Tx, error) {
	tx, err := c.driver.Tx(ctx)
	if err != nil {
		return nil, err
	}
	return &Tx{Tx: tx, client: c}, nil
}

func (*OrderClient) Get(context.Context, int) (*Order, error) { return nil, sql.ErrNoRows }

func (tx *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return tx.Tx.(entoutbox.Conn).ExecContext(ctx, query, args...)
}

func (m *OrderMutation) Op() ent.Op      { return ent.OpCreate }
func (m *OrderMutation) Type() string    { return "Order" }
func (m *OrderMutation) ID() (int, bool) { return m.order.ID, m.order.ID != 0 }
func (m *OrderMutation) Client() *Client { return m.tx.client }
func (m *OrderMutation) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return m.tx.ExecContext(ctx, query, args...)
}

// CreateOrder stands for tx.Order.Create().SetStatus(status).Save(ctx).
func (tx *Tx) CreateOrder(ctx context.Context, status string) (*Order, error) {
	order := &Order{Status: status}
	var mutator ent.Mutator = ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
		var res sql.Result
		if err := tx.Exec(ctx, "INSERT INTO orders (status) VALUES (?)", []any{status}, &res); err != nil {
			return nil, err
		}
		id, err := res.LastInsertId()
		order.ID = int(id)
		return order, err
	})
	for _, hook := range slices.Backward(tx.client.hooks) {
		mutator = hook(mutator)
	}
	_, err := mutator.Mutate(ctx, &OrderMutation{tx: tx, order: order})
	return order, err
}
