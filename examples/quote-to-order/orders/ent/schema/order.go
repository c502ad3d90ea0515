// Package schema has the types from which package ent is generated, with the invariants of orders
// as constraints of the tables.
package schema

import (
	"time"

	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// Order is a captured order.
type Order struct{ ent.Schema }

// Annotations name the table and its checks.
func (Order) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{
		Table: "customer_order",
		Checks: map[string]string{
			"ck_order_status":     "status IN ('captured', 'completed')",
			"ck_order_open_lines": "open_lines >= 0",
			// An order is complete when the last of its lines is.
			"ck_order_completed": "(status = 'completed') = (completed_at IS NOT NULL)" +
				" AND (status = 'captured' OR open_lines = 0)",
		},
	}}
}

// Fields of an order.
func (Order) Fields() []ent.Field {
	return []ent.Field{
		field.String("id"),
		field.String("tenant_id").Immutable(),
		field.String("source_quote_id").Immutable(),
		field.String("customer").Immutable(),
		field.String("status").Default("captured"),
		field.Int("open_lines"),
		field.Time("quote_accepted_at").Immutable(),
		field.Time("captured_at").Default(time.Now).Immutable(),
		field.Time("completed_at").Optional().Nillable(),
	}
}

// Edges of an order.
func (Order) Edges() []ent.Edge {
	return []ent.Edge{edge.To("lines", OrderLine.Type), edge.To("invoice", Invoice.Type).Unique()}
}

// Indexes of an order: a quote becomes one order, whatever the consumer believes.
func (Order) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("tenant_id", "source_quote_id").Unique().StorageKey("uq_order_source_quote"),
	}
}

// OrderLine is a line of an order.
type OrderLine struct{ ent.Schema }

// Annotations name the table and its checks.
func (OrderLine) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{
		Table: "order_line",
		Checks: map[string]string{
			"ck_line_status":    "status IN ('requested', 'completed')",
			"ck_line_quantity":  "quantity > 0",
			"ck_line_completed": "(status = 'completed') = (completed_at IS NOT NULL)",
		},
	}}
}

// Fields of a line.
func (OrderLine) Fields() []ent.Field {
	return []ent.Field{
		field.String("order_id").Immutable(),
		field.Int("line_no").Immutable(),
		field.String("sku").Immutable(),
		field.Int("quantity").Immutable(),
		field.Int64("cents").Immutable(),
		field.String("status").Default("requested"),
		field.Time("requested_at").Default(time.Now).Immutable(),
		field.Time("completed_at").Optional().Nillable(),
	}
}

// Edges of a line.
func (OrderLine) Edges() []ent.Edge {
	return []ent.Edge{edge.From("order", Order.Type).Ref("lines").Field("order_id").Unique().Required().Immutable()}
}

// Indexes of a line.
func (OrderLine) Indexes() []ent.Index {
	return []ent.Index{index.Fields("order_id", "line_no").Unique().StorageKey("uq_order_line")}
}

// Invoice is what the customer has to pay for a completed order.
type Invoice struct{ ent.Schema }

// Annotations name the table and its checks.
func (Invoice) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{
		Table: "invoice", Checks: map[string]string{"ck_invoice_cents": "cents >= 0"},
	}}
}

// Fields of an invoice.
func (Invoice) Fields() []ent.Field {
	return []ent.Field{field.String("order_id").Unique().Immutable(), field.Int64("cents").Immutable()}
}

// Edges of an invoice.
func (Invoice) Edges() []ent.Edge {
	return []ent.Edge{edge.From("order", Order.Type).Ref("invoice").Field("order_id").Unique().Required().Immutable()}
}
