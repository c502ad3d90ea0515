package bunoutbox

import (
	"context"

	"github.com/uptrace/bun"
)

// hook captures the events of models around their statements.
type hook struct{ ob *Outbox }

// BeforeQuery implements bun.QueryHook.
func (h *hook) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

// AfterQuery implements bun.QueryHook.
func (h *hook) AfterQuery(context.Context, *bun.QueryEvent) {}
