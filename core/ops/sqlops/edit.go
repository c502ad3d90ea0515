package sqlops

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// editStatements are the statements that put a row with other content in the place of a dead one.
type editStatements struct {
	lock    string // the row, locked
	insert  string // the new row, still without its content
	content string // of the new row
	last    string // makes the new row the last of its key, if the dead row was
	end     string // the dead row
	audit   string
}

func newEditStatements(t outboxsql.Tables, p *outboxsql.Params) editStatements {
	m := p.Mark
	wait := outboxsql.ByDialect[string]{Postgres: " FOR UPDATE", MySQL: " FOR UPDATE"}.Of(t.Dialect)
	return editStatements{
		lock: t.Expand("SELECT " + outboxsql.EventColumns + " FROM {event} e{use:primary} WHERE e.id = " +
			m(1, "uuid") + wait),
		insert: t.Expand("INSERT INTO {event} (id, key_seq, available_at, created_at, " + outboxsql.CopiedColumns +
			")\nSELECT " + m(1, "uuid") + ", " + m(2, "bigint") + ", {now}, {now}, " + replayedColumns + m(3, "bytea") +
			", '', NULL, NULL, occurred_at, replay_of FROM {event} WHERE id = " + m(4, "uuid")),
		content: t.Expand("UPDATE {event} SET payload = " + m(1, "bytea") + ", content_type = NULLIF(" + m(2, "text") +
			", ''), headers = " + m(3, "jsonb") + " WHERE id = " + m(4, "uuid")),
		last: t.Expand("UPDATE {key} SET last_id = " + m(1, "uuid") + " WHERE lane = " + m(2, "bytea") +
			" AND last_id = " + m(3, "uuid")),
		end: t.Expand("UPDATE {event} SET status = 4, claimed_by = NULL, claim_no = 0, lease_until = NULL, " +
			"done_at = {now} WHERE id = " + m(1, "uuid")),
		audit: t.Expand("INSERT INTO {audit} (at, action, actor, reason, row_id, event_id, topic, new_id, detail)\n" +
			"VALUES ({now}, '" + ops.AuditEdit + "', " + m(1, "text") + ", " + m(2, "text") + ", " +
			m(3, "uuid") + ", " +
			m(4, "text") + ", " + m(5, "text") + ", " + m(6, "uuid") + ", " + m(7, "text") + ")"),
	}
}

// EditEvent implements ops.Store. Like a redrive it locks the event first, and then the row of its
// key. Nobody who holds the row of a key waits for an event that is there.
func (st *Store) EditEvent(ctx context.Context, c ops.Edit) (keySeq int64, diff string, err error) {
	if err := outboxsql.CheckWho(core.AdminRequest{Actor: c.Actor, Reason: c.Reason}); err != nil {
		return 0, "", err
	}
	err = st.tables.InTx(ctx, "edit an event", func(q sqlkit.Querier) (err error) {
		keySeq, diff, err = st.edit(ctx, q, c)
		return err
	})
	return keySeq, diff, err
}

func (st *Store) edit(ctx context.Context, q sqlkit.Querier, c ops.Edit) (keySeq int64, diff string, err error) {
	e, err := st.lockEvent(ctx, q, c.ID)
	if err != nil {
		return 0, "", err
	}
	if err := c.CheckDead(&e); err != nil {
		return 0, "", err
	}
	old, _, _, err := st.content(ctx, q, c.ID)
	if err != nil {
		return 0, "", err
	}
	now, diff, err := c.Apply(e, old)
	if err != nil {
		return 0, "", err
	}
	if keySeq, err = st.place(ctx, q, c, e); err != nil {
		return 0, "", err
	}
	headers, err := json.Marshal(now.Headers)
	if err != nil {
		return 0, "", err
	}
	id, newID := st.params.ID(c.ID), st.params.ID(c.NewID)
	for _, s := range []struct {
		text string
		args []any
	}{
		{st.edits.content, []any{now.Payload, now.ContentType, string(headers), newID}},
		{st.edits.end, []any{id}},
		{st.edits.audit, []any{c.Actor, c.Reason, id, e.EventID, e.Topic, newID, c.Detail(e, diff)}},
	} {
		if _, err := q.Exec(ctx, s.text, s.args...); err != nil {
			return 0, "", err
		}
	}
	return keySeq, diff, nil
}

// place inserts the new row at its place, without its content.
func (st *Store) place(ctx context.Context, q sqlkit.Querier, c ops.Edit, e ops.Event) (keySeq int64, err error) {
	key := c.KeyOf(e)
	id, newID := st.params.ID(c.ID), st.params.ID(c.NewID)
	var seq, lane any // both NULL without a key
	if keySeq = e.KeySeq; !key.IsZero() {
		if c.Appends(e) {
			keySeq, err = st.tables.NextKeySeq(ctx, q, outboxsql.Source{ID: e.ID, NewID: c.NewID, Lane: key})
		} else {
			_, err = q.Exec(ctx, st.edits.last, newID, key[:], id)
		}
		if err != nil {
			return 0, err
		}
		seq, lane = keySeq, key[:]
	}
	_, err = q.Exec(ctx, st.edits.insert, newID, seq, lane, id)
	return keySeq, err
}

// lockEvent reads a row and locks it.
func (st *Store) lockEvent(ctx context.Context, q sqlkit.Querier, id core.RowID) (e ops.Event, err error) {
	found := false
	err = sqlkit.EachRow(ctx, q, st.edits.lock, []any{st.params.ID(id)}, func(res core.Rows) error {
		var row outboxsql.EventScan
		err := row.Scan(res)
		e, found = row.Event(), true
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: row %s", ops.ErrNotFound, id)
	}
	return e, err
}
