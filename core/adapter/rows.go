package adapter

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/ormoutbox/ormoutbox/core"
)

// UnknownRows is the error of a statement that does not say which rows it changes. It wraps
// core.ErrNoAggregateID. of names the table or the type, and ways names the remedies.
func UnknownRows(op fmt.Stringer, of, why, ways string) error {
	return fmt.Errorf("%w: %s of %s %s: %s", core.ErrNoAggregateID, op, of, why, ways)
}

// TooManyRows is the error of a statement that would change more than MaxRows rows. It wraps
// core.ErrTooManyRows.
func (o *Outbox) TooManyRows(op fmt.Stringer, of string) error {
	return fmt.Errorf("%w: %s of %s would change more than %d rows (Config.MaxResolvedRows)", core.ErrTooManyRows, op,
		of, o.MaxRows())
}

// MaxRows is the most rows that ResolveRows reads: Config.MaxResolvedRows or its default.
func (o *Outbox) MaxRows() int { return cmp.Or(o.cfg.MaxResolvedRows, defaultMaxResolvedRows) }

// AllowsKeyless reports whether Config.AllowKeyless lets a statement pass that does not say which
// rows it changes. It logs the first such statement of each type of model. typ is that type.
func (o *Outbox) AllowsKeyless(ctx context.Context, typ any, op fmt.Stringer, of string) bool {
	if !o.cfg.AllowKeyless {
		return false
	}
	if _, logged := o.warned.LoadOrStore(typ, true); !logged {
		o.cfg.Logger.WarnContext(ctx, "outbox: a statement does not say which rows it changes and causes no events",
			"component", "outbox", slog.String("of", of), slog.String("op", op.String()))
	}
	return true
}
