package sqloutbox

import (
	"context"
	"math"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

var (
	_ core.AuditLister  = (*Repository)(nil)
	_ core.AuditCounter = (*Repository)(nil)
	_ core.KeyResetter  = (*Repository)(nil)
)

// auditStatements are the statements that read audit rows.
type auditStatements struct {
	list, ofRow, count string
}

const auditHead = "SELECT a.id, {us:a.at}, a.action, a.actor, a.reason, a.row_id, a.event_id, a.topic, a.new_id FROM " +
	"{audit} a WHERE "

func newAuditStatements(n names) auditStatements {
	mark := n.dialect.params.mark
	return auditStatements{
		list: n.expand(auditHead + "a.id < " + mark(1, "bigint") + " ORDER BY a.id DESC LIMIT " + mark(2, "bigint")),
		ofRow: n.expand(auditHead + "a.row_id = " + mark(1, "uuid") + " AND a.id < " + mark(2, "bigint") +
			" ORDER BY a.id DESC LIMIT " + mark(3, "bigint")),
		count: n.expand("SELECT a.action, COUNT(*) FROM {audit} a WHERE a.id > " + mark(1, "bigint") + " AND a.id <= " +
			mark(2, "bigint") + " GROUP BY a.action"),
	}
}

// ListAudit implements core.AuditLister.
func (r *Repository) ListAudit(ctx context.Context, q core.AuditQuery) (records []core.AuditRecord, err error) {
	if q.Before <= 0 {
		q.Before = math.MaxInt64
	}
	text, args := r.audits.list, []any{q.Before, int64(min(max(q.Limit, 1), 1000))}
	if !q.RowID.IsZero() {
		text, args = r.audits.ofRow, append([]any{r.names.dialect.params.id(q.RowID)}, args...)
	}
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

// CountAudit implements core.AuditCounter.
func (r *Repository) CountAudit(ctx context.Context, after, upTo int64) (rows map[string]int64, err error) {
	err = r.single(ctx, "count audit", func(c sqlkit.Querier) error {
		rows = map[string]int64{}
		return sqlkit.EachRow(ctx, c, r.audits.count, []any{after, upTo}, func(res core.Rows) error {
			var action string
			var n int64
			err := res.Scan(&action, &n)
			rows[action] = n
			return err
		})
	})
	return rows, err
}
