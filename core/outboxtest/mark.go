package outboxtest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
)

// MarkDone implements core.Repository.
func (r *Repository) MarkDone(ctx context.Context, done []core.Done, deleteRows bool) (int, error) {
	if err := r.begin(ctx); err != nil {
		return 0, err
	}
	defer r.mu.Unlock()
	now, changed := r.now(), 0
	var held []core.RowID
	for _, d := range done {
		row := r.table.rows[d.ID]
		if row == nil || !row.Status.open() && row.Status != StatusDead {
			continue
		}
		if r.locked(d.ID) {
			held = append(held, d.ID)
			continue
		}
		changed++
		if deleteRows {
			r.table.delete(row)
			continue
		}
		r.table.change(row, func() {
			row.Status, row.DoneAt, row.LeaseUntil, row.Receipt = StatusDone, now, time.Time{}, d.Receipt
			row.ErrorCode, row.Error = "", ""
		})
	}
	return changed, lockedError(held)
}

// lockedError returns a *core.LockedError for held, or nil if held is empty.
func lockedError(held []core.RowID) error {
	if len(held) == 0 {
		return nil
	}
	return &core.LockedError{Rows: held}
}

// MarkFailed implements core.Repository.
func (r *Repository) MarkFailed(ctx context.Context, node string, failures []core.Failure) ([]bool, error) {
	for _, f := range failures {
		if f.Kind < core.FailRetry || f.Kind > core.FailUnavailable {
			return nil, fmt.Errorf("outboxtest: row %s: unknown kind of failure %d", f.ID, f.Kind)
		}
	}
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	now, changed := r.now(), make([]bool, len(failures))
	var held []core.RowID
	for i, f := range failures {
		row := r.table.rows[f.ID]
		if row == nil || !row.heldBy(node, f.ClaimNo) {
			continue
		}
		if r.locked(f.ID) {
			held = append(held, f.ID)
			continue
		}
		changed[i] = true
		r.table.change(row, func() { row.fail(f, now) })
	}
	return changed, lockedError(held)
}

// keptFailures is how many bytes of Row.failures are kept.
const keptFailures = 5100

func (r *Row) fail(f core.Failure, now time.Time) {
	r.LeaseUntil, r.ErrorCode, r.Error = time.Time{}, strings.ToValidUTF8(f.Code, "?"),
		strings.ToValidUTF8(f.Message, "?")
	r.ErrorGroup = strings.ToValidUTF8(f.Group[:min(len(f.Group), 16)], "?")
	if f.Kind != core.FailUnavailable {
		line := outboxsql.AttemptLine(f.Path, r.ClaimedBy, r.ErrorCode, r.Error)
		r.failures += fmt.Sprintf("%d %d%s", now.UnixMicro(), r.Attempts+1, line)
		r.failures = r.failures[max(0, len(r.failures)-keptFailures):]
	}
	switch f.Kind {
	case core.FailRetry:
		r.Status, r.AvailableAt = StatusRetry, now.Add(f.Delay)
		r.Attempts++
	case core.FailDead:
		r.Status, r.leftKey = StatusDead, f.SkipDead && !r.KeyID.IsZero()
		r.Attempts++
	case core.FailUnavailable:
		r.AvailableAt = now.Add(f.Delay)
	}
}

// Renew implements core.Repository.
func (r *Repository) Renew(ctx context.Context, node string, lease time.Duration,
	claims []core.ClaimRef,
) ([]bool, error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	now, renewed := r.now(), make([]bool, len(claims))
	var held []core.RowID
	for i, c := range claims {
		switch row := r.table.rows[c.ID]; {
		case row == nil || !row.heldBy(node, c.ClaimNo):
		case r.locked(c.ID):
			held = append(held, c.ID)
		default:
			renewed[i], row.LeaseUntil = true, now.Add(lease)
		}
	}
	return renewed, lockedError(held)
}

// BeginSuspect implements core.Repository.
func (r *Repository) BeginSuspect(ctx context.Context, node string, wait time.Duration,
	claims []core.ClaimRef,
) ([]bool, error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	now, begun := r.now(), make([]bool, len(claims))
	var held []core.RowID
	for i, c := range claims {
		switch row := r.table.rows[c.ID]; {
		case row == nil || !row.heldBy(node, c.ClaimNo):
		case r.locked(c.ID):
			held = append(held, c.ID)
		default:
			begun[i], row.suspectBegun = true, wait == 0
			if wait > 0 {
				r.table.change(row, func() { row.AvailableAt = now.Add(wait) })
			}
		}
	}
	return begun, lockedError(held)
}

// Release implements core.Repository.
func (r *Repository) Release(ctx context.Context, node string, claims []core.ClaimRef) (int, error) {
	if err := r.begin(ctx); err != nil {
		return 0, err
	}
	defer r.mu.Unlock()
	changed := 0
	var held []core.RowID
	for _, c := range claims {
		switch row := r.table.rows[c.ID]; {
		case row == nil || !row.heldBy(node, c.ClaimNo) || row.LeaseUntil.IsZero():
		case r.locked(c.ID):
			held = append(held, c.ID)
		default:
			row.LeaseUntil = time.Time{}
			changed++
		}
	}
	return changed, lockedError(held)
}
