package sqloutbox

import (
	"context"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// rowwiseOld is whether a row ended long enough ago. Its parameters are keeps.
const rowwiseOld = `(e.status = 1 AND e.done_at < {ago} OR e.status = 4 AND e.done_at < {ago})`

func (w *rowwise) cleanup(ctx context.Context, keep keeps, after core.RowID, limit int,
) (found page, err error) {
	var old []core.RowID
	err = w.single(ctx, "cleanup", func(q sqlkit.Querier) error {
		found, old = page{}, nil
		return sqlkit.EachRow(ctx, q, w.sql.ended, append(keep.args(), after[:], limit), func(res core.Rows) error {
			var id id16
			var ended bool
			err := res.Scan(&id, &ended)
			found.seen++
			if found.last = core.RowID(id); ended {
				old = append(old, found.last)
			}
			return err
		})
	})
	if err != nil || len(old) == 0 {
		return found, err
	}
	err = w.inTx(ctx, "cleanup", func(q sqlkit.Querier) error {
		found.deleted = 0
		for chunk := range slices.Chunk(old, chunkRows) {
			n, err := w.deleteOld(ctx, q, keep, chunk)
			if err != nil {
				return err
			}
			found.deleted += n
		}
		return nil
	})
	return found, err
}

func (w *rowwise) lockIdleKeys(ctx context.Context, q sqlkit.Querier, idle time.Duration, after core.KeyID, limit int,
) (locked []core.KeyID, last core.KeyID, seen int, err error) {
	lanes, err := readLanes(ctx, q, w.sql.keys, []any{after[:], limit})
	if err != nil || len(lanes) == 0 {
		return nil, core.KeyID{}, 0, err
	}
	for start := 0; start < len(lanes) && err == nil; start += chunkRows {
		chunk := lanes[start:min(start+chunkRows, len(lanes))]
		var got []core.KeyID
		got, err = readLanes(ctx, q, w.sql.collectLock.text(len(chunk)), idArgs(chunk, micros(idle)))
		locked = append(locked, got...)
	}
	return locked, lanes[len(lanes)-1], len(lanes), err
}

func (w *rowwise) deleteEmptyKeys(ctx context.Context, q sqlkit.Querier, locked []core.KeyID) (deleted int, err error) {
	for start := 0; start < len(locked); start += chunkRows {
		chunk := locked[start:min(start+chunkRows, len(locked))]
		empty, err := readLanes(ctx, q, w.sql.collectEmpty.text(len(chunk)), idArgs(chunk))
		if err != nil {
			return 0, err
		}
		if len(empty) == 0 {
			continue
		}
		n, err := q.Exec(ctx, w.sql.collectDelete.text(len(empty)), idArgs(empty)...)
		if err != nil {
			return 0, err
		}
		deleted += int(n)
	}
	return deleted, nil
}

func readLanes(ctx context.Context, q sqlkit.Querier, text string, args []any) (lanes []core.KeyID, err error) {
	err = sqlkit.EachRow(ctx, q, text, args, func(res core.Rows) error {
		var lane id16
		err := res.Scan(&lane)
		lanes = append(lanes, core.KeyID(lane))
		return err
	})
	return lanes, err
}

func (w *rowwise) resetKeys(ctx context.Context, q sqlkit.Querier) (int64, error) {
	return q.Exec(ctx, w.sql.resetKeys)
}

func (w *rowwise) auditWhole(ctx context.Context, q sqlkit.Querier, action, topic string,
	req core.AdminRequest,
) error {
	var none core.RowID
	_, err := q.Exec(ctx, w.sql.audit, action, req.Actor, req.Reason, none[:], "", topic, nil)
	return err
}
