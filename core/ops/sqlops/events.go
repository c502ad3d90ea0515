package sqlops

import (
	"context"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// ScanEvents implements ops.Store. It reads the parts of the table that may have such events, one
// after the other, each in the order of its index.
func (st *Store) ScanEvents(ctx context.Context, s ops.Scan) (ops.Scanned, error) {
	start, err := readCursor(s)
	if err != nil {
		return ops.Scanned{}, err
	}
	var found ops.Scanned
	var at []cursor // the places of the events
	parts, foreign := partsOf(s), false
	for i := start.Part; i < len(parts); i++ {
		p := &parts[i]
		if p.foreign && !foreign {
			if foreign, err = st.foreignIDs(ctx, s); err != nil {
				return ops.Scanned{}, err
			}
			if !foreign {
				break
			}
		}
		from := cursor{}
		if i == start.Part {
			from = start
		}
		n := len(found.Events)
		end, err := st.scanPart(ctx, s, p, from, s.Limit+1-n, &found.Events)
		if err != nil {
			return ops.Scanned{}, err
		}
		for k := n; k < len(found.Events); k++ {
			at = append(at, cursorAt(i, &found.Events[k]))
		}
		if len(found.Events) > s.Limit { // one more than was asked for shows that there is one
			found.Events = found.Events[:s.Limit]
			found.Next = at[s.Limit-1].text(s)
			return found, nil
		}
		if end != nil {
			found.Next, found.Truncated = cursorAt(i, end).text(s), true
			return found, nil
		}
	}
	return found, nil
}

// scanPart appends up to want events of a part behind a place. end is not nil if s.Look rows were
// looked at before: it is the last of them.
func (st *Store) scanPart(ctx context.Context, s ops.Scan, p *part, from cursor, want int, events *[]ops.Event,
) (end *ops.Event, err error) {
	q := newEventQuery(st, s, p)
	look := s.Look
	if !q.filtered {
		look = min(look, want)
	}
	if s.Fingerprint != "" { // some rows are left out here
		want = look
	}
	text, most := q.events(from, look, want), s.Limit+1-len(*events)
	var rows int
	var kept []ops.Event
	err = st.tables.Read(ctx, "list events", func(c sqlkit.Querier) error {
		rows, kept = 0, nil
		return sqlkit.EachRow(ctx, c, text, q.args, func(res core.Rows) error {
			var row outboxsql.EventScan
			if err := row.Scan(res); err != nil {
				return err
			}
			rows++
			if e := row.Event(); len(kept) < most && s.Match(&e) {
				kept = append(kept, e)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	*events = append(*events, kept...)
	if len(kept) == most || !q.filtered && rows < look {
		return nil, nil
	}
	return st.lastLooked(ctx, newEventQuery(st, s, p), from, look)
}

// lastLooked returns the place of the last of the rows that a query looks at, if the part has more
// rows behind it.
func (st *Store) lastLooked(ctx context.Context, q *eventQuery, from cursor, look int) (*ops.Event, error) {
	text := q.last(from, look)
	scan := func(res core.Rows) (e ops.Event, err error) {
		var due int64
		_, err = outboxsql.Scan(res, []any{
			(*outboxsql.ID)(&e.ID), &e.Topic, &due, (*outboxsql.ID)(&e.KeyID), &e.KeySeq,
		}, 0)
		e.AvailableAt = time.UnixMicro(due)
		return e, err
	}
	found, err := sqlkit.AskRows(ctx, st.tables.Read, "list events", text, q.args, scan)
	if err != nil || len(found) < 2 {
		return nil, err
	}
	return &found[0], nil
}

// foreignIDs reports whether the table has ids that do not begin with their time. Of random ids,
// nearly all are greater than any id that begins with the time now.
func (st *Store) foreignIDs(ctx context.Context, s ops.Scan) (foreign bool, err error) {
	q := eventQuery{Store: st}
	err = st.tables.Read(ctx, "list events", func(c sqlkit.Querier) error {
		q.args = nil
		after := idAt(latest(s.CreatedBefore, time.Now()).Add(day + idSlack))
		text := st.tables.Expand("SELECT e.id FROM {event} e{use:primary} WHERE e.id > " + q.id(after) +
			" ORDER BY e.id DESC LIMIT 1")
		var id outboxsql.ID
		foreign, err = sqlkit.FirstRow(ctx, c, text, q.args, &id)
		return err
	})
	return foreign, err
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ReadContent implements ops.Store.
func (st *Store) ReadContent(ctx context.Context, id core.RowID) (c ops.Content, found bool, err error) {
	err = st.tables.Read(ctx, "read an event", func(q sqlkit.Querier) error {
		c, _, found, err = st.content(ctx, q, id)
		return err
	})
	return c, found, err
}

// ReadFailures implements ops.Store.
func (st *Store) ReadFailures(ctx context.Context, id core.RowID) (attempts []ops.Attempt, err error) {
	q := eventQuery{Store: st}
	text := st.tables.Expand(q.failures(id))
	columns, err := sqlkit.AskRows(ctx, st.tables.Read, "read failures", text, q.args, sqlkit.Text)
	for _, column := range columns {
		attempts = outboxsql.Attempts(column)
	}
	return attempts, err
}

// Reveal implements ops.Store.
func (st *Store) Reveal(ctx context.Context, id core.RowID, req core.AdminRequest,
) (c ops.Content, found bool, err error) {
	err = st.tables.InTx(ctx, "reveal an event", func(q sqlkit.Querier) error {
		var s outboxsql.Source
		if c, s, found, err = st.content(ctx, q, id); err != nil || !found {
			return err
		}
		return st.tables.Audit(ctx, q, ops.AuditReveal, s, req)
	})
	if err != nil {
		return ops.Content{}, false, err
	}
	return c, found, nil
}

// content reads the content of a row, and what its audit row names.
func (st *Store) content(ctx context.Context, conn sqlkit.Querier, id core.RowID,
) (c ops.Content, s outboxsql.Source, found bool, err error) {
	q := eventQuery{Store: st}
	text := st.tables.Expand(q.content(id))
	s.ID = id
	err = sqlkit.EachRow(ctx, conn, text, q.args, func(res core.Rows) error {
		found = true
		var headers []byte
		damage, err := outboxsql.Scan(res, []any{&c.Payload, &c.ContentType, &headers, &s.EventID, &s.Topic})
		if err == nil && damage == nil && len(headers) > 0 {
			c.Headers, damage = outboxsql.Headers(headers)
		}
		if damage != nil {
			c.Damage = damage.Error()
		}
		return err
	})
	return c, s, found, err
}

// ReadAudit implements ops.Store.
func (st *Store) ReadAudit(ctx context.Context, id core.RowID) ([]ops.AuditEntry, error) {
	q := eventQuery{Store: st}
	text := st.tables.Expand(q.audit(id))
	scan := func(res core.Rows) (a ops.AuditEntry, err error) {
		var at int64
		err = res.Scan(&at, &a.Action, &a.Actor, &a.Reason, (*outboxsql.ID)(&a.NewID), &a.Detail)
		a.At = time.UnixMicro(at).UTC()
		return a, err
	}
	newest, err := sqlkit.AskRows(ctx, st.tables.Read, "read the audit", text, q.args, scan)
	slices.Reverse(newest)
	return newest, err
}
