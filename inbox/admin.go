package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	engine "github.com/ormoutbox/ormoutbox/core/inbox"
)

// ParkedQuery selects parked events.
type ParkedQuery struct {
	Handler string  // empty: all
	Limit   int     // default 100, at most 1000
	After   *Parked // the last one of the page before
}

// ListParked returns the parked events of this consumer, those first that were received first.
func (in *Inbox) ListParked(ctx context.Context, q ParkedQuery) ([]Parked, error) {
	return in.cfg.Store.ListDead(ctx, engine.DeadQuery{
		Consumer: in.cfg.Consumer, Handler: q.Handler,
		Limit: q.Limit, After: q.After,
	})
}

// ReleaseRequest names parked events that a person lets go on.
type ReleaseRequest struct {
	Keys   []Key  // as ListParked returns them
	Actor  string // who; required
	Reason string // why; required
}

// Release lets parked events be processed, with fresh attempts, when their messages are delivered
// again: from the poison queue, or by a replay. It delivers nothing itself. The row keeps actor and
// reason until then. It returns how many changed: the others were not parked, or are of another
// consumer. An incomplete request is refused with an error wrapping core.ErrInvalidRequest.
func (in *Inbox) Release(ctx context.Context, req ReleaseRequest) (changed int, err error) {
	for _, k := range req.Keys {
		if k.Consumer != in.cfg.Consumer {
			return 0, fmt.Errorf("%w: key of consumer %q, this is %q", core.ErrInvalidRequest, k.Consumer,
				in.cfg.Consumer)
		}
	}
	return in.cfg.Store.Redrive(ctx, req.Keys, req.Actor, req.Reason)
}

const cleanupChunk = 1000

// errForever: there is nothing to clean up.
var errForever = errors.New("inbox: Config.Retention is not set: everything is kept for ever")

// Cleanup deletes the processed events, and the keys of OnlyNewer, of this consumer that are older
// than Config.Retention, in chunks. It returns how many. Rows of failed and dead events stay. Any
// number of processes may call it at once.
func (in *Inbox) Cleanup(ctx context.Context) (deleted int, err error) {
	if in.cfg.Retention == 0 {
		return 0, errForever
	}
	for _, clean := range []func(context.Context, string, time.Duration, int) (int, error){
		in.cfg.Store.Cleanup,
		in.cfg.Store.CleanupKeys,
	} {
		for {
			n, err := clean(ctx, in.cfg.Consumer, in.cfg.Retention, cleanupChunk)
			deleted += n
			in.obs.Cleaned(n, err)
			if err != nil {
				return deleted, err
			}
			if n < cleanupChunk {
				break
			}
		}
	}
	return deleted, nil
}

// Run calls Cleanup now and every Config.CleanupInterval until ctx ends, and then returns nil. An
// error is told to the Observer and the Logger, and tried again. Without Config.Retention it
// returns an error at once.
func (in *Inbox) Run(ctx context.Context) error {
	if in.cfg.Retention == 0 {
		return errForever
	}
	tick := time.NewTicker(in.cfg.CleanupInterval)
	defer tick.Stop()
	for {
		if _, err := in.Cleanup(ctx); err != nil && ctx.Err() == nil {
			in.cfg.Logger.Warn("inbox: cleanup failed", "consumer", in.cfg.Consumer, "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
