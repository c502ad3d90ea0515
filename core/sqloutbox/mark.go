package sqloutbox

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

const (
	markChunk  = 500 // rows of one statement
	maxCode    = 64
	maxMessage = 2048
	maxReceipt = 1024
	maxGroup   = 16
)

// MarkDone implements core.Repository. Rows are changed in ascending order of their ids, so that
// marks do not wait for each other in a circle. A receipt that the database cannot store is
// shortened to ASCII, or left out.
func (r *Repository) MarkDone(ctx context.Context, done []core.Done, deleteRows bool) (changed int, err error) {
	done = slices.Clone(done)
	slices.SortFunc(done, func(a, b core.Done) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	done = slices.CompactFunc(done, func(a, b core.Done) bool { return a.ID == b.ID })
	var held locked
	for chunk := range slices.Chunk(done, markChunk) {
		n, err := r.database.markDone(ctx, chunk, deleteRows)
		changed += n
		if err = held.add(err); err != nil {
			return changed, err
		}
	}
	return changed, held.err("mark done")
}

// MarkFailed implements core.Repository. Code and Message are cut to 64 and 2,048 bytes. Characters
// that the database cannot store are replaced or left out.
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
	return guess("mark failed", refs, func(order []int) (map[core.RowID]bool, error) {
		return r.database.markFailed(ctx, node, choose(failures, order))
	})
}

// BeginSuspect implements core.Repository. During a publish that counts lost_claims is negative. A
// claim makes it positive again.
func (r *Repository) BeginSuspect(ctx context.Context, node string, wait time.Duration,
	claims []core.ClaimRef,
) ([]bool, error) {
	return guess("begin suspect", claims, func(order []int) (map[core.RowID]bool, error) {
		return r.database.beginSuspect(ctx, node, choose(claims, order), wait)
	})
}

// Renew implements core.Repository.
func (r *Repository) Renew(ctx context.Context, node string, lease time.Duration,
	claims []core.ClaimRef,
) ([]bool, error) {
	return guess("renew", claims, func(order []int) (map[core.RowID]bool, error) {
		return r.database.renew(ctx, node, choose(claims, order), lease)
	})
}

// Release implements core.Repository.
func (r *Repository) Release(ctx context.Context, node string, claims []core.ClaimRef) (changed int, err error) {
	released, err := guess("release", claims, func(order []int) (map[core.RowID]bool, error) {
		return r.database.release(ctx, node, choose(claims, order))
	})
	for _, ok := range released {
		changed += b2i(ok)
	}
	return changed, err
}

// guess calls mark for chunks of the claims, in ascending order of row ids and each row once. It
// returns which claims changed a row.
func guess(what string, claims []core.ClaimRef, mark func(order []int) (map[core.RowID]bool, error)) ([]bool, error) {
	changed := make([]bool, len(claims))
	order := make([]int, len(claims))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if c := bytes.Compare(claims[a].ID[:], claims[b].ID[:]); c != 0 {
			return c
		}
		// only the latest claim can hold the row
		return int(min(1, max(-1, claims[b].ClaimNo-claims[a].ClaimNo)))
	})
	order = slices.CompactFunc(order, func(a, b int) bool { return claims[a].ID == claims[b].ID })
	var held locked
	for chunk := range slices.Chunk(order, markChunk) {
		ids, err := mark(chunk)
		if err = held.add(err); err != nil {
			return changed, err
		}
		for _, i := range chunk {
			changed[i] = ids[claims[i].ID]
		}
	}
	return changed, held.err(what)
}

// choose returns the items of these places.
func choose[T any](items []T, order []int) []T {
	chosen := make([]T, len(order))
	for i, at := range order {
		chosen[i] = items[at]
	}
	return chosen
}
