package command

import (
	"context"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// ArchiveEffects is how many effects QueueConfig.Archive gets at most in one call.
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
	limit := q.cfg.CleanupBatch
	if q.cfg.Archive == nil {
		deleted, err = q.cfg.Store.Cleanup(ctx, q.cfg.Retention, limit)
		return deleted, deleted >= limit, err
	}
	limit = min(limit, ArchiveEffects)
	deleted, err = q.cfg.Store.(Archiver).Archive(ctx, q.cfg.Retention, limit, q.archive)
	return deleted, deleted >= limit, err
}

// archive calls QueueConfig.Archive. A panic is an error, so that it does not end Run.
func (q *Queue) archive(ctx context.Context, effects []Record) (err error) {
	returned := false
	defer func() {
		if !returned {
			err = core.NewPanicError(recover())
		}
		if err != nil {
			err = fmt.Errorf("QueueConfig.Archive: %w", err)
		}
	}()
	err = q.cfg.Archive(ctx, effects)
	returned = true
	return err
}
