package sqloutbox

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

var _ ops.Store = (*Repository)(nil)

// ScanEvents implements ops.Store. It reads the parts of the table that may have such events, one
// after the other, each in the order of its index.
func (r *Repository) ScanEvents(ctx context.Context, s ops.Scan) (ops.Scanned, error) {
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
			if foreign, err = r.foreignIDs(ctx, s); err != nil {
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
		end, err := r.scanPart(ctx, s, p, from, s.Limit+1-n, &found.Events)
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
func (r *Repository) scanPart(ctx context.Context, s ops.Scan, p *part, from cursor, want int, events *[]ops.Event,
) (end *ops.Event, err error) {
	q := newEventQuery(r.names, s, p)
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
	err = r.database.read(ctx, "list events", func(c sqlkit.Querier) error {
		rows, kept = 0, nil
		return sqlkit.EachRow(ctx, c, text, q.args, func(res core.Rows) error {
			var row rowScan
			if err := row.scan(res); err != nil {
				return err
			}
			rows++
			if e := row.event(); len(kept) < most && s.Match(&e) {
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
	return r.lastLooked(ctx, newEventQuery(r.names, s, p), from, look)
}

// lastLooked returns the place of the last of the rows that a query looks at, if the part has more
// rows behind it.
func (r *Repository) lastLooked(ctx context.Context, q *eventQuery, from cursor, look int) (*ops.Event, error) {
	text := q.last(from, look)
	var found []ops.Event
	err := r.database.read(ctx, "list events", func(c sqlkit.Querier) error {
		found = nil
		return sqlkit.EachRow(ctx, c, text, q.args, func(res core.Rows) error {
			var id, lane id16
			var topic string
			var due, seq int64
			err := res.Scan(&id, &topic, &due, &lane, &seq)
			found = append(found, ops.Event{
				ID: core.RowID(id), Topic: topic, AvailableAt: time.UnixMicro(due), KeyID: core.KeyID(lane),
				KeySeq: seq,
			})
			return err
		})
	})
	if err != nil || len(found) < 2 {
		return nil, err
	}
	return &found[0], nil
}

// foreignIDs reports whether the table has ids that do not begin with their time. Of random ids,
// nearly all are greater than any id that begins with the time now.
func (r *Repository) foreignIDs(ctx context.Context, s ops.Scan) (foreign bool, err error) {
	q := eventQuery{names: r.names}
	err = r.database.read(ctx, "list events", func(c sqlkit.Querier) error {
		q.args = nil
		after := idAt(latest(s.CreatedBefore, time.Now()).Add(day + idSlack))
		text := r.names.expand("SELECT e.id FROM {event} e{use:primary} WHERE e.id > " + q.id(after) +
			" ORDER BY e.id DESC LIMIT 1")
		var id id16
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
func (r *Repository) ReadContent(ctx context.Context, id core.RowID) (c ops.Content, found bool, err error) {
	q := eventQuery{names: r.names}
	text := r.names.expand(q.content(id))
	err = r.database.read(ctx, "read an event", func(conn sqlkit.Querier) error {
		c, found = ops.Content{}, false
		return sqlkit.EachRow(ctx, conn, text, q.args, func(res core.Rows) error {
			found = true
			var headers []byte
			damage, err := scanRow(res, []any{&c.Payload, &c.ContentType, &headers})
			if err == nil && damage == nil && len(headers) > 0 {
				c.Headers, damage = headersOf(headers)
			}
			if damage != nil {
				c.Damage = damage.Error()
			}
			return err
		})
	})
	return c, found, err
}

// ReadAudit implements ops.Store.
func (r *Repository) ReadAudit(ctx context.Context, id core.RowID) (entries []ops.AuditEntry, err error) {
	q := eventQuery{names: r.names}
	text := r.names.expand(q.audit(id))
	err = r.database.read(ctx, "read the audit", func(conn sqlkit.Querier) error {
		entries = nil
		return sqlkit.EachRow(ctx, conn, text, q.args, func(res core.Rows) error {
			var a ops.AuditEntry
			var at int64
			var newID id16
			err := res.Scan(&at, &a.Action, &a.Actor, &a.Reason, &newID)
			a.At, a.NewID = time.UnixMicro(at).UTC(), core.RowID(newID)
			entries = append(entries, a)
			return err
		})
	})
	return entries, err
}

// rowScan reads rowColumns.
type rowScan struct {
	e                                 ops.Event
	id, lane, replayOf                id16
	status                            int64
	lease, done                       *int64
	available, occurred, created, now int64
}

// rowColumns are the columns of an ops.Event.
const rowColumns = `e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), ` +
	`COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), ` +
	`COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), ` +
	`COALESCE(e.claimed_by,''), {us:e.lease_until}, {us:e.available_at}, {us:e.occurred_at}, {us:e.created_at}, ` +
	`{us:e.done_at}, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), ` +
	`COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, {clock}`

// lookedColumns are the columns that rowColumns and the filters need.
const lookedColumns = `e.id, e.event_id, e.event_type, e.schema_version, e.topic, e.tenant_id, e.partition_key, ` +
	`e.key_seq, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.lane, e.status, e.attempts, ` +
	`e.lost_claims, e.claimed_by, e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, ` +
	`e.last_error_code, e.last_error, e.receipt, e.error_group, e.causation_id, e.replay_of`

// scan reads a row. A column with a wrong value is left out: that is the reason why its event is
// dead.
func (s *rowScan) scan(res core.Rows) error {
	_, err := scanRow(res, []any{
		&s.id, &s.e.EventID, &s.e.Type, &s.e.SchemaVersion, &s.e.Topic, &s.e.TenantID, &s.e.Key, &s.e.KeySeq,
		&s.e.AggregateType, &s.e.AggregateID, &s.e.AggregateVersion, &s.lane, &s.status, &s.e.Attempts,
		&s.e.LostClaims, &s.e.ClaimedBy, &s.lease, &s.available, &s.occurred, &s.created, &s.done, &s.e.ErrorCode,
		&s.e.Error, &s.e.Receipt, &s.e.ErrorGroup, &s.e.CausationID, &s.replayOf, &s.now,
	}, 0)
	return err
}

func (s *rowScan) event() ops.Event {
	e := s.e
	e.ID, e.KeyID, e.ReplayOf = core.RowID(s.id), core.KeyID(s.lane), core.RowID(s.replayOf)
	e.Status = ops.Status(s.status)
	micro := func(us int64) time.Time { return time.UnixMicro(us).UTC() }
	e.AvailableAt, e.OccurredAt, e.CreatedAt = micro(s.available), micro(s.occurred), micro(s.created)
	e.ReadAt = micro(s.now)
	if s.lease != nil {
		e.LeaseUntil = micro(*s.lease)
	}
	if s.done != nil && !e.Status.Open() && e.Status != ops.StatusDead {
		e.DoneAt = micro(*s.done)
	}
	return e
}
