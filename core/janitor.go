package core

import (
	"context"
	"errors"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/archive"
	"github.com/ormoutbox/ormoutbox/core/internal/cleaning"
)

// minKeyIdle is the shortest time without use after which a key row is collected.
const minKeyIdle = 24 * time.Hour

// janitor deletes what is not needed any more. One goroutine uses it.
type janitor struct {
	o          *Outbox
	archive    archive.Caller[ArchivedEvent]
	rows, keys cleaning.Batch
}

func newJanitor(o *Outbox) *janitor {
	j := &janitor{o: o}
	j.archive.Name, j.archive.Archive = "outbox: Retention.Archive", o.cfg.Retention.Archive
	j.archive.Grace = min(archive.Grace, o.cfg.ShutdownTimeout/4)
	j.archive.Panicked = func(value any) error { return NewPanicError(value) }
	return j
}

// clean deletes published rows after their retention, and key rows that were unused for long. It
// works in small chunks with pauses. Several processes may do it at once.
func (j *janitor) clean(ctx context.Context) {
	var cursor KeyID
	nextKeys := time.Now().Add(spread(j.o.cfg.Retention.CleanupInterval, j.o.random()))
	for {
		if !sleep(ctx, spread(j.o.cfg.Retention.CleanupInterval, j.o.random())) {
			return
		}
		j.cleanRows(ctx)
		if time.Now().After(nextKeys) {
			cursor = j.collectKeys(ctx, cursor)
			j.forgetRelays(ctx)
			nextKeys = time.Now().Add(spread(10*j.o.cfg.Retention.CleanupInterval, j.o.random()))
		}
	}
}

func (j *janitor) cleanRows(ctx context.Context) {
	for ctx.Err() == nil {
		n, more, err := j.cleanSome(ctx)
		if n > 0 {
			j.o.obs.Cleaned("event", n)
		}
		if err != nil {
			j.failed(ctx, "rows", err)
			return
		}
		if !more || !sleep(ctx, 50*time.Millisecond) {
			return
		}
	}
}

// cleanSome deletes some rows, and reports whether there may be more.
func (j *janitor) cleanSome(ctx context.Context) (deleted int, more bool, err error) {
	keep := j.o.cfg.Retention
	timeout := dbTimeout
	if keep.Archive != nil {
		timeout = archive.Timeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	limit := j.rows.Rows(keep.CleanupBatch)
	c, ok := j.o.cfg.Repository.(Cleaner)
	switch req := (CleanupRequest{Keep: keep.Keep, KeepDiscarded: keep.KeepDiscarded, Limit: limit}); {
	case !ok || !keep.special():
		deleted, err = j.o.cfg.Repository.Cleanup(limited, keep.Keep, limit)
		more = 2*deleted >= limit
	case keep.Archive != nil: // it gets few rows at once, and its errors are the program's
		req.Archive = j.archive.Call
		return c.Clean(limited, req)
	default:
		deleted, more, err = c.Clean(limited, req)
	}
	if j.rows.Ended(ctx, limit, err) {
		return deleted, true, nil
	}
	return deleted, more, err
}

// collectKeys scans a part of the key table and returns where to go on.
func (j *janitor) collectKeys(ctx context.Context, cursor KeyID) KeyID {
	idle := max(j.o.cfg.Retention.Keep, minKeyIdle)
	for range 100 {
		callCtx, cancel := context.WithTimeout(ctx, dbTimeout)
		limit := j.keys.Rows(j.o.cfg.Retention.CleanupBatch)
		n, next, err := j.o.cfg.Repository.CollectKeys(callCtx, idle, cursor, limit)
		cancel()
		if j.keys.Ended(ctx, limit, err) {
			continue
		}
		if err != nil {
			j.failed(ctx, "keys", err)
			return cursor
		}
		if n > 0 {
			j.o.obs.Cleaned("key", n)
		}
		cursor = next
		if next.IsZero() || !sleep(ctx, 50*time.Millisecond) {
			break
		}
	}
	return cursor
}

func (j *janitor) forgetRelays(ctx context.Context) {
	reg, ok := j.o.cfg.Repository.(RelayRegistry)
	if !ok {
		return
	}
	callCtx, cancel := context.WithTimeout(ctx, dbTimeout)
	defer cancel()
	if _, err := reg.ForgetRelays(callCtx, heartbeatKept); err != nil {
		j.failed(ctx, "relays", err)
	}
}

func (j *janitor) failed(ctx context.Context, what string, err error) {
	if ctx.Err() == nil || errors.Is(err, archive.ErrStuck) {
		j.o.cfg.Logger.Warn("outbox: cleanup failed, it is tried again later", "component", "outbox", "what", what,
			"err", errorText(err))
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
