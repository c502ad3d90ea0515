// Package schema has the types from which the second Ent client of the tests is generated, without
// the feature sql/execquery.
package schema

import (
	"slices"

	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
	"github.com/google/uuid"

	"github.com/ormoutbox/ormoutbox/entoutbox/entschema"
)

// Note is a row with a text. Its id is a UUID.
type Note struct{ ent.Schema }

// OutboxEvent is the table of events.
type OutboxEvent struct{ ent.Schema }

// Annotations of the type.
func (Note) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: "e_notes"}}
}

// Fields of the type.
func (Note) Fields() []ent.Field {
	return []ent.Field{field.UUID("id", uuid.UUID{}).Default(uuid.New), field.String("text").MaxLen(100)}
}

// Mixin brings the table. The generated code reads what the tests read.
func (OutboxEvent) Mixin() []ent.Mixin {
	return []ent.Mixin{readOnly{entschema.Event{}, []string{
		"id", "event_type", "aggregate_id", "headers", "payload", "status", "occurred_at", "done_at",
	}}}
}

// readOnly leaves fields and the setters of updates out of the generated code.
type readOnly struct {
	ent.Mixin
	fields []string
}

// Fields implements ent.Mixin.
func (m readOnly) Fields() (fields []ent.Field) {
	for _, f := range m.Mixin.Fields() {
		if d := f.Descriptor(); slices.Contains(m.fields, d.Name) {
			d.Immutable = true
			fields = append(fields, f)
		}
	}
	return fields
}

// Indexes implements ent.Mixin: the tests create the tables without the generated code.
func (readOnly) Indexes() []ent.Index { return nil }
