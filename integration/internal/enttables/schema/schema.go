// Package schema declares the tables of the outbox for Ent's migration.
package schema

import (
	"entgo.io/ent"

	"github.com/ormoutbox/ormoutbox/entoutbox/entschema"
)

// OutboxEvent is the table of events.
type OutboxEvent struct{ ent.Schema }

// OutboxKey is the table of keys.
type OutboxKey struct{ ent.Schema }

// OutboxAudit is the table of manual actions.
type OutboxAudit struct{ ent.Schema }

// OutboxRelay is the table of the relays that run.
type OutboxRelay struct{ ent.Schema }

// OutboxPlan is the table of the plans of operators.
type OutboxPlan struct{ ent.Schema }

// OutboxPause is the table of the pauses.
type OutboxPause struct{ ent.Schema }

// OutboxGroup is the table of the notes on groups of failures.
type OutboxGroup struct{ ent.Schema }

// Mixin brings the table.
func (OutboxEvent) Mixin() []ent.Mixin { return []ent.Mixin{entschema.Event{}} }

// Mixin brings the table.
func (OutboxKey) Mixin() []ent.Mixin { return []ent.Mixin{entschema.Key{}} }

// Mixin brings the table.
func (OutboxAudit) Mixin() []ent.Mixin { return []ent.Mixin{entschema.Audit{}} }

// Mixin brings the table.
func (OutboxRelay) Mixin() []ent.Mixin { return []ent.Mixin{entschema.Relay{}} }

// Mixin brings the table.
func (OutboxPlan) Mixin() []ent.Mixin { return []ent.Mixin{entschema.Plan{}} }

// Mixin brings the table.
func (OutboxPause) Mixin() []ent.Mixin { return []ent.Mixin{entschema.Pause{}} }

// Mixin brings the table.
func (OutboxGroup) Mixin() []ent.Mixin { return []ent.Mixin{entschema.Group{}} }
