package core

import (
	"context"
	"errors"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/archive"
)

// minKeyIdle is the shortest time without use after which a key row is collected.
const minKeyIdle = 24 * time.Hour

// clean deletes published rows after their retention, and key rows that were unused for long. It
// works in small chunks with pauses. Several processes may do it at once.
func (r *relay) clean(ctx context.Context) {
	var cursor KeyID
	nextKeys := time.Now().Add(spread(r.cfg.Retention.CleanupInterval, r.random()))
	for {
		if !sleep(ctx, spread(r.cfg.Retention.CleanupInterval, r.random())) {
			return
		}
		r.cleanRows(ctx)
		if time.Now().After(nextKeys) {
			cursor = r.collectKeys(ctx, cursor)
			r.forgetRelays(ctx)
			nextKeys = time.Now().Add(spread(10*r.cfg.Retention.CleanupInterval, r.random()))
		}
	}
}

func (r *relay) cleanRows(ctx context.Context) {
	for ctx.Err() == nil {
		n, more, err := r.cleanSome(ctx)
		if n > 0 {
			r.o.obs.Cleaned("event", n)
		}
		if err != nil {
			r.cleanupFailed(ctx, "rows", err)
			return
		}
		if !more || !sleep(ctx, 50*time.Millisecond) {
			return
		}
	}
}

// cleanSome deletes some rows, and reports whether there may be more.
func (r *relay) cleanSome(ctx context.Context) (deleted int, more bool, err error) {
	keep := r.cfg.Retention
	timeout := dbTimeout
	if keep.Archive != nil {
		timeout = archive.Timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if c, ok := r.repo().(Cleaner); ok && keep.special() {
		req := CleanupRequest{Keep: keep.Keep, KeepDiscarded: keep.KeepDiscarded, Limit: keep.CleanupBatch}
		if keep.Archive != nil {
			req.Archive = r.archive.Call
		}
		return c.Clean(ctx, req)
	}
	deleted, err = r.repo().Cleanup(ctx, keep.Keep, keep.CleanupBatch)
	return deleted, 2*deleted >= keep.CleanupBatch, err
}

// collectKeys scans a part of the key table and returns where to go on.
func (r *relay) collectKeys(ctx context.Context, cursor KeyID) KeyID {
	idle := max(r.cfg.Retention.Keep, minKeyIdle)
	for range 100 {
		callCtx, cancel := context.WithTimeout(ctx, dbTimeout)
		n, next, err := r.repo().CollectKeys(callCtx, idle, cursor, r.cfg.Retention.CleanupBatch)
		cancel()
		if err != nil {
			r.cleanupFailed(ctx, "keys", err)
			return cursor
		}
		if n > 0 {
			r.o.obs.Cleaned("key", n)
		}
		cursor = next
		if next.IsZero() || !sleep(ctx, 50*time.Millisecond) {
			break
		}
	}
	return cursor
}

func (r *relay) cleanupFailed(ctx context.Context, what string, err error) {
	if ctx.Err() == nil || errors.Is(err, archive.ErrStuck) {
		r.cfg.Logger.Warn("outbox: cleanup failed, it is tried again later", "component", "outbox", "what", what, "err",
			errorText(err))
	}
}

// sleep waits and reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
