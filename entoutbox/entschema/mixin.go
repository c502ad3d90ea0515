package entschema

import (
	"cmp"

	"entgo.io/ent"
	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
	"entgo.io/ent/schema/mixin"
)

// defaultPrefix is the beginning of the names of tables, as sqloutbox.DefaultPrefix is.
const defaultPrefix = "outbox_"

func prefixed(prefix, name string) string {
	prefix = cmp.Or(prefix, defaultPrefix)
	return prefix + name
}

// Event is the table of events: one row is one event for one destination. The zero value is ready
// for use.
type Event struct {
	mixin.Schema
	// Prefix is the Prefix of the outbox's Config. Default: "outbox_".
	Prefix string
}

// Key is the table of keys. It numbers the events of each key in the order of their commits. The
// zero value is ready for use.
type Key struct {
	mixin.Schema
	// Prefix is the Prefix of the outbox's Config. Default: "outbox_".
	Prefix string
}

// Audit is the table of the changes that people made to rows. The zero value is ready for use.
type Audit struct {
	mixin.Schema
	// Prefix is the Prefix of the outbox's Config. Default: "outbox_".
	Prefix string
}

// Relay is the table of the relays that run. The zero value is ready for use.
type Relay struct {
	mixin.Schema
	// Prefix is the Prefix of the outbox's Config. Default: "outbox_".
	Prefix string
}

// Plan is the table of the plans of operators. The zero value is ready for use.
type Plan struct {
	mixin.Schema
	// Prefix is the Prefix of the outbox's Config. Default: "outbox_".
	Prefix string
}

// Pause is the table of the pauses. The zero value is ready for use.
type Pause struct {
	mixin.Schema
	// Prefix is the Prefix of the outbox's Config. Default: "outbox_".
	Prefix string
}

// Group is the table of the notes on groups of failures, and of the groups that are muted. The zero
// value is ready for use.
type Group struct {
	mixin.Schema
	// Prefix is the Prefix of the outbox's Config. Default: "outbox_".
	Prefix string
}

// History is the table of the relays' results in the last seven days. The zero value is ready for
// use.
type History struct {
	mixin.Schema
	// Prefix is the Prefix of the outbox's Config. Default: "outbox_".
	Prefix string
}

// Fields implements ent.Mixin.
func (Event) Fields() []ent.Field {
	return []ent.Field{
		rowID("id"),
		text("event_id", "varchar(36)"),
		text("event_type", "varchar(128)"),
		field.Int32("schema_version").Annotations(zero),
		text("topic", "varchar(249)"),
		textOrNull("aggregate_type", "varchar(64)"),
		textOrNull("aggregate_id", "varchar(128)"),
		field.Int64("aggregate_version").Annotations(zero),
		textOrNull("tenant_id", "varchar(64)"),
		textOrNull("partition_key", "varchar(255)"),
		field.Bytes("lane").SchemaType(bytes16).Optional().Nillable(),
		field.Int64("key_seq").Optional().Nillable(),
		field.Bytes("payload").SchemaType(types("bytea", "longblob", "blob")).Sensitive(),
		textOrNull("content_type", "varchar(127)"),
		field.JSON("headers", map[string]string{}).SchemaType(types("jsonb", "json", "text")).Optional(),
		field.Int8("status").Annotations(zero),
		field.Int32("attempts").Annotations(zero),
		field.Int64("claim_no").Annotations(zero),
		field.Int32("lost_claims").Annotations(zero),
		textOrNull("claimed_by", "varchar(255)"),
		instantOrNull("lease_until"),
		instant("available_at"),
		instant("occurred_at"),
		instant("created_at"),
		instantOrNull("done_at"),
		textOrNull("last_error_code", "varchar(64)"),
		textOrNull("last_error", "text"),
		rowIDOrNull("replay_of"),
		textOrNull("receipt", "text"),
		textOrNull("causation_id", "varchar(255)"),
		textOrNull("error_group", "varchar(16)"),
		textOrNull("failures", "text"),
	}
}

// Indexes implements ent.Mixin. The indexes are for PostgreSQL and SQLite: the indexes for claims
// contain only open rows.
func (e Event) Indexes() []ent.Index {
	partial := func(name, where string, fields ...string) ent.Index {
		return index.Fields(fields...).StorageKey(prefixed(e.Prefix, name)).Annotations(entsql.IndexWhere(where))
	}
	return []ent.Index{
		partial("event_ready", "status IN (0, 2) AND lane IS NULL", "topic", "available_at", "id"),
		partial("event_key", "status IN (0, 2, 3) AND lane IS NOT NULL", "lane", "key_seq"),
		partial("event_dead", "status = 3", "id"),
		partial("event_cause", "causation_id IS NOT NULL", "causation_id"),
	}
}

// Annotations implements ent.Mixin.
func (e Event) Annotations() []schema.Annotation { return table(e.Prefix, "event") }

// Fields implements ent.Mixin.
func (Key) Fields() []ent.Field {
	return []ent.Field{
		field.UUID("id", ID{}).StorageKey("lane").SchemaType(bytes16).Immutable(),
		field.Int64("last_seq"),
		field.Int64("first_seq"),
		rowIDOrNull("last_id"),
		rowIDOrNull("prev_id"),
		instant("used_at"),
	}
}

// Annotations implements ent.Mixin.
func (k Key) Annotations() []schema.Annotation { return table(k.Prefix, "key") }

// Fields implements ent.Mixin.
func (Audit) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("id").Immutable(),
		field.Other("at", Time{}).SchemaType(times).Annotations(
			entsql.DefaultExprs(map[string]string{dialect.Postgres: "clock_timestamp()"})),
		text("action", "varchar(32)"),
		text("actor", "varchar(255)"),
		text("reason", "text"),
		rowID("row_id"),
		text("event_id", "varchar(255)"),
		text("topic", "varchar(249)"),
		rowIDOrNull("new_id"),
		textOrNull("detail", "text"),
	}
}

// Indexes implements ent.Mixin.
func (a Audit) Indexes() []ent.Index {
	return []ent.Index{index.Fields("row_id").StorageKey(prefixed(a.Prefix, "audit_row"))}
}

// Annotations implements ent.Mixin.
func (a Audit) Annotations() []schema.Annotation { return table(a.Prefix, "audit") }

// Fields implements ent.Mixin.
func (Relay) Fields() []ent.Field {
	return []ent.Field{
		field.String("id").StorageKey("node").SchemaType(types("text", "varchar(255)", "text")).Immutable(),
		text("host", "varchar(255)"),
		field.Int64("pid"),
		text("program", "varchar(255)"),
		text("version", "varchar(255)"),
		field.Int16("all_topics"),
		text("topics", "longtext"),
		instant("started_at"),
		instant("seen_at"),
		instantOrNull("claimed_at"),
		instantOrNull("published_at"),
		textOrNull("state", "longtext"),
	}
}

// Annotations implements ent.Mixin.
func (r Relay) Annotations() []schema.Annotation { return table(r.Prefix, "relay") }

// Fields implements ent.Mixin.
func (Plan) Fields() []ent.Field {
	return []ent.Field{
		field.String("id").SchemaType(types("text", "varchar(32)", "text")).Immutable(),
		text("state", "varchar(32)"),
		field.Int64("version"),
		text("body", "longtext"),
		field.Bytes("ids").SchemaType(types("bytea", "longblob", "blob")),
		instant("created_at"),
		instant("updated_at"),
		instantOrNull("worker_until"),
	}
}

// Annotations implements ent.Mixin.
func (p Plan) Annotations() []schema.Annotation { return table(p.Prefix, "plan") }

// Fields implements ent.Mixin.
func (Pause) Fields() []ent.Field {
	return []ent.Field{
		field.String("id").StorageKey("target").SchemaType(types("text", "varchar(255)", "text")).Immutable(),
		instant("paused_at"),
		instantOrNull("ends_at"),
		text("actor", "varchar(255)"),
		text("reason", "text"),
		field.Float("per_second").SchemaType(types("double precision", "double", "real")).Optional().Nillable(),
		field.Int32("in_flight").Optional().Nillable(),
	}
}

// Annotations implements ent.Mixin.
func (p Pause) Annotations() []schema.Annotation { return table(p.Prefix, "pause") }

// Fields implements ent.Mixin.
func (Group) Fields() []ent.Field {
	return []ent.Field{
		field.String("id").StorageKey("fingerprint").SchemaType(types("text", "varchar(16)", "text")).Immutable(),
		text("note", "text"),
		instantOrNull("muted_until"),
		text("actor", "varchar(255)"),
		instant("updated_at"),
	}
}

// Annotations implements ent.Mixin.
func (g Group) Annotations() []schema.Annotation { return table(g.Prefix, "group") }

// Fields implements ent.Mixin.
func (History) Fields() []ent.Field {
	return []ent.Field{
		field.String("id").StorageKey("part").SchemaType(types("text", "varchar(264)", "text")).Immutable(),
		instant("slot"),
		text("topic", "varchar(249)"),
		field.Int64("published"),
		field.Int64("refused"),
		field.Int64("died"),
		field.Int64("waiting").Optional().Nillable(),
		field.Int64("dead").Optional().Nillable(),
		field.Int64("blocked_keys").Optional().Nillable(),
		field.Int64("oldest").Optional().Nillable(),
		field.Int16("more").Optional().Nillable(),
	}
}

// Annotations implements ent.Mixin.
func (h History) Annotations() []schema.Annotation { return table(h.Prefix, "history") }

// zero is a default of the database. The generated code does not set it.
var zero = entsql.DefaultExpr("0")

func table(prefix, name string) []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{
		Table:   prefixed(prefix, name),
		Charset: "utf8mb4", Collation: "utf8mb4_bin", Options: "ENGINE = InnoDB", // for MySQL
	}}
}

func types(postgres, mysql, sqlite string) map[string]string {
	return map[string]string{dialect.Postgres: postgres, dialect.MySQL: mysql, dialect.SQLite: sqlite}
}

// The builders of package field have types without exported names, so each helper builds a whole
// field.

func text(name, mysql string) ent.Field {
	return field.String(name).SchemaType(types("text", mysql, "text"))
}

func textOrNull(name, mysql string) ent.Field {
	return field.String(name).SchemaType(types("text", mysql, "text")).Optional().Nillable()
}

func instant(name string) ent.Field { return field.Other(name, Time{}).SchemaType(times) }

func instantOrNull(name string) ent.Field {
	return field.Other(name, Time{}).SchemaType(times).Optional().Nillable()
}

func rowID(name string) ent.Field { return field.UUID(name, ID{}).SchemaType(uuids) }

func rowIDOrNull(name string) ent.Field {
	return field.UUID(name, ID{}).SchemaType(uuids).Optional().Nillable()
}

var (
	bytes16 = types("bytea", "binary(16)", "blob")
	uuids   = types("uuid", "binary(16)", "blob")
	times   = types("timestamptz", "datetime(6)", "integer")
)
