package outboxtest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// Cleanup implements core.Repository. It holds no lock while req.Archive runs.
func (r *Repository) Cleanup(ctx context.Context, req core.CleanupRequest) (deleted int, more bool, err error) {
	if err := r.begin(ctx); err != nil {
		return 0, false, err
	}
	defer r.mu.Unlock()
	old := r.old(req)
	if len(old) == max(req.Limit, 0) {
		more = len(old) > 0
	}
	for len(old) > 0 {
		part := old
		if req.Archive != nil {
			part = old[:archivePart(old)]
			archived := make([]core.ArchivedEvent, len(part))
			for i, row := range part {
				archived[i] = row.archived()
			}
			r.mu.Unlock()
			err = req.Archive(ctx, archived)
			r.mu.Lock()
			if err != nil {
				return deleted, false, err
			}
		}
		for _, row := range part {
			if r.table.rows[row.ID] == row { // no other cleanup has deleted it meanwhile
				r.table.delete(row)
				deleted++
			}
		}
		old = old[len(part):]
	}
	return deleted, more, nil
}

// archivePart returns how many rows an archive gets at once.
func archivePart(rows []*Row) (n int) {
	bytes := 0
	for n < min(len(rows), core.ArchiveRows) {
		if bytes += len(rows[n].Event.Payload); n > 0 && bytes > core.ArchiveBytes {
			break
		}
		n++
	}
	return n
}

// old returns the rows that a cleanup deletes. The caller holds r.mu.
func (r *Repository) old(req core.CleanupRequest) (rows []*Row) {
	now := r.now()
	for _, row := range r.table.ended { // the longest ended come first
		if len(rows) >= req.Limit || !row.DoneAt.Before(now.Add(-min(req.Keep, req.KeepDiscarded))) {
			break
		}
		keep := req.Keep
		if row.Status == StatusDiscarded {
			keep = req.KeepDiscarded
		}
		if row.DoneAt.Before(now.Add(-keep)) {
			rows = append(rows, row)
		}
	}
	return rows
}

// archived returns a row as an archive gets it.
func (r *Row) archived() core.ArchivedEvent {
	return core.ArchivedEvent{
		ID: r.ID, Event: cloneEvent(r.Event), KeyID: r.KeyID, KeySeq: r.KeySeq, Discarded: r.Status == StatusDiscarded,
		Attempts: r.Attempts, LostClaims: r.LostClaims, ErrorCode: r.ErrorCode, Error: r.Error, Receipt: r.Receipt,
		ReplayOf: r.ReplayOf, CreatedAt: r.CreatedAt, EndedAt: r.DoneAt,
	}
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
func (r *Repository) ResetKeys(ctx context.Context, actor, reason string) (int, error) {
	if err := checkWho(actor, reason); err != nil {
		return 0, err
	}
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
	changed := r.resetKeys(lanes)
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.audits = append(r.audits, Audit{Action: core.AuditResetKeys, Actor: actor, Reason: reason, At: r.now()})
	return changed, nil
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
