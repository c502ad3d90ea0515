package core

import (
	"context"
	"errors"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// Checker is implemented by a Repository that can compare its tables with those it needs. Run calls
// it before the relay starts.
type Checker interface {
	// Check returns an error wrapping ErrNoTables when the statements of the Repository cannot
	// work, and one wrapping ErrTablesDiffer when the tables differ but the statements work. Any
	// other error means that the database cannot be asked.
	Check(ctx context.Context) error
}

// Warner is implemented by a Repository that knows dangers of its database that stop no relay. Run
// asks it when the relay starts, and logs them.
type Warner interface {
	Warnings(ctx context.Context) ([]Warning, error)
}

// Warning is a danger, why it is one, and what to do.
type Warning struct{ Found, Cause, Fix string }

// warn logs the dangers that the Repository knows.
func (o *Outbox) warn(ctx context.Context) {
	w, ok := o.cfg.Repository.(Warner)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, dbTimeout)
	defer cancel()
	all, err := w.Warnings(ctx)
	if err != nil && ctx.Err() == nil {
		o.cfg.Logger.WarnContext(ctx, "outbox: the database cannot be asked for dangers", "component", "outbox", "err",
			errorText(err))
	}
	for _, one := range all {
		o.cfg.Logger.WarnContext(ctx, "outbox: "+one.Found, "component", "outbox", "cause", one.Cause, "fix", one.Fix)
	}
}

// maxCheckWait bounds the pause between two tries to look at the tables.
const maxCheckWait = 5 * time.Second

// checkTables checks the tables before Run starts the relay. It waits while the database is away,
// logs the differences, and returns an error wrapping ErrNoTables when the tables are missing.
func (o *Outbox) checkTables(ctx context.Context) error {
	c, ok := o.cfg.Repository.(Checker)
	if !ok {
		return nil
	}
	for failures := 1; ; failures++ {
		callCtx, cancel := context.WithTimeout(ctx, dbTimeout)
		err := c.Check(callCtx)
		if err != nil && !errors.Is(err, ErrNoTables) && !errors.Is(err, ErrTablesDiffer) {
			// the table answers, only its shape cannot be read
			if _, backlogErr := o.cfg.Repository.Backlog(callCtx, 1); backlogErr == nil {
				o.cfg.Logger.WarnContext(ctx, "outbox: the tables cannot be checked", "component", "outbox", "err",
					errorText(err))
				err = nil
			}
		}
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
			return nil //nolint:nilerr // ctx has ended, so Run returns nil
		case errors.Is(err, ErrNoTables):
			return err
		case sqlerr.PoolClosed(err):
			return ErrPoolClosed
		case errors.Is(err, ErrTablesDiffer):
			o.cfg.Logger.ErrorContext(ctx, "outbox: the tables are not as they should be", "component", "outbox", "err",
				errorText(err))
			return nil
		}
		wait := spread(backoff(100*time.Millisecond, maxCheckWait, failures), o.random())
		o.cfg.Logger.WarnContext(ctx, "outbox: cannot look at the tables: the relay waits for the database",
			"component", "outbox", "failures", failures,
			"next_try", wait, "err", errorText(err))
		if !sleep(ctx, wait) {
			return nil
		}
	}
}
