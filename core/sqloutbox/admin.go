package sqloutbox

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

const copiedColumns = `event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, ` +
	`tenant_id, partition_key, lane, payload, content_type, headers, occurred_at, replay_of`

// Backlog implements core.Repository. The oldest age is exact up to the limit of rows. Above it, it
// is the age of the counted rows and of the first unordered row of each topic.
func (r *Repository) Backlog(ctx context.Context, limit int) (core.Backlog, error) {
	if limit <= 0 {
		return core.Backlog{}, nil
	}
	b, err := r.database.backlog(ctx, int64(limit))
	b.Pending = min(b.Pending, b.Limit)
	return b, err
}

// ListDead implements core.Repository.
func (r *Repository) ListDead(ctx context.Context, q core.DeadQuery) ([]core.DeadEvent, error) {
	if q.Limit <= 0 {
		q.Limit = 100
	}
	q.Limit = min(q.Limit, 1000)
	return r.database.listDead(ctx, q)
}

// readDead reads dead events of a query with eventColumns and the columns that people want to see.
func readDead(ctx context.Context, q sqlkit.Querier, text string, args []any) (dead []core.DeadEvent, err error) {
	err = sqlkit.EachRow(ctx, q, text, args, func(res core.Rows) error {
		var s eventScan
		var d core.DeadEvent
		var created int64
		if _, err := scanRow(res, append(s.dest(), &d.Attempts, &d.LostClaims, &d.ErrorCode, &d.Error, &created),
			0); err != nil {
			return err
		}
		d.ID, d.KeySeq, d.CreatedAt = core.RowID(s.id), s.keySeq, time.UnixMicro(created).UTC()
		d.Event, _ = s.event() // the part that cannot be read is the reason why it is dead
		dead = append(dead, d)
		return nil
	})
	return dead, err
}

func checkAdmin(req core.AdminRequest) error {
	if req.Actor == "" || req.Reason == "" {
		return fmt.Errorf("sqloutbox: %w: Actor and Reason are required", core.ErrInvalidRequest)
	}
	return nil
}

// adminChunk is how many rows a person's request changes in one transaction.
const adminChunk = 500

// sortedIDs returns the ids in ascending order, each once.
func sortedIDs(ids []core.RowID) []core.RowID {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b core.RowID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(ids)
}

// Redrive implements core.Repository.
func (r *Repository) Redrive(ctx context.Context, req core.AdminRequest) (changed int, err error) {
	if err := checkAdmin(req); err != nil {
		return 0, err
	}
	all, err := r.inKeyOrder(ctx, sortedIDs(req.IDs), req)
	if err != nil {
		return 0, err
	}
	for chunk := range slices.Chunk(all, adminChunk) {
		n, ids := 0, sortedIDs(chunk)
		err := r.inTx(ctx, "redrive", func(q sqlkit.Querier) (err error) {
			if n, err = r.database.redrive(ctx, q, ids, req); err != nil {
				return err
			}
			appended, err := r.appendDead(ctx, q, ids, req)
			n += appended
			return err
		})
		if err != nil {
			return changed, err
		}
		changed += n
	}
	return changed, nil
}

// inKeyOrder puts the rows that will be appended to their keys in the order of the keys, if more
// than one transaction appends them. Ids need not have that order.
func (r *Repository) inKeyOrder(ctx context.Context, ids []core.RowID, req core.AdminRequest) ([]core.RowID, error) {
	if len(ids) <= adminChunk {
		return ids, nil
	}
	var appended []sourceRow
	for chunk := range slices.Chunk(ids, adminChunk) {
		var rows []sourceRow
		err := r.inTx(ctx, "redrive", func(q sqlkit.Querier) (err error) {
			rows, err = r.database.lockDead(ctx, q, chunk, req.SkipDead)
			return err
		})
		if err != nil {
			return nil, err
		}
		appended = append(appended, rows...)
	}
	sortByKey(appended)
	first := make([]core.RowID, 0, len(ids))
	moved := map[core.RowID]bool{}
	for _, d := range appended {
		first = append(first, d.id)
		moved[d.id] = true
	}
	return append(first, slices.DeleteFunc(ids, func(id core.RowID) bool { return moved[id] })...), nil
}

// Discard implements core.Repository.
func (r *Repository) Discard(ctx context.Context, req core.AdminRequest) (changed int, err error) {
	if err := checkAdmin(req); err != nil {
		return 0, err
	}
	for ids := range slices.Chunk(sortedIDs(req.IDs), adminChunk) {
		n := 0
		err := r.inTx(ctx, "discard", func(q sqlkit.Querier) (err error) {
			n, err = r.database.discard(ctx, q, ids, req)
			return err
		})
		if err != nil {
			return changed, err
		}
		changed += n
	}
	return changed, nil
}

// sourceRow is a row that gets a copy: a dead row that is appended to its key again, or a done row
// that is replayed. lane is that of the copy, or zero.
type sourceRow struct {
	id, newID core.RowID
	lane      core.KeyID
	keySeq    int64
	eventID   string
	topic     string
}

// appendDead gives each dead row of a key that went on a new row at the end of its key, and
// discards the old row. Like every writer of keys it takes the key rows in ascending order.
func (r *Repository) appendDead(ctx context.Context, q sqlkit.Querier, ids []core.RowID,
	req core.AdminRequest,
) (int, error) {
	rows, err := r.database.lockDead(ctx, q, ids, req.SkipDead)
	if err != nil {
		return 0, err
	}
	sortByKey(rows)
	for _, d := range rows {
		if d.newID, err = core.FreshRowID(d.eventID); err != nil {
			return 0, err
		}
		if err := r.database.appendDead(ctx, q, d, req); err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}

func sortByKey(rows []sourceRow) {
	slices.SortFunc(rows, func(a, b sourceRow) int {
		return cmp.Or(bytes.Compare(a.lane[:], b.lane[:]), cmp.Compare(a.keySeq, b.keySeq),
			bytes.Compare(a.id[:], b.id[:]))
	})
}

// readSources reads the result of lockDead and lockDone. A row that left its key has no lane any
// more: tenant, topic and key say which it was.
func readSources(ctx context.Context, q sqlkit.Querier, text string, args []any) (rows []sourceRow, err error) {
	err = sqlkit.EachRow(ctx, q, text, args, func(res core.Rows) error {
		var d sourceRow
		var id id16
		var tenant, key string
		var replay bool
		err := res.Scan(&id, &d.eventID, &d.topic, &tenant, &key, &d.keySeq, &replay)
		d.id = core.RowID(id)
		if d.keySeq != 0 {
			d.lane = core.NewKeyID(tenant, d.topic, key)
		}
		if replay && d.keySeq != 0 {
			d.lane = core.ReplayKeyID(d.lane)
		}
		rows = append(rows, d)
		return err
	})
	return rows, err
}
