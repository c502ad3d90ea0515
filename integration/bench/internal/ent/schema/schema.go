// Package schema declares the tables of the benchmark for Ent.
package schema

import (
	"time"

	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
)

// Order is the business row.
type Order struct{ ent.Schema }

// Annotations implements ent.Interface.
func (Order) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: "bench_order"}}
}

// Fields implements ent.Interface.
func (Order) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"),
		field.String("customer"),
		field.Int64("amount"),
		field.Time("created_at").Default(time.Now),
	}
}

// SecondRow is an outbox written by hand.
type SecondRow struct{ ent.Schema }

// Annotations implements ent.Interface.
func (SecondRow) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: "bench_outbox"}}
}

// Fields implements ent.Interface.
func (SecondRow) Fields() []ent.Field {
	return []ent.Field{
		field.String("id"),
		field.String("topic"),
		field.String("type"),
		field.String("key"),
		field.Bytes("payload"),
		field.Int16("status").Default(0),
		field.Int32("attempts").Default(0),
		field.Time("available_at"),
		field.Time("created_at"),
		field.String("claimed_by").Optional().Nillable(),
		field.Time("lease_until").Optional().Nillable(),
		field.Time("done_at").Optional().Nillable(),
	}
}
