package relay

import (
	"context"
	"errors"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/archive"
	"github.com/ormoutbox/ormoutbox/core/internal/cleaning"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/pace"
)

// minKeyIdle is the shortest time without use after which a key row is collected.
const minKeyIdle = 24 * time.Hour

// janitor deletes expired rows and unused keys. One goroutine uses it.
type janitor struct {
	*outbox
	failing    func() // a call of the database has failed
	archive    archive.Caller[core.ArchivedEvent]
	rows, keys cleaning.Batch
}

func newJanitor(of *outbox, failing func()) *janitor {
	j := &janitor{outbox: of, failing: failing}
	timeLimit := func(err error) bool { return of.repo().Classify(err) == core.ErrorTimeLimit }
	j.rows.TimeLimit, j.keys.TimeLimit = timeLimit, timeLimit
	j.archive.Name, j.archive.Archive = "outbox: Relay.Retention.Archive", of.cfg.Retention.Archive
	j.archive.Grace = min(archive.Grace, of.cfg.ShutdownTimeout/4)
	j.archive.Panicked = func(value any) error { return core.NewPanicError(value) }
	return j
}

// clean deletes published rows after their retention, and key rows that were unused for long. It
// works in small chunks with pauses. Several processes may do it at once.
func (j *janitor) clean(ctx context.Context) {
	var cursor core.KeyID
	nextKeys := time.Now().Add(pace.Spread(j.cfg.Retention.CleanupInterval, j.random()))
	for {
		if !pace.Sleep(ctx, pace.Spread(j.cfg.Retention.CleanupInterval, j.random())) {
			return
		}
		j.cleanRows(ctx)
		if time.Now().After(nextKeys) {
			cursor = j.collectKeys(ctx, cursor)
			j.forgetRelays(ctx)
			nextKeys = time.Now().Add(pace.Spread(10*j.cfg.Retention.CleanupInterval, j.random()))
		}
	}
}

func (j *janitor) cleanRows(ctx context.Context) {
	for ctx.Err() == nil {
		n, more, err := j.cleanSome(ctx)
		if n > 0 {
			j.obs.Cleaned("event", n)
		}
		if err != nil {
			j.failed(ctx, "rows", err)
			return
		}
		if !more || !pace.Sleep(ctx, 50*time.Millisecond) {
			return
		}
	}
}

// cleanSome deletes some rows, and reports whether there may be more.
func (j *janitor) cleanSome(ctx context.Context) (deleted int, more bool, err error) {
	keep := j.cfg.Retention
	timeout := dbTimeout
	if keep.Archive != nil {
		timeout = archive.Timeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	limit := j.rows.Rows(keep.CleanupBatch)
	req := core.CleanupRequest{Keep: keep.Keep, KeepDiscarded: keep.KeepDiscarded, Limit: limit}
	if keep.Archive != nil { // it gets few rows at once, and its errors are the program's
		req.Archive = j.archive.Call
		return j.repo().Cleanup(limited, req)
	}
	deleted, more, err = j.repo().Cleanup(limited, req)
	if err != nil {
		j.failing()
	}
	if j.rows.Ended(ctx, limit, err) {
		return deleted, true, nil
	}
	return deleted, more, err
}

// collectKeys scans a part of the key table and returns where to go on.
func (j *janitor) collectKeys(ctx context.Context, cursor core.KeyID) core.KeyID {
	idle := max(j.cfg.Retention.Keep, minKeyIdle)
	for range 100 {
		callCtx, cancel := context.WithTimeout(ctx, dbTimeout)
		limit := j.keys.Rows(j.cfg.Retention.CleanupBatch)
		n, next, err := j.repo().CollectKeys(callCtx, idle, cursor, limit)
		cancel()
		if err != nil {
			j.failing()
		}
		if j.keys.Ended(ctx, limit, err) {
			continue
		}
		if err != nil {
			j.failed(ctx, "keys", err)
			return cursor
		}
		if n > 0 {
			j.obs.Cleaned("key", n)
		}
		cursor = next
		if next.IsZero() || !pace.Sleep(ctx, 50*time.Millisecond) {
			break
		}
	}
	return cursor
}

func (j *janitor) forgetRelays(ctx context.Context) {
	callCtx, cancel := context.WithTimeout(ctx, dbTimeout)
	defer cancel()
	if _, err := j.repo().ForgetRelays(callCtx, heartbeatKept); err != nil {
		j.failing()
		j.failed(ctx, "relays", err)
	}
}

func (j *janitor) failed(ctx context.Context, what string, err error) {
	if ctx.Err() == nil || errors.Is(err, archive.ErrStuck) {
		j.ob.Logger.Warn("outbox: cleanup failed, it is tried again later", "what", what,
			"error", errtext.Of(err))
	}
}
