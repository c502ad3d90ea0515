package command

import (
	"context"
	"time"
)

// ArchiveEffects is how many effects QueueConfig.Archive gets at most in one call, with payloads of
// at most core.ArchiveBytes unless a single one is larger.
const ArchiveEffects = 100

// Archiver is implemented by a Store that can show effects before it deletes them. NewQueue refuses
// QueueConfig.Archive without it.
type Archiver interface {
	// Archive gives at most limit effects that were completed or discarded longer than keep ago to
	// fn, and deletes them if it returns nil. Those that ended first come first. It returns how
	// many it deleted. No transaction is open while fn runs.
	Archive(ctx context.Context, keep time.Duration, limit int, fn func(ctx context.Context, effects []Record) error,
	) (deleted int, err error)
}

// cleanSome deletes a chunk, and reports whether there may be more.
func (q *Queue) cleanSome(ctx context.Context) (deleted int, more bool, err error) {
	if q.cfg.Archive == nil {
		return q.batch.Delete(ctx, q.cfg.CleanupBatch, func(limit int) (int, error) {
			return q.cfg.Store.Cleanup(ctx, q.cfg.Retention, limit)
		})
	}
	limit := min(q.cfg.CleanupBatch, ArchiveEffects)
	deleted, err = q.cfg.Store.(Archiver).Archive(ctx, q.cfg.Retention, limit, q.archive.Call)
	return deleted, deleted > 0, err
}
