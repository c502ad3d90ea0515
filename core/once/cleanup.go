package once

import (
	"context"
	"errors"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// Cleanup deletes the keys whose time to live is over, chunk by chunk, until none is left or ctx
// ends. It returns how many it deleted. Any number of processes may call it at once. Config.Archive
// gets the keys first.
func (r *Runner) Cleanup(ctx context.Context) (deleted int, err error) {
	if r.cfg.Store == nil {
		return 0, errors.New("once: Cleanup needs Config.Store")
	}
	for {
		n, more, err := r.cleanSome(ctx)
		r.obs.Cleaned(n, err)
		deleted += n
		if err != nil {
			return deleted, errtext.Errorf("%w: cleanup: %w", ErrStore, err)
		}
		if !more {
			return deleted, nil
		}
	}
}

// cleanSome deletes a chunk, and reports whether there may be more.
func (r *Runner) cleanSome(ctx context.Context) (deleted int, more bool, err error) {
	if r.cfg.Archive == nil {
		return r.batch.Delete(ctx, r.cfg.CleanupBatch, func(limit int) (int, error) {
			return r.cfg.Store.Cleanup(ctx, limit)
		})
	}
	deleted, err = r.cfg.Store.(Archiver).Archive(ctx, min(r.cfg.CleanupBatch, ArchiveKeys), r.archive.Call)
	return deleted, deleted > 0, err
}

// Run cleans up every Config.CleanupInterval until ctx ends; then it returns nil. Errors of the
// store go to the Observer and do not end Run. One process that runs it is enough; several may.
func (r *Runner) Run(ctx context.Context) error {
	if r.cfg.Store == nil {
		return errors.New("once: Run needs Config.Store")
	}
	for {
		_, _ = r.Cleanup(ctx) // the Observer got the error
		if !sleep(ctx, rand50(r.cfg.CleanupInterval)) {
			return nil
		}
	}
}
