package sqloutbox

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

func (w *rowwise) markDone(ctx context.Context, done []core.Done, deleteRows bool) (changed int, err error) {
	ids := make([]core.RowID, len(done))
	for i := range done {
		ids[i] = done[i].ID
	}
	statement := w.sql.done
	if deleteRows {
		statement = w.sql.doneDelete
	}
	var held []core.RowID
	err = w.inTx(ctx, "mark done", func(q sqlkit.Querier) (err error) {
		changed, held = 0, nil
		mine, err := w.markable(ctx, q, ids)
		if err != nil {
			return err
		}
		if held, err = w.lockedRows(ctx, q, ids, mine); err != nil || len(mine) == 0 {
			return err
		}
		return diagnosed(func(d diagnostic) error {
			text, args := statement.text(len(mine)), outboxsql.IDArgs(mine)
			if receipts := receiptArgs(done, mine, d); len(receipts) > 0 && !deleteRows {
				whens := strings.Repeat(" WHEN ? THEN ?", len(receipts)/2)
				text = strings.Replace(w.sql.doneReceipts.text(len(mine)), "{whens}", whens, 1)
				args = append(receipts, args...)
			}
			n, err := q.Exec(ctx, text, args...)
			changed = int(n)
			return err
		})
	})
	return changed, orLocked(err, held)
}

// receiptArgs returns the ids in mine that have a receipt, each followed by its receipt. Receipts
// are written with the mark in one statement: one statement for each row made the relay on these
// databases five times slower.
func receiptArgs(done []core.Done, mine []core.RowID, d diagnostic) []any {
	var args []any
	for i := range done { // both are in ascending order of ids
		if len(mine) > 0 && mine[0] == done[i].ID {
			mine = mine[1:]
			if receipt := d.text(done[i].Receipt, maxReceipt); receipt != "" {
				args = append(args, done[i].ID[:], receipt)
			}
		}
	}
	return args
}

// markable locks, on MySQL and MariaDB, the rows that can be marked and that no other transaction
// holds. There, an UPDATE by primary key would also wait for a transaction that has just inserted
// the row.
func (w *rowwise) markable(ctx context.Context, q sqlkit.Querier, ids []core.RowID) ([]core.RowID, error) {
	if !w.locks {
		return ids, nil
	}
	return queryIDs(ctx, q, w.sql.markableLock.text(len(ids)), outboxsql.IDArgs(ids)...)
}

// lockedRows returns the missing rows that another transaction holds: a plain read still shows
// them.
func (w *rowwise) lockedRows(ctx context.Context, q sqlkit.Querier, ids, mine []core.RowID) ([]core.RowID, error) {
	if !w.locks || len(mine) == len(ids) {
		return nil, nil
	}
	rest := slices.DeleteFunc(slices.Clone(ids), func(id core.RowID) bool { return slices.Contains(mine, id) })
	return queryIDs(ctx, q, w.sql.markable.text(len(rest)), outboxsql.IDArgs(rest)...)
}

// heldRows locks the rows whose claims the node holds and has neither released nor marked. It
// returns which of them other transactions have locked.
func (w *rowwise) heldRows(ctx context.Context, q sqlkit.Querier, node string,
	claims []core.ClaimRef,
) (mine, others []core.RowID, err error) {
	claimNo := make(map[core.RowID]int64, len(claims))
	ids := make([]core.RowID, len(claims))
	for i, c := range claims {
		ids[i] = c.ID
		claimNo[c.ID] = c.ClaimNo
	}
	read := func(statement listed, ids []core.RowID) (held, seen []core.RowID, err error) {
		err = sqlkit.EachRow(ctx, q, statement.text(len(ids)), outboxsql.IDArgs(ids, node), func(res core.Rows) error {
			var id outboxsql.ID
			var no int64
			err := res.Scan(&id, &no)
			seen = append(seen, core.RowID(id))
			if no == claimNo[core.RowID(id)] {
				held = append(held, core.RowID(id))
			}
			return err
		})
		return held, seen, err
	}
	mine, seen, err := read(w.sql.heldLock, ids)
	if err != nil || !w.locks || len(seen) == len(ids) {
		return mine, nil, err
	}
	rest := slices.DeleteFunc(ids, func(id core.RowID) bool { return slices.Contains(seen, id) })
	others, _, err = read(w.sql.held, rest)
	return mine, others, err
}

func (w *rowwise) markFailed(ctx context.Context, node string,
	failures []core.Failure,
) (changed map[core.RowID]bool, err error) {
	refs := make([]core.ClaimRef, len(failures))
	byID := make(map[core.RowID]core.Failure, len(failures))
	for i, f := range failures {
		refs[i], byID[f.ID] = f.ClaimRef, f
	}
	var others []core.RowID
	err = w.inTx(ctx, "mark failed", func(q sqlkit.Querier) (err error) {
		changed = map[core.RowID]bool{}
		var held []core.RowID
		if held, others, err = w.heldRows(ctx, q, node, refs); err != nil {
			return err
		}
		for _, id := range held {
			f := byID[id]
			text, arg, counts := w.sql.retry, micros(f.Delay), true
			switch f.Kind {
			case core.FailDead:
				text, arg = w.sql.dead, int64(b2i(f.SkipDead))
			case core.FailUnavailable:
				text, counts = w.sql.unavailable, false
			case core.FailRetry:
			}
			err := diagnosed(func(d diagnostic) error {
				var args []any
				if counts {
					args = append(args, d.attempt(&f, node))
				}
				_, err := q.Exec(
					ctx,
					text,
					append(args, arg, orNil(d.code(f.Code)), orNil(d.text(f.Message, maxMessage)),
						orNil(d.group(f.Group)), id[:])...)
				return err
			})
			if err != nil {
				return err
			}
			changed[id] = true
		}
		return nil
	})
	return changed, orLocked(err, others)
}

func (w *rowwise) beginSuspect(ctx context.Context, node string, claims []core.ClaimRef,
	wait time.Duration,
) (map[core.RowID]bool, error) {
	if wait > 0 {
		return w.fenced(ctx, "begin suspect", w.sql.tryAlone, node, claims, micros(wait))
	}
	return w.fenced(ctx, "begin suspect", w.sql.beginSuspect, node, claims)
}

func (w *rowwise) renew(ctx context.Context, node string, claims []core.ClaimRef,
	lease time.Duration,
) (map[core.RowID]bool, error) {
	return w.fenced(ctx, "renew", w.sql.renew, node, claims, micros(lease))
}

func (w *rowwise) release(ctx context.Context, node string, claims []core.ClaimRef) (map[core.RowID]bool, error) {
	return w.fenced(ctx, "release", w.sql.release, node, claims)
}

// fenced runs a statement on the rows whose claims the node holds.
func (w *rowwise) fenced(ctx context.Context, what string, statement listed, node string, claims []core.ClaimRef,
	first ...any,
) (changed map[core.RowID]bool, err error) {
	var others []core.RowID
	err = w.inTx(ctx, what, func(q sqlkit.Querier) (err error) {
		changed = map[core.RowID]bool{}
		var held []core.RowID
		if held, others, err = w.heldRows(ctx, q, node, claims); err != nil || len(held) == 0 {
			return err
		}
		if _, err := q.Exec(ctx, statement.text(len(held)),
			append(slices.Clip(first), outboxsql.IDArgs(held)...)...); err != nil {
			return err
		}
		for _, id := range held {
			changed[id] = true
		}
		return nil
	})
	return changed, orLocked(err, others)
}
