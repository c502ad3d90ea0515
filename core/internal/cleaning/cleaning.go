// Package cleaning sizes the batches of a cleanup.
package cleaning

import (
	"context"
	"errors"
	"sync/atomic"
)

// least is the smallest batch that is tried.
const least = 10

// Batch is how many rows a statement deletes. A statement that ran out of time is tried again with
// half of the rows, and the batch grows again with each one that did not run out. Otherwise a time
// limit that the whole batch never meets would end every cleanup at its first statement. It is safe
// for use by several goroutines.
type Batch struct {
	TimeLimit func(error) bool // reports whether the server ended a statement for its duration
	size      atomic.Int64     // 0: as many as allowed
}

// Delete deletes a batch of at most most rows, and reports whether there may be more.
func (b *Batch) Delete(ctx context.Context, most int, rows func(limit int) (int, error)) (deleted int, more bool,
	err error,
) {
	limit := b.Rows(most)
	deleted, err = rows(limit)
	if b.Ended(ctx, limit, err) {
		return deleted, true, nil
	}
	return deleted, deleted >= limit, err
}

// Rows returns how many rows the next statement may delete, at most most.
func (b *Batch) Rows(most int) int {
	if size := int(b.size.Load()); size > 0 {
		return min(size, most)
	}
	return most
}

// Ended notes how a statement for that many rows ended. It reports whether to go on with fewer, in
// which case the error counts for nothing. ctx is the cleanup's.
func (b *Batch) Ended(ctx context.Context, rows int, err error) (again bool) {
	switch {
	case err == nil:
		if b.size.Load() > 0 {
			b.size.Store(int64(rows + max(1, rows/8)))
		}
	case ctx.Err() == nil && rows > least && (errors.Is(err, context.DeadlineExceeded) || b.TimeLimit(err)):
		b.size.Store(int64(max(least, rows/2)))
		return true
	}
	return false
}
