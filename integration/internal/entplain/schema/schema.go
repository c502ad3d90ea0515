// Package schema has the types from which the second Ent client of the tests is generated, without
// the feature sql/execquery.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"

	"github.com/ormoutbox/ormoutbox/entoutbox/entschema"
)

// Note is a row with a text.
type Note struct{ ent.Schema }

// OutboxEvent is the table of events.
type OutboxEvent struct{ ent.Schema }

// OutboxKey is the table of keys.
type OutboxKey struct{ ent.Schema }

// Annotations of the type.
func (Note) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: "e_notes"}}
}

// Fields of the type.
func (Note) Fields() []ent.Field { return []ent.Field{field.String("text").MaxLen(100)} }

// Mixin brings the table.
func (OutboxEvent) Mixin() []ent.Mixin { return []ent.Mixin{readOnly{entschema.Event{}}} }

// Mixin brings the table.
func (OutboxKey) Mixin() []ent.Mixin { return []ent.Mixin{readOnly{entschema.Key{}}} }

// readOnly leaves the setters of updates out of the generated code: only the outbox writes rows.
type readOnly struct{ ent.Mixin }

// Fields implements ent.Mixin.
func (m readOnly) Fields() []ent.Field {
	fields := m.Mixin.Fields()
	for _, f := range fields {
		f.Descriptor().Immutable = true
	}
	return fields
}
