package sqloutbox

import (
	"context"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// admin shows, redrives and discards the events of a Repository.
type admin component[adminStatements]

// adminStatements are the statements that database does not have.
type adminStatements struct {
	seen string // rows that somebody has seen, locked
}

// Backlog implements core.Repository. Above the limit of rows, the oldest age is taken from the
// counted rows and from the first unordered row of each topic.
func (r *admin) Backlog(ctx context.Context, limit int) (core.Backlog, error) {
	if limit <= 0 {
		return core.Backlog{}, nil
	}
	b, err := r.database.backlog(ctx, int64(limit))
	b.More = b.More || b.Pending > b.Limit
	b.Pending = min(b.Pending, b.Limit)
	return b, err
}

// ListDead implements core.Repository.
func (r *admin) ListDead(ctx context.Context, q core.DeadQuery) ([]core.DeadEvent, error) {
	if q.Limit <= 0 {
		q.Limit = 100
	}
	q.Limit = min(q.Limit, 1000)
	return r.database.listDead(ctx, q)
}

// readDead reads dead events of a query with eventColumns and the columns that people want to see.
func readDead(ctx context.Context, q sqlkit.Querier, text string, args []any) ([]core.DeadEvent, error) {
	return sqlkit.Rows(ctx, q, text, args, func(res core.Rows) (d core.DeadEvent, err error) {
		var s eventScan
		var created int64
		_, err = outboxsql.Scan(res, append(s.dest(), &d.Attempts, &d.LostClaims, &d.ErrorCode, &d.Error, &created), 0)
		d.ID, d.KeySeq, d.CreatedAt = core.RowID(s.id), s.keySeq, time.UnixMicro(created).UTC()
		d.Event, _ = s.event() // the part that cannot be read is the reason why it is dead
		return d, err
	})
}

// adminChunk is how many rows a person's request changes in one transaction.
const adminChunk = 500

// Redrive implements core.Repository.
func (r *admin) Redrive(ctx context.Context, req core.AdminRequest) (changed int, err error) {
	if err := outboxsql.CheckWho(req); err != nil {
		return 0, err
	}
	all, err := r.inKeyOrder(ctx, outboxsql.SortedIDs(req.IDs), req)
	if err != nil {
		return 0, err
	}
	return r.eachChunk(ctx, "redrive", all, func(q sqlkit.Querier, ids []core.RowID) (int, error) {
		return r.redrive(ctx, q, outboxsql.SortedIDs(ids), req)
	})
}

// eachChunk runs fn for chunks of the ids, each in a transaction of its own, and adds up what it
// changed.
func (r *admin) eachChunk(ctx context.Context, what string, ids []core.RowID,
	fn func(q sqlkit.Querier, ids []core.RowID) (int, error),
) (changed int, err error) {
	for chunk := range slices.Chunk(ids, adminChunk) {
		n, err := sqlkit.Ask(ctx, r.pool.inTx, what, func(q sqlkit.Querier) (int, error) { return fn(q, chunk) })
		if err != nil {
			return changed, err
		}
		changed += n
	}
	return changed, nil
}

func (r *admin) redrive(ctx context.Context, q sqlkit.Querier, ids []core.RowID, req core.AdminRequest,
) (int, error) {
	ids, err := r.unchanged(ctx, q, ids, req.Seen)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	n, err := r.database.redrive(ctx, q, ids, req)
	if err != nil {
		return 0, err
	}
	appended, err := r.appendDead(ctx, q, ids, req)
	return n + appended, err
}

func (r *admin) discard(ctx context.Context, q sqlkit.Querier, ids []core.RowID, req core.AdminRequest,
) (int, error) {
	ids, err := r.unchanged(ctx, q, ids, req.Seen)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return r.database.discard(ctx, q, ids, req)
}

func newAdminStatements(n names) adminStatements {
	others := "{use:primary} WHERE e.id IN ({ids}) ORDER BY e.id{wait}"
	rows := outboxsql.ByDialect[string]{
		Postgres: " WHERE e.id = ANY ($1::uuid[]) ORDER BY e.id FOR UPDATE", MySQL: others, SQLite: others,
	}
	return adminStatements{
		seen: n.expand("SELECT " + outboxsql.EventColumns + " FROM {event} e" + rows.Of(n.dialect)),
	}
}

// unchanged locks the rows with these ids, and returns the rows that have not changed since they
// were seen.
func (r *admin) unchanged(ctx context.Context, q sqlkit.Querier, ids []core.RowID,
	seen map[core.RowID]core.Sight,
) ([]core.RowID, error) {
	if seen == nil {
		return ids, nil
	}
	text, args := r.names.params().Listed(r.sql.seen, ids)
	rows, err := sqlkit.Rows(ctx, q, text, args, func(res core.Rows) (ops.Event, error) {
		var row outboxsql.EventScan
		err := row.Scan(res)
		return row.Event(), err
	})
	return ops.Unchanged(rows, seen), err
}

// inKeyOrder puts the rows that will be appended to their keys in the order of the keys, if more
// than one transaction appends them. Ids need not have that order.
func (r *admin) inKeyOrder(ctx context.Context, ids []core.RowID, req core.AdminRequest) ([]core.RowID, error) {
	if len(ids) <= adminChunk {
		return ids, nil
	}
	var appended []outboxsql.Source
	for chunk := range slices.Chunk(ids, adminChunk) {
		rows, err := sqlkit.Ask(ctx, r.pool.inTx, "redrive", func(q sqlkit.Querier) ([]outboxsql.Source, error) {
			return r.database.lockDead(ctx, q, chunk, req.SkipDead)
		})
		if err != nil {
			return nil, err
		}
		appended = append(appended, rows...)
	}
	outboxsql.SortByKey(appended)
	first := make([]core.RowID, 0, len(ids))
	moved := map[core.RowID]bool{}
	for _, d := range appended {
		first = append(first, d.ID)
		moved[d.ID] = true
	}
	return append(first, slices.DeleteFunc(ids, func(id core.RowID) bool { return moved[id] })...), nil
}

// Discard implements core.Repository.
func (r *admin) Discard(ctx context.Context, req core.AdminRequest) (changed int, err error) {
	if err := outboxsql.CheckWho(req); err != nil {
		return 0, err
	}
	all := outboxsql.SortedIDs(req.IDs)
	return r.eachChunk(ctx, "discard", all, func(q sqlkit.Querier, ids []core.RowID) (int, error) {
		return r.discard(ctx, q, ids, req)
	})
}

// appendDead gives each dead row of a key that went on a new row at the end of its key, and
// discards the old row. Like every writer of keys it takes the key rows in ascending order.
func (r *admin) appendDead(ctx context.Context, q sqlkit.Querier, ids []core.RowID,
	req core.AdminRequest,
) (int, error) {
	rows, err := r.database.lockDead(ctx, q, ids, req.SkipDead)
	if err != nil {
		return 0, err
	}
	outboxsql.SortByKey(rows)
	for _, d := range rows {
		if d.NewID, err = core.FreshRowID(d.EventID); err != nil {
			return 0, err
		}
		if err := r.database.appendDead(ctx, q, d, req); err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}
