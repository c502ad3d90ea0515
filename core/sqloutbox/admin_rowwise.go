package sqloutbox

import (
	"context"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

func (w *rowwise) backlog(ctx context.Context, limit int64) (core.Backlog, error) {
	return sqlkit.Ask(ctx, w.single, "backlog", func(q sqlkit.Querier) (core.Backlog, error) {
		return w.countBacklog(ctx, q, limit)
	})
}

func (w *rowwise) countBacklog(ctx context.Context, q sqlkit.Querier, limit int64) (core.Backlog, error) {
	b := core.Backlog{Limit: limit}
	var now int64
	var oldest *int64
	if _, err := sqlkit.FirstRow(ctx, q, w.sql.clock, nil, &now); err != nil {
		return b, err
	}
	look := func(created *int64) {
		if created != nil && (oldest == nil || *created < *oldest) {
			oldest = created
		}
	}
	var looked int64
	var created *int64
	if _, err := sqlkit.FirstRow(ctx, q, w.sql.countReady, []any{limit}, &b.Pending, &created); err != nil {
		return b, err
	}
	look(created)
	if b.Pending >= limit { // the count may not have reached the oldest
		b.More = true
		topics, err := w.openTopics(ctx, q)
		if err != nil {
			return b, err
		}
		for _, t := range topics {
			var created *int64
			if _, err := sqlkit.FirstRow(ctx, q, w.sql.firstCreated, []any{t}, &created); err != nil {
				return b, err
			}
			look(created)
		}
	}
	var keyed int64
	if _, err := sqlkit.FirstRow(ctx, q, w.sql.countKeyed, []any{limit}, &looked, &keyed, &created); err != nil {
		return b, err
	}
	look(created)
	b.Pending += keyed
	if _, err := sqlkit.FirstRow(ctx, q, w.sql.countDead, []any{limit}, &b.Dead, &b.BlockedKeys); err != nil {
		return b, err
	}
	b.More = b.More || max(looked, b.Dead) >= limit
	if oldest != nil {
		b.OldestAge = time.Duration(max(0, now-*oldest)) * time.Microsecond
	}
	return b, nil
}

func (w *rowwise) listDead(ctx context.Context, q core.DeadQuery) ([]core.DeadEvent, error) {
	args := []any{q.After[:], q.Topic, q.Topic, q.Type, q.Type, q.TenantID, q.TenantID, int64(q.Limit)}
	return sqlkit.Ask(ctx, w.single, "list dead", func(c sqlkit.Querier) ([]core.DeadEvent, error) {
		return readDead(ctx, c, w.sql.listDead, args)
	})
}

func (w *rowwise) redrive(ctx context.Context, q sqlkit.Querier, ids []core.RowID, req core.AdminRequest) (int, error) {
	return w.change(ctx, q, w.sql.redriveRows, w.sql.redrive, "redrive", ids, req, req.SkipDead)
}

func (w *rowwise) discard(ctx context.Context, q sqlkit.Querier, ids []core.RowID, req core.AdminRequest) (int, error) {
	return w.change(ctx, q, w.sql.discardRows, w.sql.discard, "discard", ids, req, req.Force)
}

// change finds rows, changes them and writes the audit. flag is passed to find: for redrive, rows
// of keys stay unchanged; for discard, leased rows are discarded too.
func (w *rowwise) change(ctx context.Context, q sqlkit.Querier, find, change listed, action string, ids []core.RowID,
	req core.AdminRequest, flag bool,
) (int, error) {
	type changed struct {
		id             core.RowID
		eventID, topic string
	}
	var rows []changed
	var matching []core.RowID
	err := sqlkit.EachRow(ctx, q, find.text(len(ids)), outboxsql.IDArgs(ids, b2i(flag)), func(res core.Rows) error {
		var c changed
		err := res.Scan((*outboxsql.ID)(&c.id), &c.eventID, &c.topic)
		rows, matching = append(rows, c), append(matching, c.id)
		return err
	})
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	if _, err := q.Exec(ctx, change.text(len(matching)), outboxsql.IDArgs(matching)...); err != nil {
		return 0, err
	}
	for _, c := range rows {
		if _, err := q.Exec(ctx, w.sql.audit, action, req.Actor, req.Reason, c.id[:], c.eventID, c.topic,
			nil); err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}

func (w *rowwise) lockDead(ctx context.Context, q sqlkit.Querier, ids []core.RowID, skipDead bool,
) ([]outboxsql.Source, error) {
	return outboxsql.ReadSources(ctx, q, w.sql.deadForAppend.text(len(ids)), outboxsql.IDArgs(ids, b2i(skipDead)))
}

func (w *rowwise) appendDead(ctx context.Context, q sqlkit.Querier, d outboxsql.Source, req core.AdminRequest) error {
	seq, err := w.nextKeySeq(ctx, q, d)
	if err != nil {
		return err
	}
	if _, err := q.Exec(ctx, w.sql.append, d.NewID[:], seq, d.Lane[:], d.ID[:]); err != nil {
		return err
	}
	if _, err := q.Exec(ctx, w.sql.discardDead, d.ID[:]); err != nil {
		return err
	}
	return w.audit(ctx, q, "redrive", d, req)
}

func (w *rowwise) audit(ctx context.Context, q sqlkit.Querier, action string, d outboxsql.Source,
	req core.AdminRequest,
) error {
	_, err := q.Exec(ctx, w.sql.audit, action, req.Actor, req.Reason, d.ID[:], d.EventID, d.Topic, d.NewID[:])
	return err
}

// nextKeySeq takes the next number of a lane.
func (w *rowwise) nextKeySeq(ctx context.Context, q sqlkit.Querier, d outboxsql.Source) (seq int64, err error) {
	found := false
	args := []any{d.Lane[:], int64(0), d.NewID[:]}
	err = w.plain.upsert(ctx, q, 1, args, func(res core.Rows) error {
		var lane, prev outboxsql.ID
		var first int64
		found = true
		return res.Scan(&lane, &seq, &first, &prev)
	})
	if err == nil && !found {
		err = fmt.Errorf("the key row of row %s is gone", d.ID)
	}
	return seq, err
}
