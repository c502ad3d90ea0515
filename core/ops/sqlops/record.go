package sqlops

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// recordStatements write audit rows about changes outside of the table of events.
type recordStatements struct{ audit string }

func newRecordStatements(t outboxsql.Tables, p *outboxsql.Params) recordStatements {
	m := p.Mark
	return recordStatements{
		audit: t.Expand("INSERT INTO {audit} (at, action, actor, reason, row_id, event_id, topic, detail)\n" +
			"VALUES ({now}, " + m(1, "text") + ", " + m(2, "text") + ", " + m(3, "text") + ", " + m(4, "uuid") + ", " +
			m(5, "text") + ", " + m(6, "text") + ", NULLIF(" + m(7, "text") + ", ''))"),
	}
}

// RecordAudit implements ops.Store.
func (st *Store) RecordAudit(ctx context.Context, detail string, records ...core.AuditRecord) error {
	for _, r := range records {
		if err := outboxsql.CheckWho(core.AdminRequest{Actor: r.Actor, Reason: r.Reason}); err != nil {
			return err
		}
	}
	return st.tables.InTx(ctx, "record what a person did", func(q sqlkit.Querier) error {
		for _, r := range records {
			if _, err := q.Exec(ctx, st.records.audit, r.Action, r.Actor, r.Reason, st.params.ID(r.RowID), r.EventID,
				r.Topic, detail); err != nil {
				return err
			}
		}
		return nil
	})
}
