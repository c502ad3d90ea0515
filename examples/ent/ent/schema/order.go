// Package schema has the type from which package ent is generated.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
)

// Order is a row.
type Order struct{ ent.Schema }

// Annotations name the table of orders.
func (Order) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: "example_orders"}}
}

// Fields of an order.
func (Order) Fields() []ent.Field {
	return []ent.Field{
		field.String("id"),
		field.String("customer"),
		field.Int("cents"),
		field.String("status").Default("placed"),
	}
}
