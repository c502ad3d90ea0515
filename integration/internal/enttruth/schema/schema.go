// Package schema has the types of the tables of the oracle.
package schema

import (
	"context"
	"time"

	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
)

func table(name string) []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: name}}
}

// Parent has an id that the database generates, children, and tags that it shares.
type Parent struct{ ent.Schema }

// Annotations of the type.
func (Parent) Annotations() []schema.Annotation { return table("parents") }

// Fields of the type.
func (Parent) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"), field.String("name"), field.Int64("qty"), field.Int64("tenant").Default(1),
		field.Int64("updated_at").Default(0),
	}
}

// Edges of the type.
func (Parent) Edges() []ent.Edge {
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
		field.String("id"), field.String("name"), field.Int64("qty"), field.Int64("tenant").Default(1),
		field.Int64("parent_id").Optional().Nillable(),
	}
}

// Edges of the type.
func (Child) Edges() []ent.Edge {
	return []ent.Edge{edge.From("parent", Parent.Type).Ref("children").Field("parent_id").Unique()}
}

// Part belongs to one parent.
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
	return []ent.Edge{edge.From("parent", Parent.Type).Ref("part").Field("parent_id").Unique()}
}

// Tag is on many parents.
type Tag struct{ ent.Schema }

// Annotations of the type.
func (Tag) Annotations() []schema.Annotation { return table("tags") }

// Fields of the type.
func (Tag) Fields() []ent.Field {
	return []ent.Field{field.Int64("id"), field.String("name"), field.Int64("qty")}
}

// Edges of the type.
func (Tag) Edges() []ent.Edge { return []ent.Edge{edge.From("parents", Parent.Type).Ref("tags")} }

// Soft is deleted by an update.
type Soft struct{ ent.Schema }

// Annotations of the type.
func (Soft) Annotations() []schema.Annotation { return table("softs") }

// Fields of the type.
func (Soft) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id"), field.String("name"), field.Int64("qty"), field.Int64("tenant").Default(1),
		field.Time("deleted_at").Optional().Nillable(),
	}
}

// Deleter updates what a mutation would delete. The client cannot be imported here, so the tests set
// it.
var Deleter func(ctx context.Context, m ent.Mutation) (ent.Value, error)

// Hooks of the type make deletes soft, as the mixin does that Ent's documentation shows.
func (Soft) Hooks() []ent.Hook {
	return []ent.Hook{func(next ent.Mutator) ent.Mutator {
		return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
			if !m.Op().Is(ent.OpDelete | ent.OpDeleteOne) {
				return next.Mutate(ctx, m)
			}
			if err := m.SetField("deleted_at", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil {
				return nil, err
			}
			m.(interface{ SetOp(op ent.Op) }).SetOp(ent.OpUpdate)
			return Deleter(ctx, m)
		})
	}}
}
