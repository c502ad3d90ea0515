// Package schema has the types from which the second Ent client of the tests is generated, without
// the feature sql/execquery.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
)

// Note is a row with a text.
type Note struct{ ent.Schema }

// Annotations of the type.
func (Note) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: "e_notes"}}
}

// Fields of the type.
func (Note) Fields() []ent.Field { return []ent.Field{field.String("text").MaxLen(100)} }
