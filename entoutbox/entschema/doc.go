// Package entschema lets Ent's migration create the tables of the outbox, together with those of
// the application.
//
// Declare them in the schema folder of the project:
//
//	type OutboxEvent struct{ ent.Schema }
//	type OutboxKey struct{ ent.Schema }
//	type OutboxAudit struct{ ent.Schema }
//
//	func (OutboxEvent) Mixin() []ent.Mixin { return []ent.Mixin{entschema.Event{}} }
//	func (OutboxKey) Mixin() []ent.Mixin   { return []ent.Mixin{entschema.Key{}} }
//	func (OutboxAudit) Mixin() []ent.Mixin { return []ent.Mixin{entschema.Audit{}} }
//
// and give the migration its options:
//
//	err := client.Schema.Create(ctx, entschema.MigrateOptions("")...)
//
// Tools that read the schema alone (Atlas with an ent:// address) know no options. On PostgreSQL
// and SQLite what they create lacks only collations, some checks and storage parameters, and
// sqloutbox.Repository.Check accepts it. On MySQL and MariaDB it is of no use, because Ent has no
// generated columns: give those tools the files that sqloutbox.Migrations returns.
//
// Later versions of the tables come as migrations of sqloutbox. Where Ent creates the tables, do
// not set AutoCreate.
//
// The generated types are for reading. Rows are written by the outbox alone.
package entschema
