package sqloutbox

import (
	"context"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

func (r *Repository) markDoneRows(ctx context.Context, done []core.Done, deleteRows bool) (changed int, err error) {
	ids := make([]core.RowID, len(done))
	for i := range done {
		ids[i] = done[i].ID
	}
	name := "done"
	if deleteRows {
		name = "done_delete"
	}
	var held []core.RowID
	err = r.inTx(ctx, "mark done", func(q sqlkit.Querier) (err error) {
		changed, held = 0, nil
		mine, err := r.markable(ctx, q, ids)
		if err != nil {
			return err
		}
		if held, err = r.lockedRows(ctx, q, ids, mine, "markable"); err != nil || len(mine) == 0 {
			return err
		}
		return diagnosed(func(d diagnostic) error {
			text, args := r.withIDs(name, mine), idArgs(mine)
			if receipts := receiptArgs(done, mine, d); len(receipts) > 0 && !deleteRows {
				whens := strings.Repeat(" WHEN ? THEN ?", len(receipts)/2)
				text = strings.Replace(r.withIDs("done_receipts", mine), "{whens}", whens, 1)
				args = append(receipts, args...)
			}
			n, err := q.Exec(ctx, text, args...)
			changed = int(n)
			return err
		})
	})
	if err == nil && len(held) > 0 {
		err = &core.LockedError{Rows: held}
	}
	return changed, err
}

// receiptArgs returns the ids of those of mine that have a receipt, each followed by its receipt.
// Receipts go with the mark in one statement: one for each row made the relay on these databases a
// fifth as fast as without receipts.
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

// markable locks, on MySQL and MariaDB, those of the rows that can be marked and that no other
// transaction holds. An UPDATE by primary key would wait there also for the transaction that has
// just inserted the row.
func (r *Repository) markable(ctx context.Context, q sqlkit.Querier, ids []core.RowID) ([]core.RowID, error) {
	if r.dialect != core.MySQL {
		return ids, nil
	}
	return queryIDs(ctx, q, r.withIDs("markable_lock", ids), idArgs(ids)...)
}

// lockedRows returns which of the rows that were not to be had another transaction holds: a reader
// sees them as they were.
func (r *Repository) lockedRows(ctx context.Context, q sqlkit.Querier, ids, mine []core.RowID, name string,
	more ...any,
) ([]core.RowID, error) {
	if r.dialect != core.MySQL || len(mine) == len(ids) {
		return nil, nil
	}
	rest := slices.DeleteFunc(slices.Clone(ids), func(id core.RowID) bool { return slices.Contains(mine, id) })
	return queryIDs(ctx, q, r.withIDs(name, rest), idArgs(rest, more...)...)
}

// heldRows locks the rows whose claims the node holds and has neither released nor settled, and
// returns which of them others have locked.
func (r *Repository) heldRows(ctx context.Context, q sqlkit.Querier, node string, claims []core.ClaimRef,
	order []int,
) (mine, others []core.RowID, err error) {
	claimNo := make(map[core.RowID]int64, len(order))
	ids := make([]core.RowID, len(order))
	for i, at := range order {
		ids[i] = claims[at].ID
		claimNo[ids[i]] = claims[at].ClaimNo
	}
	read := func(name string, ids []core.RowID) (held, seen []core.RowID, err error) {
		err = sqlkit.EachRow(ctx, q, r.withIDs(name, ids), idArgs(ids, node), func(res core.Rows) error {
			var id id16
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
	mine, seen, err := read("held_lock", ids)
	if err != nil || r.dialect != core.MySQL || len(seen) == len(ids) {
		return mine, nil, err
	}
	rest := slices.DeleteFunc(ids, func(id core.RowID) bool { return slices.Contains(seen, id) })
	others, _, err = read("held", rest)
	return mine, others, err
}

func (r *Repository) markFailedRows(ctx context.Context, node string, failures []core.Failure,
	order []int,
) (changed map[core.RowID]bool, err error) {
	refs := make([]core.ClaimRef, len(failures))
	byID := make(map[core.RowID]core.Failure, len(order))
	for _, i := range order {
		refs[i] = failures[i].ClaimRef
		byID[failures[i].ID] = failures[i]
	}
	var others []core.RowID
	err = r.inTx(ctx, "mark failed", func(q sqlkit.Querier) (err error) {
		changed = map[core.RowID]bool{}
		var held []core.RowID
		if held, others, err = r.heldRows(ctx, q, node, refs, order); err != nil {
			return err
		}
		for _, id := range held {
			f := byID[id]
			name, args := "retry", []any{micros(f.Delay)}
			switch f.Kind {
			case core.FailDead:
				name, args = "dead", nil
			case core.FailUnavailable:
				name = "unavailable"
			case core.FailRetry:
			}
			err := diagnosed(func(d diagnostic) error {
				_, err := q.Exec(ctx, r.sql.text(name),
					append(args, orNil(d.code(f.Code)), orNil(d.text(f.Message, maxMessage)), id[:])...)
				return err
			})
			if err != nil {
				return err
			}
			changed[id] = true
		}
		return nil
	})
	if err == nil && len(others) > 0 {
		err = &core.LockedError{Rows: others}
	}
	return changed, err
}

// fencedRows runs renew or release on the rows whose claims the node holds.
func (r *Repository) fencedRows(ctx context.Context, name string, claims []core.ClaimRef, order []int, node string,
	first ...any,
) (changed map[core.RowID]bool, err error) {
	var others []core.RowID
	err = r.inTx(ctx, name, func(q sqlkit.Querier) (err error) {
		changed = map[core.RowID]bool{}
		var held []core.RowID
		if held, others, err = r.heldRows(ctx, q, node, claims, order); err != nil || len(held) == 0 {
			return err
		}
		if _, err := q.Exec(ctx, r.withIDs(name, held), append(slices.Clip(first), idArgs(held)...)...); err != nil {
			return err
		}
		for _, id := range held {
			changed[id] = true
		}
		return nil
	})
	if err == nil && len(others) > 0 {
		err = &core.LockedError{Rows: others}
	}
	return changed, err
}
