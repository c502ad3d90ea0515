package bunoutbox

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// hook puts a door before the connection of each statement that may cause events. Bun asks for the
// connection after the query hooks.
type hook struct{ ob *Outbox }

// doorKey is where the door of a statement is in the Stash of its event. There is one, even if the
// *bun.DB has the hooks of several outboxes.
type doorKey struct{}

// BeforeQuery implements bun.QueryHook.
func (h *hook) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	if f, ok := ctx.Value(finderKey{}).(*finder); ok {
		f.found = append(f.found, h.ob)
		return ctx
	}
	d, joins := event.Stash[doorKey{}].(*door)
	if !joins {
		d = newDoor(event)
	}
	if d == nil || !d.join(h.ob, event) || joins {
		return ctx
	}
	d.place()
	if event.Stash == nil {
		event.Stash = map[any]any{}
	}
	event.Stash[doorKey{}] = d
	return ctx
}

// AfterQuery implements bun.QueryHook.
func (h *hook) AfterQuery(ctx context.Context, event *bun.QueryEvent) {
	d, ok := event.Stash[doorKey{}].(*door)
	if !ok || d.parts[0].ob != h.ob {
		return
	}
	event.Stash[doorKey{}] = nil
	d.remove()
	if event.Err != nil || d.sent.Load() {
		return
	}
	err := adapter.CausesEvents(d.op, d.table.Name, errPassedBy)
	verr := sqltx.Visit(context.WithoutCancel(ctx), d.run, func(tx *sqltx.VisitedTx) error {
		tx.RefuseCommit(err)
		return nil
	})
	logged := "outbox: a statement passed by the outbox; its transaction will not commit"
	if verr != nil {
		logged = "outbox: a statement passed by the outbox, and its events are lost"
	}
	h.ob.own.Config().Logger.ErrorContext(ctx, logged, "component", "outbox", "table", d.table.Name,
		"op", d.op.String(), "error", err)
}

var errPassedBy = fmt.Errorf("%w: another query hook has set the connection of the query, so that the statement "+
	"passed by", core.ErrNotInstalled)
