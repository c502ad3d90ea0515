package sqloutbox

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

const (
	markChunk  = 500 // rows of one statement
	maxCode    = 64
	maxMessage = 2048
	maxReceipt = 1024
)

// MarkDone implements core.Repository. Rows are changed in ascending order of their ids, so that marks do not wait for each other in
// a circle.
func (r *Repository) MarkDone(ctx context.Context, done []core.Done, deleteRows bool) (changed int, err error) {
	done = slices.Clone(done)
	slices.SortFunc(done, func(a, b core.Done) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	done = slices.CompactFunc(done, func(a, b core.Done) bool { return a.ID == b.ID })
	for chunk := range slices.Chunk(done, markChunk) {
		n := 0
		if r.dialect == core.Postgres {
			n, err = r.markDonePostgres(ctx, chunk, deleteRows)
		} else {
			n, err = r.markDoneRows(ctx, chunk, deleteRows)
		}
		changed += n
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// MarkFailed implements core.Repository. Code and Message are cut to 64 and 2,048 bytes.
func (r *Repository) MarkFailed(ctx context.Context, node string, failures []core.Failure) ([]bool, error) {
	for _, f := range failures {
		if f.Kind < core.FailRetry || f.Kind > core.FailUnavailable {
			return nil, fmt.Errorf("sqloutbox: mark failed: row %s: unknown kind of failure %d", f.ID, f.Kind)
		}
	}
	refs := make([]core.ClaimRef, len(failures))
	for i, f := range failures {
		refs[i] = f.ClaimRef
	}
	return r.guess(refs, func(order []int) (map[core.RowID]bool, error) {
		if r.dialect == core.Postgres {
			return r.markFailedPostgres(ctx, node, failures, order)
		}
		return r.markFailedRows(ctx, node, failures, order)
	})
}

// Renew implements core.Repository.
func (r *Repository) Renew(ctx context.Context, node string, lease time.Duration, claims []core.ClaimRef) ([]bool, error) {
	return r.guess(claims, func(order []int) (map[core.RowID]bool, error) {
		if r.dialect == core.Postgres {
			return r.fencedPostgres(ctx, "renew", claims, order, node, micros(lease))
		}
		return r.fencedRows(ctx, "renew", claims, order, node, micros(lease))
	})
}

// Release implements core.Repository.
func (r *Repository) Release(ctx context.Context, node string, claims []core.ClaimRef) (changed int, err error) {
	released, err := r.guess(claims, func(order []int) (map[core.RowID]bool, error) {
		if r.dialect == core.Postgres {
			return r.fencedPostgres(ctx, "release", claims, order, node)
		}
		return r.fencedRows(ctx, "release", claims, order, node)
	})
	for _, ok := range released {
		changed += b2i(ok)
	}
	return changed, err
}

// guess calls mark for chunks of the claims, in ascending order of row ids and each row once, and says which it changed.
func (r *Repository) guess(claims []core.ClaimRef, mark func(order []int) (map[core.RowID]bool, error)) ([]bool, error) {
	changed := make([]bool, len(claims))
	order := make([]int, len(claims))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if c := bytes.Compare(claims[a].ID[:], claims[b].ID[:]); c != 0 {
			return c
		}
		return int(min(1, max(-1, claims[b].ClaimNo-claims[a].ClaimNo))) // the latest claim is the only one that can hold
	})
	order = slices.CompactFunc(order, func(a, b int) bool { return claims[a].ID == claims[b].ID })
	for chunk := range slices.Chunk(order, markChunk) {
		ids, err := mark(chunk)
		if err != nil {
			return changed, err
		}
		for _, i := range chunk {
			changed[i] = ids[claims[i].ID]
		}
	}
	return changed, nil
}

// fence is the condition of every guess. A claim that was released or settled has no lease any more: repeating a guess whose answer was
// lost changes nothing.
const fence = "e.claim_no = v.claim_no AND e.claimed_by = $1::text AND e.status IN (0,2) AND e.lease_until IS NOT NULL"

const (
	postgresDone = `UPDATE {event} e SET status = 1, done_at = clock_timestamp(), lease_until = NULL, last_error_code = NULL, last_error = NULL
WHERE e.id = ANY ($1::uuid[]) AND e.status IN (0,2,3)`
	postgresDoneReceipts = `UPDATE {event} e SET status = 1, done_at = clock_timestamp(), lease_until = NULL, last_error_code = NULL, last_error = NULL, receipt = NULLIF(v.receipt, '')
FROM unnest($1::uuid[], $2::text[]) v(id, receipt) WHERE e.id = v.id AND e.status IN (0,2,3)`
	postgresDoneDelete = `DELETE FROM {event} e WHERE e.id = ANY ($1::uuid[]) AND e.status IN (0,2,3)`
	postgresFailed     = `UPDATE {event} e SET status = CASE v.kind WHEN 1 THEN 2 WHEN 2 THEN 3 ELSE e.status END,
  attempts = e.attempts + CASE WHEN v.kind = 3 THEN 0 ELSE 1 END,
  available_at = CASE WHEN v.kind = 2 THEN e.available_at ELSE clock_timestamp() + v.delay * interval '1 microsecond' END,
  lease_until = NULL, last_error_code = NULLIF(v.code, ''), last_error = NULLIF(v.message, '')
FROM unnest($2::uuid[], $3::bigint[], $4::integer[], $5::bigint[], $6::text[], $7::text[]) v(id, claim_no, kind, delay, code, message)
WHERE e.id = v.id AND ` + fence + ` RETURNING e.id`
	postgresRenew = `UPDATE {event} e SET lease_until = clock_timestamp() + $4::bigint * interval '1 microsecond'
FROM unnest($2::uuid[], $3::bigint[]) v(id, claim_no) WHERE e.id = v.id AND ` + fence + ` RETURNING e.id`
	postgresRelease = `UPDATE {event} e SET lease_until = NULL
FROM unnest($2::uuid[], $3::bigint[]) v(id, claim_no) WHERE e.id = v.id AND ` + fence + ` RETURNING e.id`
)

func (r *Repository) markDonePostgres(ctx context.Context, done []core.Done, deleteRows bool) (changed int, err error) {
	name := "done"
	args := []any{column(done, func(d *core.Done) string { return d.ID.String() })}
	switch {
	case deleteRows:
		name = "done_delete"
	case slices.ContainsFunc(done, func(d core.Done) bool { return d.Receipt != "" }):
		name = "done_receipts"
		args = append(args, column(done, func(d *core.Done) string { return clean(d.Receipt, maxReceipt) }))
	}
	err = r.single(ctx, "mark done", func(q querier) error {
		n, err := q.Exec(ctx, r.sql.text(name), args...)
		changed = int(n)
		return err
	})
	return changed, err
}

// pick makes an array of a field of the chosen items.
func pick[T any](items []T, order []int, field func(*T) string) string {
	return column(order, func(i *int) string { return field(&items[*i]) })
}

func (r *Repository) markFailedPostgres(ctx context.Context, node string, failures []core.Failure, order []int) (map[core.RowID]bool, error) {
	return r.returningIDs(ctx, "mark failed", r.sql.text("failed"), []any{
		node,
		pick(failures, order, func(f *core.Failure) string { return f.ID.String() }),
		pick(failures, order, func(f *core.Failure) string { return strconv.FormatInt(f.ClaimNo, 10) }),
		pick(failures, order, func(f *core.Failure) string { return strconv.Itoa(int(f.Kind)) }),
		pick(failures, order, func(f *core.Failure) string { return strconv.FormatInt(micros(f.Delay), 10) }),
		pick(failures, order, func(f *core.Failure) string { return clean(f.Code, maxCode) }),
		pick(failures, order, func(f *core.Failure) string { return clean(f.Message, maxMessage) }),
	})
}

func (r *Repository) fencedPostgres(ctx context.Context, name string, claims []core.ClaimRef, order []int, node string, more ...any,
) (map[core.RowID]bool, error) {
	return r.returningIDs(ctx, name, r.sql.text(name), append([]any{
		node,
		pick(claims, order, func(c *core.ClaimRef) string { return c.ID.String() }),
		pick(claims, order, func(c *core.ClaimRef) string { return strconv.FormatInt(c.ClaimNo, 10) }),
	}, more...))
}

// returningIDs runs one statement that returns the ids of the rows it changed.
func (r *Repository) returningIDs(ctx context.Context, what, text string, args []any) (ids map[core.RowID]bool, err error) {
	err = r.single(ctx, what, func(q querier) error {
		ids = map[core.RowID]bool{}
		return query(ctx, q, text, args, func(res core.Rows) error {
			var id id16
			err := res.Scan(&id)
			ids[core.RowID(id)] = true
			return err
		})
	})
	return ids, err
}
