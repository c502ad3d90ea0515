package sqloutbox

import (
	"bytes"
	"context"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// pastDead claims from keys. Where dead rows are skipped, rows that died under core.BlockKey leave
// their keys when a claim finds them at the beginning, as rows do that die now. So no later sweep
// reads over them. A claim that found only dead rows claims once more, and farther: the scan goes
// on where the first one ended, because dead rows behind that point stay in their keys.
func (r *Repository) pastDead(ctx context.Context, req core.ClaimRequest, f filter, after core.KeyID,
	claim func() (rows []core.Claimed, next core.KeyID, dead bool, err error),
) ([]core.Claimed, core.KeyID, error) {
	rows, next, dead, err := claim()
	if err != nil || !dead || !req.SkipDead {
		return rows, next, err
	}
	left, err := r.database.leaveKeys(ctx, req, f, after)
	if len(rows) > 0 { // they are claimed already: an error comes again
		return rows, next, nil
	}
	if err != nil || left == 0 {
		return nil, next, err
	}
	rows, far, _, err := claim()
	if !far.IsZero() && (next.IsZero() || bytes.Compare(far[:], next[:]) < 0) { // its limits ended it
		next = far
	}
	return rows, next, err
}

// keyBefore returns the greatest key id that is less than lane.
func keyBefore(lane core.KeyID) core.KeyID {
	for i := len(lane) - 1; i >= 0; i-- {
		if lane[i]--; lane[i] != 0xff {
			break
		}
	}
	return lane
}

// postgresLeaveKeys leaves rows alone that another transaction holds.
var postgresLeaveKeys = renumber(`WITH RECURSIVE `+postgresLanes+`, dead AS MATERIALIZED (
  SELECT e.id FROM {event} e WHERE e.id = ANY (ARRAY(SELECT e.id FROM lanes e WHERE e.status = 3 AND `+
	postgresWanted+`)) AND e.status = 3 ORDER BY e.id FOR UPDATE SKIP LOCKED
)
UPDATE {event} e SET lane = NULL WHERE e.id = ANY (ARRAY(SELECT id FROM dead))`,
	4, 6, 7, 9, 10, 11, 12, 14, 17)

// postgresLeaving is the part of postgres that takes dead rows out of their keys.
type postgresLeaving struct {
	pool
	sql postgresLeavingStatements
}

type postgresLeavingStatements struct{ leaveKeys string }

func (p postgresLeaving) leaveKeys(ctx context.Context, req core.ClaimRequest, f filter, after core.KeyID,
) (left int, err error) {
	args := []any{
		micros(req.MaxLease), textArrayOrNil(f.only), textArray(f.except), after[:], int64(max(req.Keys, 1)),
		f.onlyPrefixes(), textArray(prefixes(f.except)), textArray(f.served), textArray(req.ExceptTenants),
	}
	return sqlkit.Change(ctx, p.scan, "leave keys", p.sql.leaveKeys, args...)
}

func (w *rowwise) leaveKeys(ctx context.Context, req core.ClaimRequest, f filter, after core.KeyID,
) (left int, err error) {
	dead, err := sqlkit.Ask(ctx, w.single, "leave keys", func(q sqlkit.Querier) (dead []core.RowID, err error) {
		scan := laneScan{tables: w, filter: f, most: max(req.Keys, 1), bound: after}
		if err := scan.run(ctx, q); err != nil {
			return nil, err
		}
		heads, err := w.headsOf(ctx, q, req, f, scan.heads)
		for i := range heads {
			if heads[i].dead {
				dead = append(dead, heads[i].id)
			}
		}
		return dead, err
	})
	if err != nil {
		return 0, err
	}
	for chunk := range slices.Chunk(outboxsql.SortedIDs(dead), chunkRows) {
		leave := func(q sqlkit.Querier) (int, error) { return w.leave(ctx, q, chunk) }
		n, err := sqlkit.Ask(ctx, w.inTx, "leave keys", leave)
		if err != nil {
			return left, err
		}
		left += n
	}
	return left, nil
}

// leave removes the dead rows from their keys, except for rows that another transaction holds.
func (w *rowwise) leave(ctx context.Context, q sqlkit.Querier, ids []core.RowID) (int, error) {
	dead, err := queryIDs(ctx, q, w.sql.deadHeads.text(len(ids)), outboxsql.IDArgs(ids)...)
	if err != nil || len(dead) == 0 {
		return 0, err
	}
	_, err = q.Exec(ctx, w.sql.leave.text(len(dead)), outboxsql.IDArgs(dead)...)
	return len(dead), err
}
