package sqlops

import (
	"context"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// groupStatements are the statements about notes on groups of failures.
type groupStatements struct {
	note, mute, forget, notes string
}

const (
	groupHead = "INSERT INTO {group} (fingerprint, note, muted_until, actor, updated_at)\nVALUES "

	postgresGroup = groupHead + "($1::text, $2::text, timestamptz 'epoch' + $3::bigint * interval '1 microsecond', " +
		"$4::text, {now})\nON CONFLICT (fingerprint) DO UPDATE SET "
	sqliteGroup = groupHead + "(?, ?, ?, ?, {now})\nON CONFLICT (fingerprint) DO UPDATE SET "
	mysqlGroup  = groupHead + "(?, ?, TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND, ?, {now})\n" +
		"ON DUPLICATE KEY UPDATE "

	selectGroups = "SELECT fingerprint, note, {us:muted_until}, actor, {us:updated_at}\nFROM {group} " +
		"ORDER BY updated_at DESC, fingerprint LIMIT 1000"
)

func newGroupStatements(t outboxsql.Tables, p *outboxsql.Params) groupStatements {
	excluded := func(column string) string {
		return column + " = excluded." + column + ", actor = excluded.actor, updated_at = excluded.updated_at"
	}
	values := func(column string) string {
		return column + " = VALUES(" + column + "), actor = VALUES(actor), updated_at = VALUES(updated_at)"
	}
	head := outboxsql.ByDialect[string]{Postgres: postgresGroup, MySQL: mysqlGroup, SQLite: sqliteGroup}.Of(t.Dialect)
	set := outboxsql.ByDialect[func(string) string]{Postgres: excluded, MySQL: values, SQLite: excluded}.Of(t.Dialect)
	id := p.Mark(1, "text")
	return groupStatements{
		note: t.Expand(head + set("note")), mute: t.Expand(head + set("muted_until")),
		forget: t.Expand("DELETE FROM {group} WHERE fingerprint = " + id + " AND note = '' AND muted_until IS NULL"),
		notes:  t.Expand(selectGroups),
	}
}

// ChangeGroup implements ops.Store.
func (st *Store) ChangeGroup(ctx context.Context, c ops.GroupChange) error {
	who := core.AdminRequest{Actor: c.Actor, Reason: c.Reason}
	if err := outboxsql.CheckWho(who); err != nil {
		return err
	}
	who.Reason = c.AuditReason()
	text, note, until := st.groups.mute, "", any(nil)
	switch c.Action {
	case ops.AuditNoteGroup:
		text, note = st.groups.note, c.Note
	case ops.AuditMuteGroup:
		until = c.MutedUntil.UnixMicro()
	case ops.AuditUnmuteGroup:
	default:
		return fmt.Errorf("sqlops: change a group: unknown action %.32q", c.Action)
	}
	return st.tables.InTx(ctx, "change a group", func(q sqlkit.Querier) error {
		if _, err := q.Exec(ctx, text, c.Fingerprint, note, until, c.Actor); err != nil {
			return err
		}
		if _, err := q.Exec(ctx, st.groups.forget, c.Fingerprint); err != nil {
			return err
		}
		return st.tables.AuditWhole(ctx, q, c.Action, c.Topic, who)
	})
}

// ReadGroupNotes implements ops.Store.
func (st *Store) ReadGroupNotes(ctx context.Context) ([]ops.GroupNote, error) {
	scan := func(res core.Rows) (n ops.GroupNote, err error) {
		var until *int64
		var updated int64
		err = res.Scan(&n.Fingerprint, &n.Note, &until, &n.Actor, &updated)
		if n.UpdatedAt = time.UnixMicro(updated).UTC(); until != nil {
			n.MutedUntil = time.UnixMicro(*until).UTC()
		}
		return n, err
	}
	return sqlkit.AskRows(ctx, st.tables.Single, "notes on groups", st.groups.notes, nil, scan)
}
