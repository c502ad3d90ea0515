// Package entschema lets Ent's migration create the tables of the outbox, together with the
// application's tables.
//
// Declare the tables in the schema folder of the project:
//
//	type OutboxEvent struct{ ent.Schema }
//	type OutboxKey struct{ ent.Schema }
//	type OutboxAudit struct{ ent.Schema }
//	type OutboxRelay struct{ ent.Schema }
//	type OutboxPlan struct{ ent.Schema }
//	type OutboxPause struct{ ent.Schema }
//	type OutboxGroup struct{ ent.Schema }
//	type OutboxHistory struct{ ent.Schema }
//
//	func (OutboxEvent) Mixin() []ent.Mixin { return []ent.Mixin{entschema.Event{}} }
//	func (OutboxKey) Mixin() []ent.Mixin   { return []ent.Mixin{entschema.Key{}} }
//	func (OutboxAudit) Mixin() []ent.Mixin { return []ent.Mixin{entschema.Audit{}} }
//	func (OutboxRelay) Mixin() []ent.Mixin { return []ent.Mixin{entschema.Relay{}} }
//	func (OutboxPlan) Mixin() []ent.Mixin  { return []ent.Mixin{entschema.Plan{}} }
//	func (OutboxPause) Mixin() []ent.Mixin { return []ent.Mixin{entschema.Pause{}} }
//	func (OutboxGroup) Mixin() []ent.Mixin { return []ent.Mixin{entschema.Group{}} }
//	func (OutboxHistory) Mixin() []ent.Mixin { return []ent.Mixin{entschema.History{}} }
//
// Give the migration its options:
//
//	err := client.Schema.Create(ctx, entschema.MigrateOptions("")...)
//
// Tools that read the schema alone (Atlas with an ent:// address) do not get the options. On
// PostgreSQL and SQLite their tables lack only collations, some checks and storage parameters, and
// sqloutbox.Repository.Check accepts them. On MySQL and MariaDB such tables do not work, because
// Ent has no generated columns: give those tools the files that sqloutbox.Migrations returns.
//
// Later versions of the tables come as migrations of sqloutbox. Where Ent creates the tables, do
// not set AutoCreate.
//
// Use the generated types only for reading. Only the outbox writes rows.
package entschema
