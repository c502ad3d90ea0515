// Package schema has the types from which the Ent client of the tests is generated. Those with the
// tables of the oracle are of package truth too.
package schema

import (
	"context"
	"errors"
	"time"

	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"github.com/google/uuid"
)

func table(name string) []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: name}}
}

// Order has an id that the database generates, children of its own, tags that it shares with other
// orders, and one part. Its table is that of the oracle's parents.
type Order struct{ ent.Schema }

// Annotations of the type.
func (Order) Annotations() []schema.Annotation { return table("parents") }

// Fields of the type.
func (Order) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"), field.String("name").Unique().MaxLen(64), field.Int64("qty").Default(0),
		field.Int64("tenant").Default(1), field.Int64("updated_at").Default(0),
	}
}

// Edges of the type.
func (Order) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("children", Child.Type),
		edge.To("tags", Tag.Type).StorageKey(edge.Table("parents_tags"), edge.Columns("parent_id", "tag_id")),
		edge.To("part", Part.Type).Unique(),
	}
}

// Child has a text as its id.
type Child struct{ ent.Schema }

// Annotations of the type.
func (Child) Annotations() []schema.Annotation { return table("children") }

// Fields of the type.
func (Child) Fields() []ent.Field {
	return []ent.Field{
		field.String("id").MaxLen(64), field.String("name"), field.Int64("qty").Default(0),
		field.Int64("tenant").Default(1), field.Int64("parent_id").Optional().Nillable(),
	}
}

// Edges of the type.
func (Child) Edges() []ent.Edge {
	return []ent.Edge{edge.From("parent", Order.Type).Ref("children").Field("parent_id").Unique()}
}

// Part belongs to one order.
type Part struct{ ent.Schema }

// Annotations of the type.
func (Part) Annotations() []schema.Annotation { return table("parts") }

// Fields of the type.
func (Part) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"), field.String("name"), field.Int64("qty"), field.Int64("parent_id").Optional().Nillable(),
	}
}

// Edges of the type.
func (Part) Edges() []ent.Edge {
	return []ent.Edge{edge.From("parent", Order.Type).Ref("part").Field("parent_id").Unique()}
}

// Tag is on many orders.
type Tag struct{ ent.Schema }

// Annotations of the type.
func (Tag) Annotations() []schema.Annotation { return table("tags") }

// Fields of the type.
func (Tag) Fields() []ent.Field {
	return []ent.Field{field.Int64("id"), field.String("name"), field.Int64("qty").Default(0)}
}

// Edges of the type.
func (Tag) Edges() []ent.Edge { return []ent.Edge{edge.From("orders", Order.Type).Ref("tags")} }

// Item has an id that the database generates. It is a row of the capture suite.
type Item struct{ ent.Schema }

// Annotations of the type.
func (Item) Annotations() []schema.Annotation { return table("capture_items") }

// Fields of the type.
func (Item) Fields() []ent.Field { return captureFields() }

// Document has a text that the program sets as its id. It is a row of the capture suite.
type Document struct{ ent.Schema }

// Annotations of the type.
func (Document) Annotations() []schema.Annotation { return table("capture_documents") }

// Fields of the type.
func (Document) Fields() []ent.Field {
	return append([]ent.Field{field.String("id").MaxLen(64)}, captureFields()...)
}

func captureFields() []ent.Field {
	return []ent.Field{
		field.String("name").Unique().MaxLen(64).DefaultFunc(uuid.NewString),
		field.String("note").MaxLen(64).Default(""), field.Int64("stock").Default(0),
	}
}

// Soft is deleted by an update. It has a privacy policy and hooks of its own: the policy denies the
// name "thief", and a hook replaces the name "nobody".
type Soft struct{ ent.Schema }

// Annotations of the type.
func (Soft) Annotations() []schema.Annotation { return table("softs") }

// Fields of the type.
func (Soft) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"), field.String("name"), field.Int64("qty").Default(0), field.Int64("tenant").Default(1),
		field.Time("deleted_at").Optional().Nillable(),
	}
}

// ErrDenied is the error of the policy for the name "thief".
var ErrDenied = errors.New("denied")

type fieldMutation interface {
	Field(name string) (ent.Value, bool)
	SetField(name string, value ent.Value) error
}

type policy struct{}

func (policy) EvalMutation(_ context.Context, m ent.Mutation) error {
	if name, ok := m.(fieldMutation).Field("name"); ok && name == "thief" {
		return ErrDenied
	}
	return nil
}

func (policy) EvalQuery(context.Context, ent.Query) error { return nil }

// Policy of the type.
func (Soft) Policy() ent.Policy { return policy{} }

// Hooks of the type: one replaces the name "nobody", one makes deletes soft.
func (Soft) Hooks() []ent.Hook {
	return []ent.Hook{
		func(next ent.Mutator) ent.Mutator {
			return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
				if name, ok := m.(fieldMutation).Field("name"); ok && name == "nobody" {
					if err := m.SetField("name", "somebody"); err != nil {
						return nil, err
					}
				}
				return next.Mutate(ctx, m)
			})
		},
		SoftDelete,
	}
}

// Deleter does the step of SoftDelete that needs the client of the mutation. The client cannot be
// imported here, so a test sets Deleter.
var Deleter func(ctx context.Context, m ent.Mutation) (ent.Value, error)

// SoftDelete turns deletes into updates, as the mixins do that Ent's documentation shows.
func SoftDelete(next ent.Mutator) ent.Mutator {
	return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
		if !m.Op().Is(ent.OpDelete|ent.OpDeleteOne) || Deleter == nil {
			return next.Mutate(ctx, m)
		}
		if err := m.SetField("deleted_at", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil {
			return nil, err
		}
		m.(interface{ SetOp(op ent.Op) }).SetOp(ent.OpUpdate)
		return Deleter(ctx, m)
	})
}
