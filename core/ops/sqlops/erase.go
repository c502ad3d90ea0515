package sqlops

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// eraseStatements are the statements that erase the content of rows.
type eraseStatements struct {
	rows    string // whether rows can be erased, locked
	content string
	audit   string // the audit row of one
	details string // of audit rows, their beginnings
	detail  string
}

func newEraseStatements(t outboxsql.Tables, p *outboxsql.Params) eraseStatements {
	m := p.Mark
	others := "{use:primary} WHERE e.id IN ({ids}) ORDER BY e.id{wait}"
	rows := outboxsql.ByDialect[string]{
		Postgres: " WHERE e.id = ANY ($1::uuid[]) ORDER BY e.id FOR UPDATE", MySQL: others, SQLite: others,
	}.Of(t.Dialect)
	return eraseStatements{
		rows: t.Expand(
			"SELECT e.id, e.event_id, e.topic, e.status, CASE WHEN e.lease_until > {now} THEN 1 ELSE 0 END, " +
				"e.headers, {clock} FROM {event} e" + rows,
		),
		content: t.Expand("UPDATE {event} SET payload = " + m(1, "bytea") + ", content_type = NULL, headers = " +
			m(2, "jsonb") + ", last_error = CASE WHEN last_error IS NOT NULL THEN '" + ops.Erased + "' END,\n  " +
			"failures = NULL WHERE id = " + m(3, "uuid")),
		audit: t.Expand("INSERT INTO {audit} (at, action, actor, reason, row_id, event_id, topic)\nVALUES ({now}, '" +
			ops.AuditErase + "', " + m(1, "text") + ", " + m(2, "text") + ", " +
			m(3, "uuid") + ", " + m(4, "text") + ", " +
			m(5, "text") + ")"),
		details: t.Expand("SELECT a.id, COALESCE(SUBSTR(a.detail, 1, 4000), '') FROM {audit} a WHERE a.id > " +
			m(1, "bigint") + " ORDER BY a.id LIMIT 1000"),
		detail: t.Expand("UPDATE {audit} SET detail = '" + ops.Erased + "' WHERE id = " + m(1, "bigint")),
	}
}

// erasable is a row with the columns that decide whether it can be erased.
type erasable struct {
	id             core.RowID
	eventID, topic string
	open, leased   bool
	headers        map[string]string
	now            int64
}

// EraseEvents implements ops.Store.
func (st *Store) EraseEvents(ctx context.Context, c ops.EraseChange) (done ops.EraseOutcome, err error) {
	if err := outboxsql.CheckWho(core.AdminRequest{Actor: c.Actor, Reason: c.Reason}); err != nil {
		return done, err
	}
	err = st.tables.InTx(ctx, "erase events", func(q sqlkit.Querier) error {
		done = ops.EraseOutcome{}
		rows, err := st.erasable(ctx, q, c.IDs)
		if err != nil {
			return err
		}
		for _, row := range rows {
			_, already := row.headers[core.HeaderErased]
			switch {
			case row.open && (!c.Open || row.leased):
			case already:
				done.Already++
			default:
				if err := st.eraseEvent(ctx, q, row, c); err != nil {
					return err
				}
				done.Erased++
			}
		}
		return nil
	})
	return done, err
}

// erasable locks rows. Headers that cannot be read count as none.
func (st *Store) erasable(ctx context.Context, q sqlkit.Querier, ids []core.RowID) ([]erasable, error) {
	text, args := st.params.Listed(st.erases.rows, outboxsql.SortedIDs(ids))
	return sqlkit.Rows(ctx, q, text, args, func(res core.Rows) (row erasable, err error) {
		var status, leased int64
		var headers []byte
		_, err = outboxsql.Scan(res, []any{
			(*outboxsql.ID)(&row.id), &row.eventID, &row.topic, &status, &leased, &headers, &row.now,
		}, 0, 3)
		row.open, row.leased = ops.Status(status).Open(), leased == 1
		if len(headers) > 0 {
			row.headers, _ = outboxsql.Headers(headers)
		}
		return row, err
	})
}

func (st *Store) eraseEvent(ctx context.Context, q sqlkit.Querier, row erasable, c ops.EraseChange) error {
	headers, err := json.Marshal(ops.KeptHeaders(row.headers, time.UnixMicro(row.now)))
	if err != nil {
		return err
	}
	id := st.params.ID(row.id)
	if _, err := q.Exec(ctx, st.erases.content, []byte{}, string(headers), id); err != nil {
		return err
	}
	_, err = q.Exec(ctx, st.erases.audit, c.Actor, c.Reason, id, row.eventID, row.topic)
	return err
}

// EraseAudit implements ops.Store.
func (st *Store) EraseAudit(ctx context.Context, after int64, head string, dryRun bool,
) (erased int, next int64, err error) {
	err = st.tables.InTx(ctx, "erase the audit", func(q sqlkit.Querier) error {
		var found []int64
		rows := 0
		next = 0
		err := sqlkit.EachRow(ctx, q, st.erases.details, []any{after}, func(res core.Rows) error {
			var detail string
			rows++
			if err := res.Scan(&next, &detail); err != nil {
				return err
			}
			if strings.HasPrefix(detail, head) {
				found = append(found, next)
			}
			return nil
		})
		if erased = len(found); rows < 1000 {
			next = 0
		}
		if err != nil || dryRun {
			return err
		}
		for _, id := range found {
			if _, err := q.Exec(ctx, st.erases.detail, id); err != nil {
				return err
			}
		}
		return nil
	})
	return erased, next, err
}

// RecordErase implements ops.Store.
func (st *Store) RecordErase(ctx context.Context, c ops.EraseChange) error {
	req := core.AdminRequest{Actor: c.Actor, Reason: c.Reason}
	if err := outboxsql.CheckWho(req); err != nil {
		return err
	}
	req.Reason = fmt.Sprintf("%s (%s)", c.Reason, c.Subject)
	return st.tables.InTx(ctx, "record an erasure", func(q sqlkit.Querier) error {
		return st.tables.AuditWhole(ctx, q, ops.AuditErase, "", req)
	})
}
