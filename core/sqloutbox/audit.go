package sqloutbox

import (
	"context"
	"math"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

var (
	_ core.AuditLister = (*Repository)(nil)
	_ core.KeyResetter = (*Repository)(nil)
)

const (
	auditHead = "SELECT a.id, {us:a.at}, a.action, a.actor, a.reason, a.row_id, a.event_id, a.topic, a.new_id FROM " +
		"{audit} a WHERE "
	postgresListAudit  = auditHead + "a.id < $1::bigint ORDER BY a.id DESC LIMIT $2::bigint"
	postgresAuditOfRow = auditHead + "a.row_id = $3::uuid AND a.id < $1::bigint ORDER BY a.id DESC LIMIT $2::bigint"
	rowwiseListAudit   = auditHead + "a.id < ? ORDER BY a.id DESC LIMIT ?"
	rowwiseAuditOfRow  = auditHead + "a.row_id = ? AND a.id < ? ORDER BY a.id DESC LIMIT ?"
)

// ListAudit implements core.AuditLister.
func (r *Repository) ListAudit(ctx context.Context, q core.AuditQuery) (records []core.AuditRecord, err error) {
	if q.Before <= 0 {
		q.Before = math.MaxInt64
	}
	text, args := rowwiseListAudit, []any{q.Before, int64(min(max(q.Limit, 1), 1000))}
	if r.dialect == core.Postgres {
		text = postgresListAudit
	}
	if !q.RowID.IsZero() {
		if r.dialect == core.Postgres {
			text, args = postgresAuditOfRow, append(args, q.RowID.String())
		} else {
			text, args = rowwiseAuditOfRow, append([]any{q.RowID[:]}, args...)
		}
	}
	text = r.names.expand(text)
	err = r.single(ctx, "list audit", func(c sqlkit.Querier) error {
		records = nil
		return sqlkit.EachRow(ctx, c, text, args, func(res core.Rows) error {
			var a core.AuditRecord
			var at int64
			var row, appended id16
			err := res.Scan(&a.No, &at, &a.Action, &a.Actor, &a.Reason, &row, &a.EventID, &a.Topic, &appended)
			a.At, a.RowID, a.NewID = time.UnixMicro(at).UTC(), core.RowID(row), core.RowID(appended)
			records = append(records, a)
			return err
		})
	})
	return records, err
}
