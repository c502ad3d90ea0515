package sqloutbox

import (
	"context"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

func (r *Repository) backlogRows(ctx context.Context, q sqlkit.Querier, b *core.Backlog) (age *int64, err error) {
	var now int64
	var oldest *int64
	if _, err := sqlkit.FirstRow(ctx, q, r.sql.text("clock"), nil, &now); err != nil {
		return nil, err
	}
	look := func(created *int64) {
		if created != nil && (oldest == nil || *created < *oldest) {
			oldest = created
		}
	}
	b.Pending = 0
	for _, name := range []string{"count_ready", "count_open"} {
		var n int64
		var created *int64
		if _, err := sqlkit.FirstRow(ctx, q, r.sql.text(name), []any{b.Limit}, &n, &created); err != nil {
			return nil, err
		}
		b.Pending += n
		look(created)
		if name != "count_ready" || n < b.Limit {
			continue
		}
		topics, err := r.topics(ctx, q, filter{})
		if err != nil {
			return nil, err
		}
		for _, t := range topics { // the count may not have reached the oldest
			var created *int64
			if _, err := sqlkit.FirstRow(ctx, q, r.sql.text("first_created"), []any{t}, &created); err != nil {
				return nil, err
			}
			look(created)
		}
	}
	if _, err := sqlkit.FirstRow(ctx, q, r.sql.text("count_dead"), []any{b.Limit}, &b.Dead); err != nil {
		return nil, err
	}
	if _, err := sqlkit.FirstRow(ctx, q, r.sql.text("count_blocked"), []any{b.Limit}, &b.BlockedKeys); err != nil {
		return nil, err
	}
	if oldest == nil {
		return nil, nil
	}
	d := now - *oldest
	return &d, nil
}

// changeRows runs an audited change: redrive (flag: not the rows of lanes) or discard (flag: also
// leased rows).
func (r *Repository) changeRows(ctx context.Context, q sqlkit.Querier, action string, ids []core.RowID,
	req core.AdminRequest, flag bool,
) (int, error) {
	type changed struct {
		id             core.RowID
		eventID, topic string
	}
	var rows []changed
	var matching []core.RowID
	err := sqlkit.EachRow(ctx, q, r.withIDs(action+"_rows", ids), idArgs(ids, b2i(flag)), func(res core.Rows) error {
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
	if _, err := q.Exec(ctx, r.withIDs(action, matching), idArgs(matching)...); err != nil {
		return 0, err
	}
	for _, c := range rows {
		if _, err := q.Exec(ctx, r.sql.text("audit"), action, req.Actor, req.Reason, c.id[:], c.eventID, c.topic,
			nil); err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}

// nextKeySeq takes the next number of a lane.
func (r *Repository) nextKeySeq(ctx context.Context, q sqlkit.Querier, d deadRow) (seq int64, err error) {
	upsert := r.sql.build("key", 1, 0, func(n, m int) string { return r.keyUpsert(n, m) })
	args := []any{d.lane[:], int64(0), d.newID[:]}
	read := func(text string, args []any) error {
		found := false
		err := sqlkit.EachRow(ctx, q, text, args, func(res core.Rows) error {
			var lane, prev id16
			var first int64
			found = true
			return res.Scan(&lane, &seq, &first, &prev)
		})
		if err == nil && !found {
			err = fmt.Errorf("the key row of row %s is gone", d.id)
		}
		return err
	}
	if r.dialect == core.SQLite {
		return seq, read(upsert, args)
	}
	if _, err := q.Exec(ctx, upsert, args...); err != nil {
		return 0, err
	}
	return seq, read(r.sql.build("key_read", 1, 0, keyRead), args[:1])
}

func (r *Repository) cleanupRows(ctx context.Context, keep time.Duration, limit int) (deleted int, err error) {
	limit = min(limit, chunkRows*10)
	err = r.inTx(ctx, "cleanup", func(q sqlkit.Querier) error {
		deleted = 0
		var ids []core.RowID
		err := sqlkit.EachRow(ctx, q, r.sql.text("ended"), []any{micros(keep), limit}, func(res core.Rows) error {
			var id id16
			err := res.Scan(&id)
			ids = append(ids, core.RowID(id))
			return err
		})
		if err != nil {
			return err
		}
		ids = sortedIDs(ids)
		for start := 0; start < len(ids); start += chunkRows {
			chunk := ids[start:min(start+chunkRows, len(ids))]
			n, err := q.Exec(ctx, r.withIDs("cleanup", chunk), idArgs(chunk)...)
			if err != nil {
				return err
			}
			deleted += int(n)
		}
		return nil
	})
	return deleted, err
}

func (r *Repository) lockIdleKeysRows(ctx context.Context, q sqlkit.Querier, idle time.Duration, after core.KeyID,
	limit int,
) (locked []core.KeyID, last core.KeyID, seen int, err error) {
	lanes, err := r.lanes(ctx, q, r.sql.text("keys"), []any{after[:], limit})
	if err != nil || len(lanes) == 0 {
		return nil, core.KeyID{}, 0, err
	}
	for start := 0; start < len(lanes) && err == nil; start += chunkRows {
		chunk := lanes[start:min(start+chunkRows, len(lanes))]
		var got []core.KeyID
		got, err = r.lanes(ctx, q, r.list("collect_lock", len(chunk)), idArgs(chunk, micros(idle)))
		locked = append(locked, got...)
	}
	return locked, lanes[len(lanes)-1], len(lanes), err
}

func (r *Repository) deleteEmptyKeysRows(ctx context.Context, q sqlkit.Querier,
	locked []core.KeyID,
) (deleted int, err error) {
	for start := 0; start < len(locked); start += chunkRows {
		chunk := locked[start:min(start+chunkRows, len(locked))]
		empty, err := r.lanes(ctx, q, r.list("collect_empty", len(chunk)), idArgs(chunk))
		if err != nil {
			return 0, err
		}
		if len(empty) == 0 {
			continue
		}
		n, err := q.Exec(ctx, r.list("collect_delete", len(empty)), idArgs(empty)...)
		if err != nil {
			return 0, err
		}
		deleted += int(n)
	}
	return deleted, nil
}

func (r *Repository) lanes(ctx context.Context, q sqlkit.Querier, text string,
	args []any,
) (lanes []core.KeyID, err error) {
	err = sqlkit.EachRow(ctx, q, text, args, func(res core.Rows) error {
		var lane id16
		err := res.Scan(&lane)
		lanes = append(lanes, core.KeyID(lane))
		return err
	})
	return lanes, err
}
