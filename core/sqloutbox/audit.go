package sqloutbox

import (
	"context"
	"math"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// auditStatements are the statements that read audit rows.
type auditStatements struct {
	list, ofRow, count string
}

const auditHead = "SELECT a.id, {us:a.at}, a.action, a.actor, a.reason, a.row_id, a.event_id, a.topic, a.new_id FROM " +
	"{audit} a WHERE "

func newAuditStatements(n names) auditStatements {
	mark := n.params().Mark
	return auditStatements{
		list: n.expand(auditHead + "a.id < " + mark(1, "bigint") + " ORDER BY a.id DESC LIMIT " + mark(2, "bigint")),
		ofRow: n.expand(auditHead + "a.row_id = " + mark(1, "uuid") + " AND a.id < " + mark(2, "bigint") +
			" ORDER BY a.id DESC LIMIT " + mark(3, "bigint")),
		count: n.expand("SELECT a.action, COUNT(*) FROM {audit} a WHERE a.id > " + mark(1, "bigint") + " AND a.id <= " +
			mark(2, "bigint") + " GROUP BY a.action"),
	}
}

// audits reads the audit rows of a Repository.
type audits component[auditStatements]

// ListAudit implements core.Repository.
func (r *audits) ListAudit(ctx context.Context, q core.AuditQuery) ([]core.AuditRecord, error) {
	if q.Before <= 0 {
		q.Before = math.MaxInt64
	}
	text, args := r.sql.list, []any{q.Before, int64(min(max(q.Limit, 1), 1000))}
	if !q.RowID.IsZero() {
		text, args = r.sql.ofRow, append([]any{r.names.params().ID(q.RowID)}, args...)
	}
	scan := func(res core.Rows) (a core.AuditRecord, err error) {
		var at int64
		err = res.Scan(&a.No, &at, &a.Action, &a.Actor, &a.Reason, (*outboxsql.ID)(&a.RowID), &a.EventID, &a.Topic,
			(*outboxsql.ID)(&a.NewID))
		a.At = time.UnixMicro(at).UTC()
		return a, err
	}
	return sqlkit.AskRows(ctx, r.pool.single, "list audit", text, args, scan)
}

// CountAudit implements core.Repository.
func (r *audits) CountAudit(ctx context.Context, after, upTo int64) (rows map[string]int64, err error) {
	err = r.pool.single(ctx, "count audit", func(c sqlkit.Querier) error {
		rows = map[string]int64{}
		return sqlkit.EachRow(ctx, c, r.sql.count, []any{after, upTo}, func(res core.Rows) error {
			var action string
			var n int64
			err := res.Scan(&action, &n)
			rows[action] = n
			return err
		})
	})
	return rows, err
}
