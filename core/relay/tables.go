package relay

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/pace"
)

// warn logs the Repository's warnings.
func (o *outbox) warn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, dbTimeout)
	defer cancel()
	all, err := o.repo().Warnings(ctx)
	if err != nil && ctx.Err() == nil {
		o.ob.Logger.WarnContext(ctx, "outbox: the database cannot be asked for dangers", "error", errtext.Of(err))
	}
	for _, one := range all {
		o.ob.Logger.WarnContext(ctx, "outbox: "+one.Found, "cause", one.Cause, "fix", one.Fix)
	}
}

// maxCheckWait bounds the pause between two tries to look at the tables.
const maxCheckWait = 5 * time.Second

// checkTables checks the tables before Run starts the relay. It waits while the database is away,
// logs the differences, and returns an error when the tables are missing (ErrNoTables) or the server
// is not supported (errors.ErrUnsupported).
func (o *outbox) checkTables(ctx context.Context) error {
	for failures := 1; ; failures++ {
		callCtx, cancel := context.WithTimeout(ctx, dbTimeout)
		err := o.repo().Check(callCtx)
		fatal := errors.Is(err, core.ErrNoTables) || errors.Is(err, errors.ErrUnsupported)
		if err != nil && !fatal && !errors.Is(err, core.ErrTablesDiffer) {
			// the table answers, only its shape cannot be read
			if o.answers(callCtx) {
				o.ob.Logger.WarnContext(ctx, "outbox: the tables cannot be checked", "error", errtext.Of(err))
				err = nil
			}
		}
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
			return nil //nolint:nilerr // ctx has ended, so Run returns nil
		case fatal:
			return err
		case o.repo().Classify(err) == core.ErrorPoolClosed:
			return core.ErrPoolClosed
		case errors.Is(err, core.ErrTablesDiffer):
			o.ob.Logger.ErrorContext(ctx, "outbox: the tables are not as they should be", "error", errtext.Of(err))
			return nil
		}
		wait := pace.Spread(pace.Backoff(100*time.Millisecond, maxCheckWait, failures), o.random())
		o.ob.Logger.WarnContext(ctx, "outbox: cannot look at the tables: the relay waits for the database",
			"failures", failures,
			"next_try", wait, "error", errtext.Of(err))
		if !pace.Sleep(ctx, wait) {
			return nil
		}
	}
}

// answers reports whether the table of events can be read.
func (o *outbox) answers(ctx context.Context) bool {
	last := core.RowID(bytes.Repeat([]byte{0xff}, len(core.RowID{}))) // behind it there is no row to read
	_, err := o.repo().ListDead(ctx, core.DeadQuery{After: last, Limit: 1})
	return err == nil
}
