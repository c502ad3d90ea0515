package sqloutbox

import (
	"context"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// copiedRow are the values of copiedColumns. The copy of an overtaken event carries its first
// number. Otherwise a consumer would take it for the newest.
const copiedRow = `event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, ` +
	`tenant_id, partition_key, ?, payload, content_type, {first_seq:` + core.HeaderFirstKeySeq +
	`}, occurred_at, replay_of`

func (w *rowwise) backlog(ctx context.Context, limit int64) (b core.Backlog, err error) {
	err = w.single(ctx, "backlog", func(q sqlkit.Querier) (err error) {
		b, err = w.countBacklog(ctx, q, limit)
		return err
	})
	return b, err
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
	for i, text := range []string{w.sql.countReady, w.sql.countOpen} {
		var n int64
		var created *int64
		if _, err := sqlkit.FirstRow(ctx, q, text, []any{b.Limit}, &n, &created); err != nil {
			return b, err
		}
		b.Pending += n
		look(created)
		if i > 0 || n < b.Limit {
			continue
		}
		topics, err := w.topics(ctx, q, filter{})
		if err != nil {
			return b, err
		}
		for _, t := range topics { // the count may not have reached the oldest
			var created *int64
			if _, err := sqlkit.FirstRow(ctx, q, w.sql.firstCreated, []any{t}, &created); err != nil {
				return b, err
			}
			look(created)
		}
	}
	if _, err := sqlkit.FirstRow(ctx, q, w.sql.countDead, []any{b.Limit}, &b.Dead); err != nil {
		return b, err
	}
	if _, err := sqlkit.FirstRow(ctx, q, w.sql.countBlocked, []any{b.Limit}, &b.BlockedKeys); err != nil {
		return b, err
	}
	if oldest != nil {
		b.OldestAge = time.Duration(max(0, now-*oldest)) * time.Microsecond
	}
	return b, nil
}

func (w *rowwise) listDead(ctx context.Context, q core.DeadQuery) (dead []core.DeadEvent, err error) {
	args := []any{q.After[:], q.Topic, q.Topic, q.Type, q.Type, q.TenantID, q.TenantID, int64(q.Limit)}
	err = w.single(ctx, "list dead", func(c sqlkit.Querier) (err error) {
		dead, err = readDead(ctx, c, w.sql.listDead, args)
		return err
	})
	return dead, err
}

func (w *rowwise) redrive(ctx context.Context, q sqlkit.Querier, ids []core.RowID, req core.AdminRequest) (int, error) {
	return w.change(ctx, q, w.sql.redriveRows, w.sql.redrive, "redrive", ids, req, req.SkipDead)
}

func (w *rowwise) discard(ctx context.Context, q sqlkit.Querier, ids []core.RowID, req core.AdminRequest) (int, error) {
	return w.change(ctx, q, w.sql.discardRows, w.sql.discard, "discard", ids, req, req.Force)
}

// change finds rows, changes them and writes the audit. The flag is that of find: for redrive, rows
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
	err := sqlkit.EachRow(ctx, q, find.text(len(ids)), idArgs(ids, b2i(flag)), func(res core.Rows) error {
		var c changed
		var id id16
		err := res.Scan(&id, &c.eventID, &c.topic)
		c.id = core.RowID(id)
		rows, matching = append(rows, c), append(matching, c.id)
		return err
	})
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	if _, err := q.Exec(ctx, change.text(len(matching)), idArgs(matching)...); err != nil {
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
) ([]sourceRow, error) {
	return readSources(ctx, q, w.sql.deadForAppend.text(len(ids)), idArgs(ids, b2i(skipDead)))
}

func (w *rowwise) appendDead(ctx context.Context, q sqlkit.Querier, d sourceRow, req core.AdminRequest) error {
	seq, err := w.nextKeySeq(ctx, q, d)
	if err != nil {
		return err
	}
	if _, err := q.Exec(ctx, w.sql.append, d.newID[:], seq, d.lane[:], d.id[:]); err != nil {
		return err
	}
	if _, err := q.Exec(ctx, w.sql.discardDead, d.id[:]); err != nil {
		return err
	}
	_, err = q.Exec(ctx, w.sql.audit, "redrive", req.Actor, req.Reason, d.id[:], d.eventID, d.topic, d.newID[:])
	return err
}

// nextKeySeq takes the next number of a lane.
func (w *rowwise) nextKeySeq(ctx context.Context, q sqlkit.Querier, d sourceRow) (seq int64, err error) {
	found := false
	args := []any{d.lane[:], int64(0), d.newID[:]}
	err = w.plain.upsert(ctx, q, 1, args, func(res core.Rows) error {
		var lane, prev id16
		var first int64
		found = true
		return res.Scan(&lane, &seq, &first, &prev)
	})
	if err == nil && !found {
		err = fmt.Errorf("the key row of row %s is gone", d.id)
	}
	return seq, err
}
