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
		field.String("customer").Immutable(),
		field.Int64("amount").Immutable(),
		field.Time("created_at").Default(time.Now).Immutable(),
	}
}

// SecondRow is an outbox written by hand. It has the columns that the application fills in, which
// never changes them: the others belong to the loop.
type SecondRow struct{ ent.Schema }

// Annotations implements ent.Interface.
func (SecondRow) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: "bench_outbox"}}
}

// Fields implements ent.Interface.
func (SecondRow) Fields() []ent.Field {
	return []ent.Field{
		field.String("id"),
		field.String("topic").Immutable(),
		field.String("type").Immutable(),
		field.String("key").Immutable(),
		field.Bytes("payload").Immutable(),
		field.Int16("status").Default(0).Immutable(),
		field.Int32("attempts").Default(0).Immutable(),
		field.Time("available_at").Immutable(),
		field.Time("created_at").Immutable(),
	}
}
