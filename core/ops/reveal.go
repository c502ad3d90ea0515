package ops

import (
	"context"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/who"
)

// AuditReveal is the action of the audit row that Reveal writes.
const AuditReveal = "reveal"

// Reveal returns the content of the row with that id, and writes an audit row in the same
// transaction: who saw it, and why. Both are required, actor with up to 255 bytes and reason with up
// to 1024. Show returns the content without an audit row. The error wraps ErrNotFound if there is no
// such row.
func (a *API) Reveal(ctx context.Context, id core.RowID, actor, reason string) (Content, error) {
	if problem := who.Problem(actor, reason); problem != "" {
		return Content{}, invalid(problem)
	}
	c, found, err := a.store.Reveal(ctx, id, core.AdminRequest{Actor: actor, Reason: reason})
	if err == nil && !found {
		err = fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return c, err
}
