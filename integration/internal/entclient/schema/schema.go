// Package schema has the types from which the Ent client of the tests is generated.
package schema

import (
	"context"
	"errors"

	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"github.com/google/uuid"
)

// Order has an id that the database generates, lines of its own, and items that it shares with
// other orders.
type Order struct{ ent.Schema }

// Annotations of the type.
func (Order) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: "e_orders"}}
}

// Fields of the type.
func (Order) Fields() []ent.Field {
	return []ent.Field{
		field.String("name").Unique().MaxLen(100),
		field.String("status").Default("placed").MaxLen(100),
		field.Int("cents").Default(0),
	}
}

// Edges of the type.
func (Order) Edges() []ent.Edge {
	return []ent.Edge{edge.To("lines", Line.Type), edge.To("items", Item.Type)}
}

// Line belongs to one order, and has a UUID as its id.
type Line struct{ ent.Schema }

// Annotations of the type.
func (Line) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: "e_lines"}}
}

// Fields of the type.
func (Line) Fields() []ent.Field {
	return []ent.Field{field.UUID("id", uuid.UUID{}).Default(uuid.New), field.String("sku").MaxLen(100)}
}

// Item has an id that the database generates. It is on many orders, and a row of the capture suite.
type Item struct{ ent.Schema }

// Annotations of the type.
func (Item) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: "capture_items"}}
}

// Fields of the type.
func (Item) Fields() []ent.Field { return captureFields() }

// Edges of the type.
func (Item) Edges() []ent.Edge { return []ent.Edge{edge.From("orders", Order.Type).Ref("items")} }

// Document has a text that the program sets as its id. It is a row of the capture suite.
type Document struct{ ent.Schema }

// Annotations of the type.
func (Document) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: "capture_documents"}}
}

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

// Secret has a privacy policy and hooks of its own. The policy denies the owner "thief", and a hook
// replaces the owner "nobody".
type Secret struct{ ent.Schema }

// Annotations of the type.
func (Secret) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: "e_secrets"}}
}

// Fields of the type.
func (Secret) Fields() []ent.Field {
	return []ent.Field{field.String("owner").MaxLen(100), field.Bool("deleted").Default(false)}
}

// ErrDenied is the error of the policy for the owner "thief".
var ErrDenied = errors.New("denied")

type ownerMutation interface {
	Field(name string) (ent.Value, bool)
	SetField(name string, value ent.Value) error
}

type policy struct{}

func (policy) EvalMutation(_ context.Context, m ent.Mutation) error {
	if owner, ok := m.(ownerMutation).Field("owner"); ok && owner == "thief" {
		return ErrDenied
	}
	return nil
}

func (policy) EvalQuery(context.Context, ent.Query) error { return nil }

// Policy of the type.
func (Secret) Policy() ent.Policy { return policy{} }

// Hooks of the type: one replaces the owner "nobody", one makes deletes soft.
func (Secret) Hooks() []ent.Hook {
	return []ent.Hook{
		func(next ent.Mutator) ent.Mutator {
			return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
				if owner, ok := m.(ownerMutation).Field("owner"); ok && owner == "nobody" {
					if err := m.SetField("owner", "somebody"); err != nil {
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
		if err := m.SetField("deleted", true); err != nil {
			return nil, err
		}
		m.(interface{ SetOp(op ent.Op) }).SetOp(ent.OpUpdate)
		return Deleter(ctx, m)
	})
}
