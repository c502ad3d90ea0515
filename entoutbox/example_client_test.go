package entoutbox_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"entgo.io/ent"
	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/entoutbox"
)

// The examples need these parts of a client that Ent generates with the feature sql/execquery.

type config struct {
	driver dialect.Driver
	hooks  *hooks
}

type hooks struct{ Order []ent.Hook }

func (c config) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	conn, ok := c.driver.(entoutbox.Conn)
	if !ok {
		return nil, errors.New("the driver has no ExecContext")
	}
	return conn.ExecContext(ctx, query, args...)
}

type Client struct {
	config
	Order *OrderClient
}

type OrderClient struct{ config }

// Tx is a transaction of Client.
type Tx struct {
	config
	Order *OrderClient
	tx    dialect.Tx
}

// Order is an entity.
type Order struct {
	config `json:"-"`

	ID     int
	Status string
}

// OrderMutation is the mutation that hooks get.
type OrderMutation struct {
	config
	ent.Mutation
	status string
	id     *int
	done   bool
}

type OrderQuery struct {
	config
	inters []ent.Interceptor //nolint:unused // the outbox looks for it, as generated code has it
}

func NewClient(drv dialect.Driver) *Client {
	c := config{drv, &hooks{}}
	return &Client{config: c, Order: &OrderClient{c}}
}

func (c *Client) Use(hooks ...ent.Hook) { c.hooks.Order = append(c.hooks.Order, hooks...) }

func (c *Client) Tx(ctx context.Context) (*Tx, error) {
	tx, err := c.driver.Tx(ctx)
	if err != nil {
		return nil, err
	}
	cfg := config{txDriver{c.driver, tx}, c.hooks}
	return &Tx{config: cfg, Order: &OrderClient{cfg}, tx: tx}, nil
}

func (tx *Tx) Commit() error   { return tx.tx.Commit() }
func (tx *Tx) Rollback() error { return tx.tx.Rollback() }

type txDriver struct {
	dialect.Driver
	tx dialect.Tx
}

func (d txDriver) Exec(ctx context.Context, query string, args, v any) error {
	return d.tx.Exec(ctx, query, args, v)
}

func (d txDriver) Query(ctx context.Context, query string, args, v any) error {
	return d.tx.Query(ctx, query, args, v)
}

func (d txDriver) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	conn, ok := d.tx.(entoutbox.Conn)
	if !ok {
		return nil, errors.New("the transaction has no ExecContext")
	}
	return conn.ExecContext(ctx, query, args...)
}

func (c *OrderClient) Query() *OrderQuery { return &OrderQuery{config: c.config} }

func (q *OrderQuery) All(ctx context.Context) ([]*Order, error) {
	rows := &entsql.Rows{}
	if err := q.driver.Query(ctx, `SELECT "orders"."id", "orders"."status" FROM "orders"`, []any{}, rows); err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []*Order
	for rows.Next() {
		o := &Order{config: q.config}
		if err := rows.Scan(&o.ID, &o.Status); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, rows.Err()
}

func (m *OrderMutation) Op() ent.Op   { return ent.OpCreate }
func (m *OrderMutation) Type() string { return "Order" }
func (m *OrderMutation) ID() (int, bool) {
	if m.id == nil {
		return 0, false
	}
	return *m.id, true
}

func (m *OrderMutation) Client() *Client {
	return &Client{config: m.config, Order: &OrderClient{m.config}}
}

// CreateOrder stands for tx.Order.Create().SetStatus(status).Save(ctx).
func (tx *Tx) CreateOrder(ctx context.Context, status string) (*Order, error) {
	return tx.Order.create(ctx, status)
}

// CreateOrder stands for client.Order.Create().SetStatus(status).Save(ctx).
func (c *Client) CreateOrder(ctx context.Context, status string) (*Order, error) {
	return c.Order.create(ctx, status)
}

func (c *OrderClient) create(ctx context.Context, status string) (*Order, error) {
	order := &Order{config: c.config, Status: status}
	m := &OrderMutation{config: c.config, status: status}
	var mutator ent.Mutator = ent.MutateFunc(func(ctx context.Context, _ ent.Mutation) (ent.Value, error) {
		rows := &entsql.Rows{}
		if err := c.driver.Query(ctx, `INSERT INTO "orders" ("status") VALUES ($1) RETURNING "id"`, []any{m.status},
			rows); err != nil {
			return nil, err
		}
		defer rows.Close()
		id, err := entsql.ScanInt(rows)
		order.ID, m.id, m.done = id, &order.ID, true
		return order, err
	})
	for _, hook := range slices.Backward(c.hooks.Order) {
		mutator = hook(mutator)
	}
	_, err := mutator.Mutate(ctx, m)
	return order, err
}
