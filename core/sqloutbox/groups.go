package sqloutbox

import (
	"context"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

var _ ops.GroupStore = (*Repository)(nil)

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

func newGroupStatements(n names) groupStatements {
	excluded := func(column string) string {
		return column + " = excluded." + column + ", actor = excluded.actor, updated_at = excluded.updated_at"
	}
	values := func(column string) string {
		return column + " = VALUES(" + column + "), actor = VALUES(actor), updated_at = VALUES(updated_at)"
	}
	head := byDialect[string]{postgres: postgresGroup, mysql: mysqlGroup, sqlite: sqliteGroup}.of(n)
	set := byDialect[func(string) string]{postgres: excluded, mysql: values, sqlite: excluded}.of(n)
	id := n.dialect.params.mark(1, "text")
	return groupStatements{
		note: n.expand(head + set("note")), mute: n.expand(head + set("muted_until")),
		forget: n.expand("DELETE FROM {group} WHERE fingerprint = " + id + " AND note = '' AND muted_until IS NULL"),
		notes:  n.expand(selectGroups),
	}
}

// ChangeGroup implements ops.GroupStore.
func (r *Repository) ChangeGroup(ctx context.Context, c ops.GroupChange) error {
	who := core.AdminRequest{Actor: c.Actor, Reason: c.Reason}
	if err := checkAdmin(who); err != nil {
		return err
	}
	who.Reason = c.AuditReason()
	text, note, until := r.groups.mute, "", any(nil)
	switch c.Action {
	case ops.AuditNoteGroup:
		text, note = r.groups.note, c.Note
	case ops.AuditMuteGroup:
		until = c.MutedUntil.UnixMicro()
	case ops.AuditUnmuteGroup:
	default:
		return fmt.Errorf("sqloutbox: change a group: unknown action %.32q", c.Action)
	}
	return noTables(r.inTx(ctx, "change a group", func(q sqlkit.Querier) error {
		if _, err := q.Exec(ctx, text, c.Fingerprint, note, until, c.Actor); err != nil {
			return err
		}
		if _, err := q.Exec(ctx, r.groups.forget, c.Fingerprint); err != nil {
			return err
		}
		return r.database.auditWhole(ctx, q, c.Action, c.Topic, who)
	}))
}

// ReadGroupNotes implements ops.GroupStore.
func (r *Repository) ReadGroupNotes(ctx context.Context) (all []ops.GroupNote, err error) {
	err = r.single(ctx, "notes on groups", func(q sqlkit.Querier) error {
		all = nil
		return sqlkit.EachRow(ctx, q, r.groups.notes, nil, func(res core.Rows) error {
			var n ops.GroupNote
			var until *int64
			var updated int64
			err := res.Scan(&n.Fingerprint, &n.Note, &until, &n.Actor, &updated)
			if n.UpdatedAt = time.UnixMicro(updated).UTC(); until != nil {
				n.MutedUntil = time.UnixMicro(*until).UTC()
			}
			all = append(all, n)
			return err
		})
	})
	return all, noTables(err)
}
