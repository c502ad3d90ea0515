package sqloutbox

import (
	"context"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
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
	err = r.inTx(ctx, "mark done", func(q querier) error {
		changed = 0
		seen, err := r.committed(ctx, q, ids)
		if err != nil || len(seen) == 0 {
			return err
		}
		for i := range done {
			if done[i].Receipt == "" || deleteRows {
				continue
			}
			if _, err := q.Exec(ctx, r.sql.text("receipt"), clean(done[i].Receipt, maxReceipt), done[i].ID[:]); err != nil {
				return err
			}
		}
		n, err := q.Exec(ctx, r.withIDs(name, seen), idArgs(seen)...)
		changed = int(n)
		return err
	})
	return changed, err
}

// committed returns those of the ids that a reader sees, on MySQL and MariaDB: an UPDATE by primary key would wait there for the
// transaction that has just inserted the row.
func (r *Repository) committed(ctx context.Context, q querier, ids []core.RowID) (seen []core.RowID, err error) {
	if r.dialect != core.MySQL {
		return ids, nil
	}
	err = query(ctx, q, r.withIDs("committed", ids), idArgs(ids), func(res core.Rows) error {
		var id id16
		err := res.Scan(&id)
		seen = append(seen, core.RowID(id))
		return err
	})
	return seen, err
}

// heldRows locks the rows whose claims the node holds and has neither released nor settled.
func (r *Repository) heldRows(ctx context.Context, q querier, node string, claims []core.ClaimRef, order []int) ([]core.RowID, error) {
	claimNo := make(map[core.RowID]int64, len(order))
	ids := make([]core.RowID, len(order))
	for i, at := range order {
		ids[i] = claims[at].ID
		claimNo[ids[i]] = claims[at].ClaimNo
	}
	var held []core.RowID
	err := query(ctx, q, r.withIDs("held", ids), idArgs(ids, node), func(res core.Rows) error {
		var id id16
		var no int64
		err := res.Scan(&id, &no)
		if no == claimNo[core.RowID(id)] {
			held = append(held, core.RowID(id))
		}
		return err
	})
	return held, err
}

func (r *Repository) markFailedRows(ctx context.Context, node string, failures []core.Failure, order []int) (changed map[core.RowID]bool, err error) {
	refs := make([]core.ClaimRef, len(failures))
	byID := make(map[core.RowID]core.Failure, len(order))
	for _, i := range order {
		refs[i] = failures[i].ClaimRef
		byID[failures[i].ID] = failures[i]
	}
	err = r.inTx(ctx, "mark failed", func(q querier) error {
		changed = map[core.RowID]bool{}
		held, err := r.heldRows(ctx, q, node, refs, order)
		if err != nil {
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
			args = append(args, orNil(clean(f.Code, maxCode)), orNil(clean(f.Message, maxMessage)), id[:])
			if _, err := q.Exec(ctx, r.sql.text(name), args...); err != nil {
				return err
			}
			changed[id] = true
		}
		return nil
	})
	return changed, err
}

// fencedRows runs renew or release on the rows whose claims the node holds.
func (r *Repository) fencedRows(ctx context.Context, name string, claims []core.ClaimRef, order []int, node string, first ...any,
) (changed map[core.RowID]bool, err error) {
	err = r.inTx(ctx, name, func(q querier) error {
		changed = map[core.RowID]bool{}
		held, err := r.heldRows(ctx, q, node, claims, order)
		if err != nil || len(held) == 0 {
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
	return changed, err
}
