package outboxtest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// Cleanup implements core.Repository.
func (r *Repository) Cleanup(ctx context.Context, keep time.Duration, limit int) (int, error) {
	if err := r.begin(ctx); err != nil {
		return 0, err
	}
	defer r.mu.Unlock()
	before, deleted := r.now().Add(-keep), 0
	for deleted < limit && len(r.table.ended) > 0 && r.table.ended[0].DoneAt.Before(before) {
		r.table.delete(r.table.ended[0])
		deleted++
	}
	return deleted, nil
}

// CollectKeys implements core.Repository. It leaves key rows that a transaction has locked for the
// next round.
func (r *Repository) CollectKeys(ctx context.Context, idle time.Duration, after core.KeyID,
	limit int,
) (int, core.KeyID, error) {
	if err := r.begin(ctx); err != nil {
		return 0, core.KeyID{}, err
	}
	defer r.mu.Unlock()
	before, deleted := r.now().Add(-idle), 0
	lanes := r.sortedKeys()
	start, found := slices.BinarySearchFunc(lanes, after, compareLanes)
	if found {
		start++
	}
	end := min(len(lanes), start+max(limit, 0))
	for _, l := range lanes[start:end] {
		key := r.keys[l]
		if _, locked := r.locks[lockKey{id: l}]; locked || !key.usedAt.Before(before) || len(r.table.lanes[l]) > 0 {
			continue
		}
		r.floor = max(r.floor, key.lastSeq)
		delete(r.keys, l)
		deleted++
	}
	if end < len(lanes) && end > start {
		return deleted, lanes[end-1], nil
	}
	return deleted, core.KeyID{}, nil
}

func (r *Repository) sortedKeys() []core.KeyID {
	return slices.SortedFunc(maps.Keys(r.keys), compareLanes)
}

// ResetKeys implements core.Repository. It waits for the transactions that hold key rows.
func (r *Repository) ResetKeys(ctx context.Context) (int, error) {
	tx, err := r.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	r.mu.Lock()
	lanes := r.sortedKeys()
	r.mu.Unlock()
	for _, l := range lanes {
		if err := r.lock(ctx, tx, lockKey{id: l}); err != nil {
			return 0, err
		}
	}
	return r.resetKeys(lanes), tx.Commit()
}

func (r *Repository) resetKeys(lanes []core.KeyID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, changed := r.now(), 0
	reading := now.UnixMicro()
	for _, key := range r.keys { // if the clock stands still, numbers run ahead of it
		reading = max(reading, key.lastSeq)
	}
	for _, l := range lanes {
		if key := r.keys[l]; key != nil { // the key is gone if its first transaction has rolled back
			*key = keyRow{lastSeq: reading, firstSeq: reading, usedAt: now}
			changed++
		}
	}
	return changed
}
